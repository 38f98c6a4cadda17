"""Calls of frogs, from the real file."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from src.data.anuran import Anuran
from tests.data.made_up import give


def test_a_row_is_22_numbers_and_a_genus(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ",".join([*(f"MFCCs_{i:2}" for i in range(1, 23)), "Family,Genus,Species,RecordID"])
    rows = [",".join([*map(str, range(n, n + 22)), f"family,{genus},species {n},{n}"]) for n, genus in enumerate("cab")]
    give(monkeypatch, "\n".join([names, *rows]).encode())
    data = Anuran("nowhere", batch_size=2)
    data.setup()
    assert torch.equal(data.train.all().x, torch.arange(3)[:, None] + torch.arange(22.0))
    assert data.train.y is not None and data.train.y.tolist() == [2, 0, 1] and data.facts.classes == ("a", "b", "c")
    assert data.facts.columns[0] == "MFCCs_1" and data.test is data.train


def test_the_columns_are_as_in_the_file(data_root: Path, data_file: Callable[[str], Path]) -> None:
    data_file("Frogs_MFCCs.csv")
    data = Anuran(data_root, batch_size=1024)
    data.setup()
    x, facts = data.train.all().x, data.facts
    assert x.shape == (7195, 22) and x.dtype == torch.float32 and facts.columns[::21] == ("MFCCs_1", "MFCCs_22")
    assert x.max() == 1 and round(x.min().item(), 3) == -0.952
    assert round((x[:, 0] == 1).double().mean().item(), 3) == 0.966
    assert round((x - x.mean(0)).square().mean().sqrt().item(), 4) == 0.1535
    assert x[0, 1].item() == torch.tensor(0.152936298220384).item()


def test_linear_reconstructions_have_the_known_errors(data_root: Path, data_file: Callable[[str], Path]) -> None:
    data_file("Frogs_MFCCs.csv")
    x = Anuran(data_root, batch_size=1).load()[0].all().x.double()
    energy = torch.linalg.svdvals(x - x.mean(0)).square()
    errors = [round((energy[q:].sum() / x.numel()).sqrt().item(), 4) for q in (2, 5, 10)]
    assert errors == [0.0969, 0.0650, 0.0345]


def test_the_labels_are_the_genera_and_the_test_split_is_the_training_split(
    data_root: Path, data_file: Callable[[str], Path]
) -> None:
    data_file("Frogs_MFCCs.csv")
    data = Anuran(data_root, batch_size=1024)
    data.setup()
    assert data.train.y is not None and data.test is data.train and data.test_is_train
    counts = dict(zip(data.facts.classes, data.train.y.bincount().tolist(), strict=True))
    assert len(counts) == 8 and counts["Adenomera"] == 4150 and counts["Rhinella"] == 68
