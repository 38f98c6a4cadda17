"""Gene expression of single cells: qPCR of mouse embryos (Guo et al., 2010), and 700 blood cells of 10x Genomics."""

import csv
import io
from functools import partial

import numpy as np

from src.data import fetching, sources
from src.data.batch import Split
from src.data.files import FromFiles, stratified
from src.runs.errors import UserError

QPCR_ADDRESS = "https://raw.githubusercontent.com/sods/ods/master/datasets/guo_qpcr.csv"


class QPCR(FromFiles):
    """437 cells, [N, 48] as float32: genes with mean 0 and sd 1 in the file itself, labelled by one of ten stages.

    A stratified fifth of the cells is the test split, the same in every run: 349 + 88.
    """

    files = sources.FileSet(
        "qPCR",
        "tables",
        {"guo_qpcr.csv": "b4030a50d615d2298215879143287164"},
        {QPCR_ADDRESS: partial(fetching.web_files, {"guo_qpcr.csv": QPCR_ADDRESS})},
    )

    def load(self) -> tuple[Split, Split]:
        """The first column is the stage; the file has the stages in the order of development."""
        header, *rows = csv.reader(self.contents()["guo_qpcr.csv"].decode().splitlines())
        self.columns, self.classes = tuple(header[1:]), tuple(dict.fromkeys(row[0] for row in rows))
        y = np.array([self.classes.index(row[0]) for row in rows])
        return stratified(np.array([row[1:] for row in rows], np.float32), y)


PBMC_FILE = "10x_pbmc68k_reduced.h5ad"


class PBMC68k(FromFiles):
    """700 blood cells, [N, 765] as float32: genes as scaled in the file's X, labelled by one of ten cell types.

    A stratified fifth of the cells is the test split, the same in every run: 560 + 140.
    """

    files = sources.FileSet(
        "PBMC68k",
        "tables",
        {PBMC_FILE: "eeb6a137329c7f6f1cb5ac2568ffd3aa"},
        {
            "the wheel scanpy by pip": partial(
                fetching.registry_files, "scanpy", {PBMC_FILE: f"scanpy/datasets/{PBMC_FILE}"}
            )
        },
    )

    def load(self) -> tuple[Split, Split]:
        """The file is of an old version of AnnData, in which categories stand apart from their codes."""
        try:
            import h5py
        except ImportError as error:
            raise UserError("dataset=pbmc68k needs h5py: pip install -e '.[tables]'") from error
        with h5py.File(io.BytesIO(self.contents()[PBMC_FILE])) as file:
            self.columns = tuple(name.decode() for name in file["var"]["index"])
            self.classes = tuple(name.decode() for name in file["uns/bulk_labels_categories"])
            return stratified(file["X"][:], file["obs"]["bulk_labels"].astype(np.int64))
