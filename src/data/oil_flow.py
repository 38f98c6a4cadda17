"""Three-phase oil flow (Bishop & James, 1993): simulated gamma densitometry of a pipe with oil, water and gas."""

from typing import Any

import numpy as np
import torch

from src.data import sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles, matlab


class OilFlow(FromFiles):
    """1,000 + 1,000 points, [N, 12]: two beams each for six lines of sight, labelled by the geometry of the flow.

    Each column is standardised (Lalchand et al., 2022). The 1,000 points of the file's validation part are not used.
    """

    files = sources.FileSet(
        "OilFlow",
        "tables",
        {"oil_flow_3Class.mat": "4e973e88e1898a6e7e82f6871c2033f3"},
        {},
        "it is the file 3Class.mat of Aston University's three-phase data (https://inverseprobability.com/3PhaseData)",
    )
    standardise = True
    columns = tuple(f"beam {number}" for number in range(1, 13))
    classes = ("homogeneous", "annular", "stratified")

    def load(self) -> tuple[Split, Split]:
        """The parts that the file calls Trn and Tst."""
        arrays = matlab(self.contents()["oil_flow_3Class.mat"])
        return oil_split(arrays, "Trn"), oil_split(arrays, "Tst")


def oil_split(arrays: dict[str, Any], part: str) -> Split:
    """The points of one part; their labels are one-hot rows."""
    x, labels = arrays[f"Data{part}"], arrays[f"Data{part}Lbls"]
    return split_of(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels.argmax(1)))
