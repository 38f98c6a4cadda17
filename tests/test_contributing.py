"""The examples of CONTRIBUTING.md: each is written into a copy of the repository, which is otherwise left alone."""

import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import exit_code

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(
    r"^(?P<how>Append to )?`(?P<path>[\w/.]+)`[^\n]*\n\n```(?:python|yaml)\n(?P<text>.*?)^```$", re.S | re.M
)
WANTED = {  # a metric that proves that the example took part
    "Add a model": "rmse",
    "Add a predictor": "error_rate",
    "Add a dataset": "accuracy_1nn",
    "Add a task": "median_error",
    "Add a likelihood": "nlpd",
    "Add a launcher": "rmse",
}


def sections() -> dict[str, str]:
    """The text below each heading that begins with Add."""
    parts = re.split(r"^## (Add .*)$", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def write_examples(section: str, copy: Path) -> None:
    """Put the files of a section where it says, or append to one that is there."""
    for example in EXAMPLE.finditer(section):
        path = copy / example["path"]
        assert path.exists() == bool(example["how"]), path
        before = path.read_text() + "\n\n" if example["how"] else ""
        path.write_text(before + example["text"])


def run_command(words: list[str], folder: Path) -> None:
    """As `python <words>` does it in a folder."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    _, module, *sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def test_every_kind_of_addition_has_an_example() -> None:
    assert set(sections()) == set(WANTED)
    assert all(EXAMPLE.search(text) for text in sections().values())


@pytest.mark.parametrize("title", WANTED)
def test_an_example_needs_no_other_file(title: str, tmp_path: Path) -> None:
    for folder in ("src", "conf", "sweeps"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    section = sections()[title]
    write_examples(section, tmp_path)
    (command,) = re.findall(r"^    python (.*)$", section, re.M)
    log = tmp_path / "log.txt"
    assert exit_code(run_command, command.split(), tmp_path, seconds=300, output=log) == 0, log.read_text()
    metrics = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/*/metrics.json")]
    assert metrics and all(WANTED[title] in found for found in metrics)
