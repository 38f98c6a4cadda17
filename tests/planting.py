"""Planted mistakes: a source file with one mistake in it, and the mirrored test file that must find it.

Each room's `planted.py` lists its mistakes. A mistake is tried in a process of its own that has torch loaded but
nothing of `src`: an import hook gives it the source file with the mistake, and pytest runs the one test file.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

from tests.processes import exit_code

ROOT = Path(__file__).parents[1]
SECONDS = 120  # the longest that a test file may take to find a mistake
OFFSET = 100  # added to pytest's exit code, so that a crash of the process is no finding
PASSED, FOUND = OFFSET, OFFSET + 1


class Mistake(NamedTuple):
    """One mistake: what it is, where, and who finds it."""

    name: str
    source: str  # a path below the repository, such as src/models/vae.py
    old: str  # text that occurs once in the source
    new: str
    test: str  # the mirrored test file


def mistake(name: str, files: tuple[str, str], old: str, new: str) -> Mistake:
    """A mistake in the first of two files, which the second must find."""
    source, test = files
    return Mistake(name, source, old, new, test)


def cases(planted: Sequence[Mistake]) -> list[Any]:
    """Test cases of a room: every tenth mistake is always tried, the others by `make test-planted`."""
    marks = [() if number % 10 == 0 else (pytest.mark.planted,) for number in range(len(planted))]
    return [pytest.param(each, id=each.name, marks=mark) for each, mark in zip(planted, marks, strict=True)]


class PlantedLoader(SourceFileLoader):
    """Loads a module with one piece of its text replaced."""

    mistake: Mistake

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text with the mistake in it; compiled files on disk are left alone."""
        return compile(planted_text(self.mistake), self.path, "exec")


class PlantedFinder(MetaPathFinder):
    """Finds the one module that has the mistake before Python finds the file as it is."""

    def __init__(self, mistake: Mistake) -> None:
        self.mistake = mistake
        self.module = mistake.source.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the module with the mistake; None for all others."""
        if fullname != self.module:
            return None
        loader = PlantedLoader(fullname, str(ROOT / self.mistake.source))
        loader.mistake = self.mistake
        return spec_from_file_location(fullname, loader=loader)


def planted_text(mistake: Mistake) -> str:
    """The source with the mistake; an error unless there is exactly one place for it."""
    text = (ROOT / mistake.source).read_text()
    if text.count(mistake.old) != 1:
        raise ValueError(f"{mistake.name}: {mistake.source} has {text.count(mistake.old)} times {mistake.old!r}")
    return text.replace(mistake.old, mistake.new)


def try_mistake(mistake: Mistake) -> None:
    """In a process of its own: run the test file on the source with the mistake, and exit with pytest's code."""
    sys.meta_path.insert(0, PlantedFinder(mistake))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins that are imported already would make pytest warn
    options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no"]  # nobody reads what it prints
    os._exit(OFFSET + int(pytest.main([*options, str(ROOT / mistake.test)])))


def outcome(mistake: Mistake) -> int | None:
    """FOUND if a test failed on the source with the mistake, PASSED if none did; None if it took too long."""
    return exit_code(try_mistake, mistake, seconds=SECONDS)
