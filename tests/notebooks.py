"""The tutorials as notebooks: `python -m tests.notebooks` executes docs/tutorials/*.py and writes the .ipynb files."""

import os
import re
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jupytext

from tests.launch.commands import environment

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS_PER_CELL = 1200  # for a busy machine; an idle one needs a minute for all

BYTES = 500_000
MACHINE = re.compile(r"(?<![\w.:/>])/(?:[\w.-]+/)+|[A-Z]:\\\\|file://")  # an absolute path
NOISE = re.compile(
    r"warning|findfont|it/s\]|\d+%\||\r|\x1b", re.IGNORECASE
)  # also of bars and their control characters


def unexecuted(source: Path) -> Any:
    """The notebook of a script in the percent format, with ids that do not change."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    return notebook


def executed(source: Path, folder: Path) -> Any:
    """The notebook with its outputs; files that it writes go to the folder."""
    from nbclient import NotebookClient

    notebook = unexecuted(source)
    with patch.dict(os.environ, with_our_python()):  # which the kernel inherits
        options: dict[str, Any] = {"timeout": SECONDS_PER_CELL, "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **options).execute()
    notebook.metadata = METADATA
    return notebook


def texts(notebook: Any) -> Iterator[str]:
    """Everything that a notebook says: sources, printed text, tables, values and metadata, without the pixels."""
    yield str(notebook.metadata)
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("text", "")
            yield from (str(value) for kind, value in output.get("data", {}).items() if kind != "image/png")


def problems(notebook: Any) -> list[str]:
    """What nobody should see in a published notebook."""
    found = [f"a path of a machine: {match[0]}" for text in texts(notebook) for match in MACHINE.finditer(text)]
    for cell in notebook.cells:
        outputs = cell.get("outputs", ())
        found += [f"{each.name}: {each.text}" for each in outputs if each.get("name") == "stderr"]
        found += [f"noise: {each.text}" for each in outputs if NOISE.search(each.get("text", "").replace("\r\n", "\n"))]
    size = len(jupytext.writes(notebook, fmt="ipynb").encode())
    return found + ([f"{size} bytes"] if size > BYTES else [])


def with_our_python() -> dict[str, str]:
    """An environment in which `python` is this one, with this code, as after the activation of .venv."""
    folders = (str(Path(sys.executable).parent), os.environ["PATH"])
    data = os.environ.get("GP_DECODERS_DATA") or str(ROOT / "data")
    return environment() | {"PATH": os.pathsep.join(folders), "GP_DECODERS_DATA": data}


def seconds_of_children() -> float:
    """Processor time of all ended child processes and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Execute all tutorials, or those that are named, in empty folders, and write them beside their sources."""
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py")):
        before, path = seconds_of_children(), FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path.with_suffix(".py"), Path(folder))
        if found := problems(notebook):
            sys.exit(f"{name} is not written: {'; '.join(found)}")
        jupytext.write(notebook, path, fmt="ipynb")
        print(f"{path.relative_to(ROOT)}: {seconds_of_children() - before:.0f} s of one core", flush=True)


if __name__ == "__main__":
    main()
