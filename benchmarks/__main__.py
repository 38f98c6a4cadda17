"""Timings as ratios within one run: `python -m benchmarks [--only ROW ...] [--check]`.

Every row times its functions in turn, so that a noisy moment meets all of them, and states medians and their ratio.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.rows import Row
from src.runs.files import write_whole

ROWS = {
    "sas": "benchmarks.steps",
    "bayesian_sas": "benchmarks.steps",
    "bits": "benchmarks.steps",
    "epochs": "benchmarks.training",
    "loading": "benchmarks.training",
    "mixed_precision": "benchmarks.training",
    "bayesian_gplvm": "benchmarks.bayesian_gplvm",
    "svgp_vae": "benchmarks.svgp_vae",
    "casale_gp_vae": "benchmarks.svgp_vae",
    "autogp": "benchmarks.autogp",
    "memory": "benchmarks.growth",
    "growth": "benchmarks.growth",
    "scale": "benchmarks.scale",
    "geodesics": "benchmarks.geodesics",
    "sarcos": "benchmarks.sarcos",
    "startup": "benchmarks.startup",
    "quality": "benchmarks.quality",
}


def main(argv: list[str] | None = None) -> None:
    """Print the rows asked for, keep them as JSON, and with --check fail where one misses its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--check", action="store_true", help="exit with an error that names the rows that miss")
    parser.add_argument("--json", type=Path, default=Path("outputs/benchmarks.json"), metavar="FILE")
    arguments = parser.parse_args(argv)
    if "bayesian_gplvm" in arguments.only and find_spec("pyro") is None:
        parser.error('bayesian_gplvm has Pyro beside it: pip install -e ".[bench]"')
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler, which measures memory, tells of itself
    machine = describe_machine()
    print("  ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    rows = []
    for name in arguments.only:
        for row in rows_of(name):
            rows.append(row)
            print(row, flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    values = [asdict(row) | {"reached": row.reached} for row in rows]
    write_whole(arguments.json, json.dumps({"machine": machine, "rows": values}, indent=1))
    missed = [f"{row.name} against {row.against}" for row in rows if not row.reached]
    if arguments.check and missed:
        sys.exit("missed: " + "; ".join(missed))


def rows_of(name: str) -> Iterator[Row]:
    """The rows of a name, measured one by one."""
    from importlib import import_module

    make: Callable[[], Iterator[Row]] = getattr(import_module(ROWS[name]), name)
    return make()


def describe_machine() -> dict[str, str]:
    """What the numbers depend on."""
    import torch

    packages = ["torch", "gpytorch", "pytorch-lightning", "torchvision", *["pyro-ppl"] * bool(find_spec("pyro"))]
    machine = {"processor": processor(), "cores": str(os.cpu_count()), "threads": str(torch.get_num_threads())}
    return machine | {"python": platform.python_version()} | {package: version(package) for package in packages}


def processor() -> str:
    """The processor's name, where the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
