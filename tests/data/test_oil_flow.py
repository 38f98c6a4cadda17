"""Oil flow, from the real file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data.files import matlab
from src.data.oil_flow import OilFlow
from tests.data.made_up import give, mat

FILE = "tables/oil_flow_3Class.mat"


def test_parts_and_labels_of_a_made_up_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"Data{part}": rng.normal(3, 2, (20, 12)) for part in ("Trn", "Vdn", "Tst")}
    labels = {f"Data{part}Lbls": np.eye(3)[rng.integers(3, size=20)] for part in ("Trn", "Vdn", "Tst")}
    give(monkeypatch, mat(**arrays, **labels))
    data = OilFlow("nowhere", batch_size=10)
    data.setup()
    mean, sd = arrays["DataTrn"].mean(0), arrays["DataTrn"].std(0)
    for split, part in ((data.train, "Trn"), (data.test, "Tst")):
        assert np.allclose(split.all().x, (arrays[f"Data{part}"] - mean) / sd, atol=1e-5)
        assert split.y is not None and np.array_equal(np.eye(3)[split.y], labels[f"Data{part}Lbls"])


def test_both_splits_are_standardised_by_the_training_points(data_root: Path, data_file: Callable[[str], Path]) -> None:
    raw = matlab(data_file(FILE).read_bytes())
    data = OilFlow(data_root, batch_size=500)
    data.setup()
    x, x_test = data.train.all().x, data.test.all().x
    assert x.shape == x_test.shape == (1000, 12) and x.dtype == torch.float32
    assert x.mean(0).abs().max() < 1e-6 and (x.std(0, correction=0) - 1).abs().max() < 1e-5
    centre, spread = np.array(data.facts.centre), np.array(data.facts.spread)
    assert x_test.numpy() * spread + centre == pytest.approx(raw["DataTst"], abs=1e-5)


def test_the_densities_of_a_homogeneous_flow_alone_are_linear_in_its_fractions(
    data_root: Path, data_file: Callable[[str], Path]
) -> None:
    raw = matlab(data_file(FILE).read_bytes())
    train, _ = OilFlow(data_root, batch_size=500).load()
    assert train.y is not None and train.y.bincount().tolist() == [343, 316, 341]
    unexplained = []
    for label in range(3):
        x, fractions = (t[train.y.numpy() == label] for t in (raw["DataTrn"], raw["DataTrnFrctns"]))
        inputs = np.column_stack([fractions, np.ones(len(x))])
        rest = x - inputs @ np.linalg.lstsq(inputs, x)[0]
        unexplained.append(rest.std())
    assert OilFlow.classes[int(np.argmin(unexplained))] == "homogeneous" and min(unexplained) < 0.06


def test_the_beams_of_an_annular_flow_see_the_same_from_all_sides(
    data_root: Path, data_file: Callable[[str], Path]
) -> None:
    data_file(FILE)
    train, _ = OilFlow(data_root, batch_size=500).load()
    assert train.y is not None
    means = torch.stack([train.all().x[train.y == label].mean(0) for label in (1, 2)])
    sides = (means[:, 2] - means[:, 6]).abs()  # the first beams of a vertical and of a horizontal line of sight
    assert OilFlow.classes[1:] == ("annular", "stratified") and sides[0] < 0.02 and sides[1] > 0.5
