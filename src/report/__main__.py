"""Tables, figures and one page from finished runs: `python -m src.report [outputs]`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from src.runs.errors import UserError

if TYPE_CHECKING:
    from src.report.records import Records, Run

FILES = {"md": "tables.md", "csv": "tables.csv", "latex": "tables.tex", "html": "index.html", "json": "runs.json"}


def main(argv: list[str] | None = None) -> None:
    """Write the report, or compare two runs, or fill the tables of texts."""
    options = arguments(argv)
    try:
        if options.compare:
            compare(options.outputs, *options.compare)
        elif options.fill:
            fill_texts(options)
        else:
            report(options.outputs, options.to or home(options.outputs) / "report", options)
    except UserError as error:
        sys.exit(f"Error: {error}")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m src.report",
        description="Tables, figures and one page from the records of runs: nothing is trained, evaluated or fetched.",
        epilog="RUN is the path or the name of a run's folder, or the end of its name, such as the fingerprint.",
    )
    parser.add_argument(
        "outputs", nargs="?", type=Path, default=Path("outputs"), help="the runs' folder (%(default)s), or a runs.json"
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where the report goes (default: report/ beside the runs)"
    )
    parser.add_argument(
        "--format",
        type=formats,
        default=list(FILES),
        metavar=",".join(FILES),
        help="what to write (default: all); figures come with latex and html",
    )
    parser.add_argument(
        "--sweep",
        nargs="+",
        metavar=("NAME", "OVERRIDE"),
        help="only the cells of a sweep, as `python -m src.train +sweep=NAME OVERRIDE ...` has them",
    )
    parser.add_argument("--explore", nargs="+", metavar="RUN", help="the runs of the page's latent explorer")
    parser.add_argument(
        "--compare", nargs=2, metavar="RUN", help="print where the settings and metrics of two runs differ"
    )
    parser.add_argument(
        "--fill",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="make the tables of Markdown files anew, each between <!-- table NAME --> and <!-- end of table -->",
    )
    return parser.parse_args(argv)


def home(outputs: Path) -> Path:
    """The folder of the runs, or of the file that holds them."""
    return outputs if outputs.is_dir() else outputs.parent


def formats(text: str) -> list[str]:
    """A list of formats."""
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in FILES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no format {unknown[0]}: choose of {', '.join(FILES)}")
    return chosen


def compare(outputs: Path, *wanted: str) -> None:
    """Print two runs side by side."""
    from src.report import comparison, records

    print(comparison.text(*(records.find(outputs, run) for run in wanted)))


def read(outputs: Path, options: argparse.Namespace) -> "Records":
    """The runs asked for, and what was passed over."""
    from src.report import archive, records

    found = records.Records(archive.read(outputs), {}) if outputs.is_file() else records.read(outputs)
    runs = sweep_runs(found.runs, *options.sweep) if options.sweep else found.runs
    if not runs:
        raise UserError(f"there is no run in {outputs}")
    return found._replace(runs=runs)


def fill_texts(options: argparse.Namespace) -> None:
    """Make the tables of texts anew; none is written where one cannot be."""
    from src.report.fill import fill
    from src.runs.files import write_whole

    found = read(options.outputs, options)
    texts = {path: fill(path, found.runs) for path in options.fill}
    for path, text in texts.items():
        write_whole(path, text)
    tell(found.passed_over, found.runs, [], list(texts))


def report(outputs: Path, folder: Path, options: argparse.Namespace) -> None:
    """Write what was asked for, and say where it is and what was passed over."""
    from src.report import archive, tables
    from src.report.evidence import evidence_table
    from src.report.formats import csv_text, latex, markdown
    from src.report.settings import settings_table
    from src.runs.files import write_whole

    found = read(outputs, options)
    runs = found.runs
    shown = shown_runs(outputs, runs, options.explore)
    papers, evidence = tables.paper_tables(runs, sweep=bool(options.sweep)), evidence_table(runs)
    filled = [*papers, *([evidence] if evidence else []), settings_table(runs)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in (("md", markdown), ("csv", csv_text), ("latex", latex)):
        if name in options.format:
            write_whole(folder / FILES[name], write(filled))
    if "json" in options.format:
        write_whole(folder / FILES["json"], archive.text(runs))
    if {"latex", "html"} & set(options.format):
        from src.report import figures

        drawn = figures.draw(runs, shown, folder / "figures")
    if "html" in options.format:
        from src.report import page

        write_whole(folder / FILES["html"], page.page(outputs, found, shown, filled, drawn))
    tell(found.passed_over, runs, shown, [folder / FILES[name] for name in options.format])


def shown_runs(outputs: Path, runs: "list[Run]", wanted: list[str] | None) -> "list[Run]":
    """The runs of maps and explorer: those asked for, or one a model and dataset; a file of runs has none to show."""
    from src.report import records

    if wanted:
        return [records.find(outputs, run) for run in wanted]
    return [] if outputs.is_file() else records.representatives(runs)


def sweep_runs(found: "list[Run]", name: str, *overrides: str) -> "list[Run]":
    """The runs of a sweep; what goes wrong with its name or overrides is the user's to know."""
    from hydra.errors import HydraException

    from src.report import records

    wrong = [text for text in overrides if "=" not in text]
    if wrong:
        raise UserError(f"--sweep {name} takes overrides such as trainer.max_epochs=20, not {wrong[0]}: put it before")
    try:
        return records.of_sweep(found, name, list(overrides))
    except HydraException as error:
        raise UserError(f"--sweep {name}: {str(error).splitlines()[0]}") from error


def tell(passed_over: dict[str, str], runs: "list[Run]", shown: "list[Run]", paths: list[Path]) -> None:
    """What is in the report, what is not, and where it is."""
    from collections import Counter

    counts = Counter(run.status for run in runs)
    print(f"{len(runs)} runs: " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))
    for name, reason in passed_over.items():
        print(f"passed over {name}: {reason}")
    for run in shown:
        if not (run.folder / "explorer.npz").exists():
            print(f"no latent map of {run.name}: it has no explorer.npz, which newer runs leave")
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
