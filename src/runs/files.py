"""Files that are written whole or not at all: no reader and no crash ever sees half a file."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from src.runs.errors import UserError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path with the same suffix; it replaces `path` once the body has finished."""
    unfinished = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write text or bytes."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Content of a JSON file, or an empty dict if the file does not exist."""
    try:
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}): fix the file, or remove its folder") from error
    return content
