"""Calls of frogs: the Anuran Calls (MFCCs) of the UCI repository."""

import csv
from functools import partial

import numpy as np
import torch

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles

FEATURES, GENUS = slice(22), 23  # columns of the file; Family and Species stand beside the genus
ADDRESS = "https://archive.ics.uci.edu/static/public/406/anuran+calls+mfccs.zip"


class Anuran(FromFiles):
    """7,195 syllables, [N, 22] as float32: cepstral coefficients in [-1, 1], labelled by the genus of the frog.

    As Meng & Lee (Regularized Sparse Gaussian Processes) use them: neither centred nor scaled, and without a test part.
    The test split is the training split, so test scores are those of the training data.
    """

    files = sources.FileSet(
        "Anuran",
        ".",
        {"Frogs_MFCCs.csv": "abff7ab0e6692ff015b51c413064d5c3"},
        {ADDRESS: partial(fetching.web_zip, ADDRESS, {"Frogs_MFCCs.csv": "Frogs_MFCCs.csv"})},
    )
    test_is_train = True

    def load(self) -> tuple[Split, Split]:
        """All rows, twice."""
        header, *rows = csv.reader(self.contents()["Frogs_MFCCs.csv"].decode().splitlines())
        self.columns = tuple(name.replace(" ", "") for name in header[FEATURES])
        x = np.array([row[FEATURES] for row in rows], np.float32)
        genera, y = np.unique([row[GENUS] for row in rows], return_inverse=True)
        self.classes = tuple(genera.tolist())
        split = split_of(torch.from_numpy(x), torch.from_numpy(y))
        return split, split
