"""Progress bars, other than that of the training; `bars(False)` silences them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

WANTED: ContextVar[bool] = ContextVar("WANTED", default=True)


def bar(steps: Iterable[Any] | None, name: str, total: int | None = None, **form: Any) -> "tqdm[Any]":
    """A bar that goes through the steps; it shows on a terminal only, and disappears at the end unless told not to."""
    return tqdm(steps, name, total, disable=None if WANTED.get() else True, **{"leave": False, **form})


@contextmanager
def bars(wanted: bool) -> Iterator[None]:
    """Show bars inside this block, unless an outer block has switched them off."""
    token = WANTED.set(WANTED.get() and wanted)
    try:
        yield
    finally:
        WANTED.reset(token)
