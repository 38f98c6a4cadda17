"""Motion capture: walks and jogs of subject 35 of the CMU database, prepared as by Lawrence (2007)."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from typing_extensions import Unpack

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles, matlab
from src.data.module import Options
from src.runs.errors import UserError

FILE = "cmu35WalkJog.mat"
GPMAT = "https://raw.githubusercontent.com/SheffieldML/GPmat/c6181986088bf3c2fa5081de7504f3997d33963f"
ADDRESS = f"{GPMAT}/datasets/data/{FILE}"
LEG = ("femur x", "femur y", "femur z", "tibia x", "foot x", "foot z", "toes x")
SPINE = ("lowerback", "upperback", "thorax", "lowerneck", "upperneck", "head")
ARM = ("humerus x", "humerus y", "humerus z", "radius x", "wrist y", "hand x", "hand z", "thumb x", "thumb z")
ANGLES = (
    *(f"{side} {angle}" for side in ("left", "right") for angle in LEG),
    *(f"{bone} {axis}" for bone in SPINE for axis in "xyz"),
    *(f"{side} {angle}" for side in ("left", "right") for angle in ARM),
)
ROOT = ("step x", "step z", "height", "sin x", "sin z", "turn sin y", "cos x", "cos z", "turn cos y")
STILL = (38, 39, 47, 50, 51, 59)  # columns of the file that never move: clavicles and fingers
HIDDEN = {"legs": slice(7, 14), "upper_body": slice(20, 50)}  # columns of ours: the right leg; the thorax and above
JOGS = range(16, 25)  # numbers of the training sequences that are no walks


class CMU35(FromFiles):
    """2,613 + 167 frames, [N, 59]: 50 angles of joints and 9 numbers on the pelvis, labelled as a walk or a jog.

    Training has 31 sequences, the test split the two others, a jog and a walk. Turns and steps are differences from
    frame to frame, so each sequence loses its first one. Each column is standardised, as published.

    `test_missing` hides columns of all test frames as published: `legs` the seven angles of the right leg, `upper_body`
    the thirty of thorax, neck, head and arms. Lawrence scores the walk only, from its 63rd frame.
    """

    files = sources.FileSet(
        "CMU35",
        "tables",
        {FILE: "2a6d1ca2d0e7ee2a9d4c9dab03a6af6f"},
        {ADDRESS: partial(fetching.web_files, {FILE: ADDRESS})},
    )
    standardise = True
    columns = (*ANGLES, *ROOT)
    classes = ("walk", "jog")

    def __init__(self, root: str | Path, test_missing: str | None = None, **options: Unpack[Options]) -> None:
        super().__init__(root, **options)
        if test_missing not in (None, *HIDDEN):
            raise UserError(f"dataset.test_missing={test_missing} must be {' or '.join(HIDDEN)}, or null")
        if test_missing is not None and self.missing.hides("test"):
            raise UserError("dataset.test_missing and dataset.missing both hide test values: set one of them to null")
        self.test_missing = test_missing

    def load(self) -> tuple[Split, Split]:
        """Whole sequences, one after the other; the first test sequence is the jog."""
        arrays = matlab(self.contents()[FILE])
        train = frames(arrays["Y"], arrays["lbls"].argmax(1), jogs=JOGS)
        test = frames(arrays["Ytest"], arrays["lblstest"].argmax(1), jogs=range(1))
        return train, test if self.test_missing is None else hidden(test, HIDDEN[self.test_missing])


def frames(raw: np.ndarray, sequences: np.ndarray, jogs: range) -> Split:
    """The frames [n, 59] of all sequences, given the file's rows [N, 62] and the number of each row's sequence."""
    numbers = np.unique(sequences)
    features = [motion(raw[sequences == number]) for number in numbers]
    y = np.repeat([int(number in jogs) for number in numbers], [len(x) for x in features])
    return split_of(torch.from_numpy(np.concatenate(features).astype(np.float32)), torch.from_numpy(y))


def motion(raw: np.ndarray) -> np.ndarray:
    """One sequence [n, 62] as [n - 1, 59]: position and turn of the pelvis enter by their differences.

    The sine is undone because angles may differ by whole turns.
    """
    before, now = raw[:-1], raw[1:]
    joints = np.delete(now, [*range(6), *STILL], axis=1)
    angles = np.arcsin(np.sin(np.radians(joints)))
    turns = [
        part
        for wave in (np.sin, np.cos)
        for part in (wave(np.radians(now[:, [3, 5]])), wave(np.radians(before[:, [4]])) - wave(np.radians(now[:, [4]])))
    ]
    return np.concatenate([angles, before[:, [0, 2]] - now[:, [0, 2]], now[:, [1]], *turns], axis=1)


def hidden(split: Split, columns: slice) -> Split:
    """The split with these columns hidden in every row; the truth stays with it for scoring."""
    mask = torch.ones(len(split), *split.storage.shape, dtype=torch.bool)
    mask[:, columns] = False
    return replace(split, mask=mask, hidden=~mask)
