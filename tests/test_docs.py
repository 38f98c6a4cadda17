"""The documentation's commands and code work as they are printed; CONTRIBUTING.md has a test file of its own."""

import re
from pathlib import Path

import pytest
import torch

from src.data.images import Digits
from src.launch.cli import missing_plugin
from src.models.base import build
from tests.configs import composed

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
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


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
