"""A real Slurm for the tests that ask for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a Slurm that is up for as long as the tests run."""
    folder = tmp_path_factory.mktemp("slurm")
    with cluster.running(folder):
        yield folder
