"""The documentation's commands and code work as they are printed; CONTRIBUTING.md has a test file of its own."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from src.data.images import Digits
from src.launch.cli import missing_plugin
from src.models.base import build
from tests import test_estimators
from tests.configs import composed
from tests.python.runs import digits, run_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("name", "number"), [("README.md", 3), ("docs/tables.md", 2)])
def test_every_command_composes(name: str, number: int) -> None:
    """Each `python -m src.train ...` line names options and values that exist."""
    lines = re.findall(r"^\s*python -m src\.train ([^#\n]*)", (ROOT / name).read_text(), re.MULTILINE)
    assert len(lines) >= number
    for line in lines:
        words = [word for word in line.split() if "=" in word]
        if missing_plugin(words):  # of an extra, whose options only it has
            words = [word for word in words if not word.startswith("hydra")]
        overrides = [re.sub(r"=([^,]+),.*", r"=\1", word) for word in words]
        assert composed(*overrides)["model"]["_target_"]


def test_the_links_of_all_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_the_code_of_the_python_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first block to its last, with real runs and what the page takes as given."""
    for name, model in (("<run>", "bayesian_sas"), ("<classifier>", "sas_classifier")):
        shutil.copytree(run_of(model).folder, tmp_path / "outputs" / name)
    monkeypatch.chdir(tmp_path)
    images, holes = digits(60), digits(3)
    holes[:, :2] = np.nan
    names: dict[str, Any] = {"images": images, "images_with_nan": holes, "X": images.reshape(60, 64)}
    names["labels"] = load_digits().target[:60]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(block.replace("active_set=50", "active_set=20"), names)
    assert names["path"].mean.shape == (9, 1, 8, 8) and names["x"].quantiles.shape == (2, 60, 1, 8, 8)
    assert names["z"].shape == (60, 2) and names["G"].shape == (5, 2, 2) and names["bare"].initialised


def test_the_python_page_names_the_checks_that_are_excluded_with_their_reasons() -> None:
    page = (ROOT / "docs/python.md").read_text()
    for check in test_estimators.NOT_CHECKED | test_estimators.TOO_FEW_EPOCHS:
        assert f"`{check}`" in page
    for reason in test_estimators.NOT_CHECKED.values():
        assert reason in page


@pytest.mark.parametrize("name", ["README.md", "docs/runs.md"])
def test_the_python_example_predicts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = Digits(batch_size=64, max_train=100, max_test=5)
    data.setup()
    model = build(composed("active_set.size=20")["model"], data.facts)
    model.initialise(data)
    (tmp_path / "outputs" / "<run>").mkdir(parents=True)
    checkpoint = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "outputs" / "<run>" / "model.ckpt")
    block = re.search(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert block is not None
    names = {"images": data.test.all().x}
    exec(block[1], names)
    assert names["p"].mean.shape == names["images"].shape  # type: ignore[attr-defined]
