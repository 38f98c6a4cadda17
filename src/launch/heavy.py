"""Imports that take seconds, torch and Lightning: done when a run needs them, not when a command starts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any


def heavy(module: str) -> Any:
    """Import a module that loads torch and Lightning."""
    if "torchmetrics" not in sys.modules:
        load_torchmetrics()
    return import_module(module)


def load_torchmetrics() -> None:
    """Import torchmetrics, which Lightning needs, without scipy and without a torchvision that does not work.

    At its import torchmetrics loads scipy.signal for an audio metric. Without it the imports of a run took 5.5 s in
    place of 8.0 s (medians of four in alternation, two cores; hiding torchvision or matplotlib too gained nothing).
    """
    works = can_be_imported("torchvision")
    with hidden("scipy"):
        if works:
            import_module("torchmetrics")
        else:
            with not_installed("torchvision"), hidden("torchvision"):
                import_module("torchmetrics")


def can_be_imported(package: str) -> bool:
    """Whether a package is installed and intact. A torchvision built for another torch raises a RuntimeError."""
    try:
        import_module(package)
    except Exception:
        return False
    return True


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Let imports of a package fail in the body. Afterwards all is as before, also what Lightning has cached."""
    from lightning_utilities.core.imports import module_available, package_available

    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    if loaded:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own way to say that it cannot be imported
    try:
        yield
    finally:
        del sys.modules[package]
        package_available.cache_clear()
        module_available.cache_clear()


@contextmanager
def not_installed(package: str) -> Iterator[None]:
    """Tell Lightning that a package is not installed; only for one that cannot be imported, so that it stays true.

    Lightning trusts the version number of an installed package, and would fail at its import.
    """
    from lightning_utilities.core import imports

    def version(distribution_name: str) -> str:
        if distribution_name == package:
            raise PackageNotFoundError(distribution_name)
        return installed_version(distribution_name)

    imports._version = version
    try:
        yield
    finally:
        imports._version = installed_version
