"""Motion capture: features of a made-up sequence, and the real file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data.batch import split_of
from src.data.motion import CMU35, HIDDEN, frames, hidden, motion
from src.runs.errors import UserError

FILE = "tables/cmu35WalkJog.mat"


def test_the_features_of_two_frames() -> None:
    frames = np.zeros((2, 62))
    frames[0, :6] = 1, 2, 3, 0, 0, 0
    frames[1, :6] = 5, 7, 9, 30, 90, 60
    frames[1, 6] = 20  # left femur x
    frames[1, 12] = 360 + 15  # left toes x, after a whole turn
    frames[1, 61] = -40  # right thumb z
    (now,) = motion(frames)
    value = dict(zip(CMU35.columns, now, strict=True))
    assert value["left femur x"] == pytest.approx(np.radians(20))
    assert value["left toes x"] == pytest.approx(np.radians(15))
    assert value["right thumb z"] == pytest.approx(np.radians(-40))
    assert (value["step x"], value["height"], value["step z"]) == (-4, 7, -6)
    assert (value["sin x"], value["cos z"]) == pytest.approx((0.5, 0.5))
    assert (value["turn sin y"], value["turn cos y"]) == pytest.approx((-1, 1))


def test_each_sequence_loses_its_first_frame() -> None:
    raw = np.random.default_rng(0).normal(size=(7, 62))
    split = frames(raw, np.array([0, 0, 0, 1, 1, 1, 1]), jogs=range(1, 2))
    assert split.y is not None and split.y.tolist() == [0, 0, 1, 1, 1]
    expected = np.concatenate([motion(raw[:3]), motion(raw[3:])])
    assert split.all().x.numpy() == pytest.approx(expected, abs=1e-6)


def test_hiding_columns() -> None:
    x = torch.arange(12.0).view(3, 4)
    split = hidden(split_of(x), slice(1, 3))
    batch = split.all()
    assert batch.mask is not None and batch.mask.tolist() == 3 * [[True, False, False, True]]
    assert batch.x[:, 1:3].isnan().all() and torch.equal(batch.x[:, ::3], x[:, ::3])
    assert torch.equal(split.truth(batch.index), x)


def test_the_hidden_columns_are_a_leg_or_the_upper_body() -> None:
    leg, body = (CMU35.columns[columns] for columns in HIDDEN.values())
    assert len(leg) == 7 and all(name.startswith("right ") for name in leg) and leg[0] == "right femur x"
    assert len(body) == 30 and body[0] == "thorax x" and body[-1] == "right thumb z"


def loaded(root: Path, test_missing: str | None = None) -> CMU35:
    data = CMU35(root, test_missing, batch_size=1024)
    data.setup()
    return data


def test_the_real_file(data_root: Path, data_file: Callable[[str], Path]) -> None:
    data_file(FILE)
    data = loaded(data_root)
    x = data.train.all().x
    assert x.shape == (2644 - 31, 59) and len(data.test) == 169 - 2 and data.facts.complete_test
    assert x.mean(0).abs().max() < 1e-5 and (x.std(0, correction=0) - 1).abs().max() < 1e-4
    assert data.train.y is not None and data.test.y is not None
    assert data.test.y.tolist() == [1] * 43 + [0] * 124
    jogs = data.train.y == 1
    assert jogs.sum() == 362 - 9
    steps = (x[:, 50:52] * torch.tensor(data.facts.spread[50:52])).norm(dim=1)
    assert steps[jogs].mean() > 1.5 * steps[~jogs].mean()  # who jogs is faster


@pytest.mark.parametrize("part", HIDDEN)
def test_hidden_columns_are_blank_and_their_truth_is_kept(
    part: str, data_root: Path, data_file: Callable[[str], Path]
) -> None:
    data_file(FILE)
    whole, data = loaded(data_root), loaded(data_root, part)
    batch = data.test.all()
    assert batch.mask is not None and data.test.hidden is not None
    assert not data.facts.complete_test and data.facts.complete
    assert batch.x[:, HIDDEN[part]].isnan().all() and not batch.mask[:, HIDDEN[part]].any()
    assert batch.x.isnan().sum() == 167 * len(CMU35.columns[HIDDEN[part]]) == (~batch.mask).sum()
    assert torch.equal(data.test.truth(batch.index), whole.test.all().x)


def test_wrong_options_are_errors() -> None:
    with pytest.raises(UserError, match=r"dataset.test_missing=head must be legs or upper_body, or null"):
        CMU35("nowhere", "head", batch_size=1)
    with pytest.raises(UserError, match="both hide test values"):
        CMU35("nowhere", "legs", batch_size=1, missing={"fraction": 0.5})
