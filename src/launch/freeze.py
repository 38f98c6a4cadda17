"""Frozen code: a sweep runs from a copy of code and configs, so later edits do not reach cells that start later."""

import os
import shutil
import sys
from pathlib import Path

from src.runs import code, record

CODE = code.ROOT


def continue_frozen(outputs: Path) -> None:
    """Replace this process by the same command, run from a frozen copy of the code."""
    copy = freeze(outputs / ".code")
    os.environ.update({record.HOME: str(Path.cwd()), record.REVISION: record.git_revision() or ""})
    os.chdir(copy)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "src.train", *sys.argv[1:]])


def freeze(folder: Path) -> Path:
    """Copy code and configs into a subfolder named by a hash of their content; an existing copy is used again."""
    copy = folder / code.digest(CODE)
    if not copy.exists():
        unfinished = copy.with_suffix(f".{os.getpid()}")
        for path in code.sources(CODE):
            (unfinished / path.relative_to(CODE)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, unfinished / path.relative_to(CODE))
        unfinished.rename(copy)
    return copy
