"""The tutorials: notebooks say what their scripts say, are fit to be published, and run."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import jupytext
import pytest

from tests.notebooks import FOLDER, executed, problems, seconds_of_children, unexecuted

NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SECONDS = 2 * 120  # of processor time: two minutes on two cores
PICTURES = 3  # at least, in each notebook


def committed(name: str) -> Any:
    return jupytext.read(FOLDER / f"{name}.ipynb")


def kinds(notebook: Any) -> list[list[set[str]]]:
    """What each cell shows: the kinds of its outputs."""
    cells = [cell.get("outputs", ()) for cell in notebook.cells]
    return [[set(each.get("data", {each.output_type: 0})) for each in outputs] for outputs in cells]


def test_every_script_has_a_notebook_and_a_line_in_the_readme() -> None:
    assert len(NAMES) == 3 and {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)
    readme = (FOLDER / "README.md").read_text()
    assert all(f"({name}.ipynb)" in readme for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_script(name: str) -> None:
    notebook, script = committed(name), unexecuted(FOLDER / f"{name}.py")
    cells = [[(cell.cell_type, cell.source) for cell in each.cells] for each in (notebook, script)]
    assert cells[0] == cells[1]
    assert notebook.metadata.kernelspec == script.metadata["kernelspec"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_pictures_and_no_paths_noise_or_errors(name: str) -> None:
    notebook = committed(name)
    assert problems(notebook) == []
    shown = [kind for outputs in kinds(notebook) for output in outputs for kind in output]
    assert shown.count("image/png") >= PICTURES and "error" not in shown


@pytest.mark.parametrize(
    "text", ["/home/me/data/x.csv", "see /opt/data/", "UserWarning: x", " 40%|████", "\x1b[A", "12.3it/s]"]
)
def test_paths_of_a_machine_and_noise_are_found(text: str) -> None:
    notebook = deepcopy(committed(NAMES[0]))
    outputs = next(cell.outputs for cell in notebook.cells if cell.get("outputs"))
    outputs[0].text = text
    assert len(problems(notebook)) == 1


@pytest.mark.tutorials
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GP_DECODERS_DATA", str(data_root))
    before = seconds_of_children()
    notebook = executed(FOLDER / f"{name}.py", tmp_path)
    assert seconds_of_children() - before < SECONDS
    assert problems(notebook) == []
    assert kinds(notebook) == kinds(committed(name))
