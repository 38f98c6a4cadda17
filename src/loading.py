"""A run in Python: `from src import load; run = load("outputs/<run>")`."""

from difflib import get_close_matches
from pathlib import Path

from src.python.run import Run
from src.runs import record
from src.runs.errors import UserError

CHECKPOINT = "model.ckpt"


def load(run: str | Path, outputs: str | Path = "outputs", device: str = "cpu") -> Run:
    """A finished run by its folder, the name of the folder, its fingerprint, or the path of a `model.ckpt`.

    `outputs` is the folder of runs in which names and fingerprints are looked up.
    """
    return Run(find(run, Path(outputs)), device)


def find(run: str | Path, outputs: Path) -> Path:
    """The checkpoint of a run."""
    path = Path(run).expanduser()
    if path.is_file():
        return path
    folder = path if path.is_dir() else in_outputs(str(run), outputs)
    if (folder / CHECKPOINT).exists():
        return folder / CHECKPOINT
    status = record.status(folder)
    state = f"its run is {status}" if status else "it is not the folder of a run"
    raise UserError(f"{folder} has no {CHECKPOINT}: {state}")


def in_outputs(name: str, outputs: Path) -> Path:
    """The folder of a run below `outputs` by its name or its fingerprint."""
    folders = sorted(path for path in outputs.glob("*") if path.is_dir())
    names = [folder.name for folder in folders]
    found = [folder for folder in folders if name in (folder.name, folder.name.rpartition("-")[2])]
    if len(found) > 1:
        raise UserError(f"{name} is the fingerprint of several runs: {', '.join(each.name for each in found)}")
    if not found:
        near = get_close_matches(name, names, n=2)
        question = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(f"there is no run {name} in {outputs.absolute()}{question}")
    return found[0]
