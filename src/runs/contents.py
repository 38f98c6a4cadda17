"""Content of a user's data files, which counts in the identity of a run in place of their paths.

The digest of a file is kept in a small cache, by its size and time, so that it is read once. Files above 2 GB count by
their size, their time and blocks of them, which takes no longer than a smaller file.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from src.runs.files import write_json

FILES = ("train", "test", "train_labels", "test_labels")  # the options of a dataset that name a user's files
LARGEST_WHOLE = 2 * 2**30  # bytes
BLOCKS, BLOCK = 64, 2**20  # of a larger file, evenly spaced, the first and the last included
FRESH = 2  # seconds: a file that was just written may be written again without a change of its time
DIGITS = 16


def contents(dataset: dict[str, Any]) -> dict[str, str]:
    """The digest of each file that a dataset's settings name, by the option; files that do not exist are left out."""
    return {option: digest(path) for option, path in named(dataset) if path.is_file()}


def named(dataset: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """The options that name a user's file, and their paths."""
    for option in FILES:
        if isinstance(path := dataset.get(option), str):
            yield option, Path(path).expanduser()


def large(dataset: dict[str, Any]) -> list[str]:
    """One line for each file that does not count by all of its content."""
    files = [(option, path) for option, path in named(dataset) if path.is_file()]
    return [
        f"dataset.{option}={path} has {path.stat().st_size / 2**30:.1f} GB: it counts by its size, its time and "
        f"{BLOCKS} blocks of 1 MB, not by all of its content."
        for option, path in files
        if path.stat().st_size > LARGEST_WHOLE
    ]


def digest(path: Path) -> str:
    """Hex digits that differ if the content of a file differs."""
    status = path.stat()
    return remembered(path.absolute(), status.st_size, status.st_mtime_ns)


@cache
def remembered(path: Path, size: int, mtime: int) -> str:
    """The digest of a file with this size and time: from the cache, or computed and put there."""
    known = read_cache().get(str(path))
    if isinstance(known, list) and known[:2] == [size, mtime]:
        return str(known[2])
    found = whole(path) if size <= LARGEST_WHOLE else sampled(path, size, mtime)
    if time.time_ns() - mtime > FRESH * 10**9:
        remember(path, [size, mtime, found])
    return found


def whole(path: Path) -> str:
    """The digest of all bytes, read in pieces."""
    content = sha256()
    with path.open("rb") as file:
        while piece := file.read(BLOCK):
            content.update(piece)
    return content.hexdigest()[:DIGITS]


def sampled(path: Path, size: int, mtime: int) -> str:
    """The digest of size, time and some blocks."""
    content = sha256(f"{size} {mtime}".encode())
    with path.open("rb") as file:
        for number in range(BLOCKS):
            file.seek(number * (size - BLOCK) // (BLOCKS - 1))
            content.update(file.read(BLOCK))
    return content.hexdigest()[:DIGITS]


def cache_file() -> Path:
    """Where digests are kept, for all folders of runs of a user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gp-decoders" / "contents.json"


def read_cache() -> dict[str, Any]:
    """The digests of the cache; none if there is no cache or it is damaged."""
    with suppress(OSError, ValueError):
        found = json.loads(cache_file().read_text())
        return found if isinstance(found, dict) else {}
    return {}


def remember(path: Path, entry: list[Any]) -> None:
    """Put a digest into the cache; files that are gone leave it. Where it cannot be written, there is no cache."""
    with suppress(OSError):
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        kept = {name: known for name, known in read_cache().items() if Path(name).exists()}
        write_json(cache_file(), {**kept, str(path): entry})
