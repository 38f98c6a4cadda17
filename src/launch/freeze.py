"""Frozen code: a sweep runs from a copy of code and configs, so later edits do not reach cells that start later."""

import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path

from src.runs import record

CODE = Path(__file__).parents[2]
PACKAGES = ("src", "conf", "sweeps")


def continue_frozen(outputs: Path) -> None:
    """Replace this process by the same command, run from a frozen copy of the code."""
    copy = freeze(outputs / ".code")
    os.environ.update({record.HOME: str(Path.cwd()), record.REVISION: record.git_revision() or ""})
    os.chdir(copy)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "src.train", *sys.argv[1:]])


def freeze(folder: Path) -> Path:
    """Copy code and configs into a subfolder named by a hash of their content; an existing copy is used again."""
    files = sorted(path for package in PACKAGES for path in (CODE / package).rglob("*") if is_source(path))
    content = sha256(b"".join(str(path.relative_to(CODE)).encode() + path.read_bytes() for path in files))
    copy = folder / content.hexdigest()[:12]
    if not copy.exists():
        unfinished = copy.with_suffix(f".{os.getpid()}")
        for path in files:
            (unfinished / path.relative_to(CODE)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, unfinished / path.relative_to(CODE))
        unfinished.rename(copy)
    return copy


def is_source(path: Path) -> bool:
    """Whether a file is code, a config or a part of them, and not a product of Python."""
    return path.is_file() and "__pycache__" not in path.parts
