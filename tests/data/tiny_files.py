"""A dataset of two tiny files, for tests of how files are found and fetched."""

import hashlib
from pathlib import Path

from src.data.sources import FileSet, Source

CONTENTS = {"images": b"pixels" * 100, "labels": b"digits"}
MD5 = {name: hashlib.md5(content).hexdigest() for name, content in CONTENTS.items()}


def write_good(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return folder


def tiny(**named_sources: Source) -> FileSet:
    return FileSet("Tiny", "Tiny/raw", MD5, named_sources)


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
