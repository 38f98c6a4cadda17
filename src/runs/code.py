"""The code that runs: its files, and a digest that tells whether they have changed."""

from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("src", "conf", "sweeps")


def sources(root: Path = ROOT) -> list[Path]:
    """Every file of code and configs, also those that git does not know."""
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*") if is_source(path))


def is_source(path: Path) -> bool:
    """Whether a file is code, a config or a part of them, and not a product of Python."""
    return path.is_file() and "__pycache__" not in path.parts


def digest(root: Path = ROOT) -> str:
    """Twelve hex digits that differ if the name or the content of any file differs."""
    content = sha256()
    for path in sources(root):
        content.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return content.hexdigest()[:12]
