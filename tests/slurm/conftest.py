"""A real Slurm for the tests that ask for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slurm: needs Slurm, munge and MariaDB; installed and run by `make test-slurm`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slurm" in config.getoption("markexpr"):
        return
    for item in items:
        if item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.skip(reason="needs a Slurm: run by `make test-slurm`"))


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a Slurm that is up for as long as the tests run."""
    folder = tmp_path_factory.mktemp("slurm")
    with cluster.running(folder):
        yield folder
