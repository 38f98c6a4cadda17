"""SARCOS, from the real file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data.files import matlab
from src.data.sarcos import Sarcos
from tests.data.made_up import give, mat

FILE = "tables/sarcos_inv_test.mat"


def test_torques_of_a_made_up_file_stay_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(5, 3, (50, 21))
    give(monkeypatch, mat(sarcos_inv_test=np.concatenate([x, 2 * x[:, :7] + 1], 1)))
    for standardise in (True, False):
        data = Sarcos("nowhere", standardise=standardise, batch_size=10)
        data.setup()
        assert (len(data.train), len(data.test)) == (40, 10)
        for split in (data.train, data.test):  # a linear function of an input is the input, once both are standardised
            inputs, torques = split.all().x[:, :7], split.y
            assert torques is not None
            assert torch.allclose(torques, inputs if standardise else 2 * inputs + 1, atol=1e-5)


@pytest.mark.parametrize("standardise", [True, False])
def test_each_row_of_the_file_is_in_one_split(
    standardise: bool, data_root: Path, data_file: Callable[[str], Path]
) -> None:
    rows = matlab(data_file(FILE).read_bytes())["sarcos_inv_test"]
    data = Sarcos(data_root, standardise=standardise, batch_size=1024)
    data.setup()
    assert (len(data.train), len(data.test)) == (3559, 890) and data.facts.shape == (21,)
    assert data.facts.target.kind == "real" and data.facts.target.size == 7
    assert data.train.y is not None and data.test.y is not None
    x, y = torch.cat([data.train.all().x, data.test.all().x]), torch.cat([data.train.y, data.test.y])
    if standardise:
        assert data.train.y.mean(0).abs().max() < 1e-5 and (data.train.y.std(0, correction=0) - 1).abs().max() < 1e-5
        x = x * torch.tensor(data.facts.spread) + torch.tensor(data.facts.centre)
    mix = np.random.default_rng(0).normal(size=21)  # a number by which to know a row again
    found, wanted = x.double().numpy() @ mix, rows[:, :21] @ mix
    assert np.allclose(np.sort(found), np.sort(wanted), atol=1e-3)
    torques = np.stack([y[found.argsort(), 0], rows[wanted.argsort(), 21]])
    assert np.corrcoef(torques)[0, 1] > 0.9999
