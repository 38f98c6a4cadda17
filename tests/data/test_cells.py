"""Gene expression of single cells, from the real files."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from src.data.cells import QPCR, PBMC68k
from src.runs.errors import UserError
from tests.data.made_up import give


def test_stages_are_in_the_order_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{stage},{number},{-number}" for number, stage in enumerate(["2"] * 10 + ["16"] * 10)]
    give(monkeypatch, "\n".join([",Actb,Ahcy", *rows]).encode())
    data = QPCR("nowhere", batch_size="full")
    data.setup()
    assert data.facts.columns == ("Actb", "Ahcy") and data.facts.classes == ("2", "16")
    for split, each in ((data.train, 8), (data.test, 2)):
        x, y = split.all().x, split.y
        assert y is not None and y.bincount().tolist() == [each, each]
        assert torch.equal(y, (x[:, 0] >= 10).long()) and torch.equal(x[:, 1], -x[:, 0])


def test_qpcr(data_root: Path, data_file: Callable[[str], Path]) -> None:
    lines = data_file("tables/guo_qpcr.csv").read_text().splitlines()
    data = QPCR(data_root, batch_size="full")
    data.setup()
    assert data.facts.classes == ("1", "2", "4", "8", "16", "32 TE", "32 ICM", "64 PE", "64 TE", "64 EPI")
    assert data.facts.columns[0] == "Actb" and data.facts.shape == (48,) == (len(data.facts.columns),)
    assert (len(data.train), len(data.test)) == (349, 88) and data.train.storage.dtype == torch.float32
    rows = {tuple(np.array(line.split(",")[1:], np.float32)): line.split(",")[0] for line in lines[1:]}
    assert len(rows) == 437
    for split in (data.train, data.test):
        batch = split.all()
        assert batch.y is not None and set(batch.y.tolist()) == set(range(10))
        assert [data.classes[y] for y in batch.y] == [rows[tuple(x.numpy())] for x in batch.x]


def test_pbmc68k(data_root: Path, data_file: Callable[[str], Path]) -> None:
    h5py = pytest.importorskip("h5py")
    path = data_file("tables/10x_pbmc68k_reduced.h5ad")
    data = PBMC68k(data_root, batch_size="full")
    data.setup()
    assert (len(data.train), len(data.test)) == (560, 140) and data.facts.shape == (765,)
    assert data.facts.columns[:2] == ("HES4", "TNFRSF4") and data.facts.classes[-1] == "Dendritic"
    assert data.train.y is not None and data.test.y is not None
    assert (data.train.y.bincount() + data.test.y.bincount()).tolist() == [68, 8, 19, 54, 43, 129, 95, 13, 31, 240]
    with h5py.File(path) as file:
        assert data.train.all().x.sum() + data.test.all().x.sum() == pytest.approx(file["X"][:].sum(), rel=1e-3)


def test_pbmc68k_without_h5py_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return load(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"dataset=pbmc68k needs h5py: pip install -e"):
        PBMC68k(tmp_path, batch_size=1).load()
