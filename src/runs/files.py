"""Files that are written whole or not at all: a reader, or a crash, never meets half of one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A place to write to, of the same suffix, which takes the place of `path` once all is written."""
    unfinished = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a text or bytes."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
