"""Imports that take seconds, torch and Lightning: done when a run needs them, not when a command starts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def heavy(module: str) -> Any:
    """Import a module that loads torch and Lightning."""
    if "torchmetrics" not in sys.modules:
        with suppress(ImportError, AttributeError):  # of a torchmetrics that needs more; Lightning imports it as it is
            load_torchmetrics()
    return import_module(module)


def load_torchmetrics() -> None:
    """Import torchmetrics, which Lightning needs, without scipy, and without torchvision if that does not work."""
    if can_be_imported("torchvision"):
        with stand_in_for_scipy():
            import_module("torchmetrics")
    else:
        with stand_in_for_scipy(), not_installed("torchvision"):
            import_module("torchmetrics")


def can_be_imported(package: str) -> bool:
    """Whether a package is installed and intact. A torchvision built for another torch raises a RuntimeError."""
    try:
        import_module(package)
    except Exception:
        return False
    return True


@contextmanager
def stand_in_for_scipy() -> Iterator[None]:
    """Spare torchmetrics the import of scipy.signal, whose only use there is to add `hamming` if it is missing.

    The imports of a run take 5.6 s with the stand-in and 8.0 s without (medians of four, in alternation, two cores).
    Hiding torchvision or matplotlib too gains nothing. All flags about scipy are evaluated as usual and stay right.
    """
    if "scipy" in sys.modules:
        yield
        return
    scipy, signal = ModuleType("scipy"), ModuleType("scipy.signal")
    vars(signal).update(hamming=None)
    vars(scipy).update(signal=signal, __spec__=find_spec("scipy"))
    sys.modules.update({"scipy": scipy, "scipy.signal": signal})
    try:
        yield
    finally:
        del sys.modules["scipy"], sys.modules["scipy.signal"]


@contextmanager
def not_installed(package: str) -> Iterator[None]:
    """Tell Lightning that a package is not installed. Only for a package that cannot be imported, so that it is true.

    Lightning trusts the version number of an installed package, and without this every run fails at its imports.
    """
    from lightning_utilities.core import imports

    def version(distribution_name: str) -> str:
        if distribution_name == package:
            raise PackageNotFoundError(distribution_name)
        return installed_version(distribution_name)

    imports._version = version
    sys.modules[package] = None  # type: ignore[assignment]  # Python's own way to say that it cannot be imported
    try:
        yield
    finally:
        imports._version = installed_version
        del sys.modules[package]
