"""Timings as ratios within one run: `python -m benchmarks [steps] [bayesian_gplvm]`.

Every row times its functions in turn, so that a noisy moment meets all of them, and prints medians and their ratio.
"""

import argparse
import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from benchmarks import bayesian_gplvm, steps

TABLES = {"steps": steps.table, "bayesian_gplvm": bayesian_gplvm.table}


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"which: {', '.join(TABLES)} (default: all)")
    names = parser.parse_args().tables or list(TABLES)
    if unknown := set(names) - TABLES.keys():
        parser.error(f"there is no table {', '.join(sorted(unknown))}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    for name in names:
        TABLES[name](medians)


def medians(*functions: Callable[[], None], repeats: int = 15, warm_up: int = 2) -> list[float]:
    """The median seconds of each function."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + warm_up):
        for function, record in zip(functions, times, strict=True):
            start = perf_counter()
            function()
            record.append(perf_counter() - start)
    return [median(record[warm_up:]) for record in times]


if __name__ == "__main__":
    main()
