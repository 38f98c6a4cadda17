"""SARCOS: the inverse dynamics of a robot arm with seven joints (Vijayakumar & Schaal, 2000)."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from typing_extensions import Unpack

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles, matlab
from src.data.module import Options

ADDRESS = "http://www.gaussianprocess.org/gpml/data/sarcos_inv_test.mat"
JOINTS = range(1, 8)


class Sarcos(FromFiles):
    """3,559 + 890 points, [N, 21]: positions, velocities and accelerations; the targets are seven torques [N, 7].

    These are the 4,449 rows of the public test file, split 80/20, the same in every run. With `standardise`,
    each input and each torque has mean 0 and sd 1 over the training rows (Rasmussen & Williams, 2006, standardise the
    inputs); without it, they are as in the file, as AutoGP uses them.
    """

    files = sources.FileSet(
        "SARCOS",
        "tables",
        {"sarcos_inv_test.mat": "16457799b816f22238e6dc7301c751f6"},
        {ADDRESS: partial(fetching.web_files, {"sarcos_inv_test.mat": ADDRESS})},
    )
    columns = tuple(f"{what} {joint}" for what in ("position", "velocity", "acceleration") for joint in JOINTS)

    def __init__(self, root: str | Path, standardise: bool = True, **options: Unpack[Options]) -> None:
        super().__init__(root, **options)
        self.standardise = standardise

    def load(self) -> tuple[Split, Split]:
        """A random fifth of the rows, drawn with a constant seed, is the test split."""
        rows = torch.from_numpy(matlab(self.contents()["sarcos_inv_test.mat"])["sarcos_inv_test"].astype(np.float32))
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        (x_test, x), (y_test, y) = (t[order].tensor_split([round(len(rows) / 5)]) for t in rows.split([21, 7], 1))
        if self.standardise:
            y, y_test = ((torques - y.mean(0)) / y.std(0, correction=0) for torques in (y, y_test))
        return split_of(x, y), split_of(x_test, y_test)
