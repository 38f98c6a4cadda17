"""Tables, figures and one page from finished runs: `python -m src.report [outputs]`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from src.runs.errors import UserError

if TYPE_CHECKING:
    from src.report.records import Records, Run
    from src.report.tables import Table

FILES = {"md": "tables.md", "csv": "tables.csv", "latex": "tables.tex", "html": "index.html", "json": "runs.json"}


def main(argv: list[str] | None = None) -> None:
    """Write the report, compare two runs, run one again, or fill the tables of texts."""
    options = arguments(argv)
    try:
        if options.verify:
            verify(options)
        elif options.compare:
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
        description="Tables, figures and one page from the records of runs. Only --verify trains anything.",
        epilog="RUN is the folder of a run, its name, or the end of its name, such as the fingerprint.",
    )
    parser.add_argument(
        "outputs",
        nargs="?",
        type=Path,
        default=Path("outputs"),
        help="the folder of the runs (default: %(default)s), or a runs.json",
    )
    parser.add_argument(
        "--also",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUNS",
        help="more folders of runs, or more files; of a run in several places, the first that is finished counts",
    )
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="folder of the report (default: report/ beside the runs), or of the run of --verify (default: temporary)",
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
        help="only the cells of a sweep: its name and overrides, as in `python -m src.train +sweep=NAME OVERRIDE ...`, "
        "or overrides alone, as in `python -m src.train -m model=sas,vae seed=0,1`",
    )
    add_table_options(parser)
    parser.add_argument("--explore", nargs="+", metavar="RUN", help="runs to show in the latent explorer of the page")
    add_other_uses(parser)
    options = parser.parse_args(argv)
    if options.also and (options.compare or options.verify):
        parser.error("--also has no effect on --compare and --verify")
    return options


def add_other_uses(parser: argparse.ArgumentParser) -> None:
    """Options that do something else than to write a report."""
    parser.add_argument(
        "--compare", nargs=2, metavar="RUN", help="print the settings that differ between two runs, and their metrics"
    )
    parser.add_argument(
        "--verify",
        nargs=2,
        metavar=("RUNS", "RUN"),
        help="run a stored run again by its own command, and compare the scores: a runs.json or folder, and the run",
    )
    parser.add_argument(
        "--fill",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="renew the tables of Markdown files, each between <!-- table NAME --> and <!-- end of table -->",
    )


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Options of a table of one's own."""
    keys = "settings by their names or the ends of their names, such as model,active_set,optimizer.lr"
    parser.add_argument("--rows", type=names, metavar="KEYS", help=f"print a table with these rows: {keys}")
    parser.add_argument("--columns", type=names, metavar="KEYS", help="its columns, likewise (default: dataset)")
    parser.add_argument("--metric", type=names, metavar="NAMES", help="its metrics, such as rmse,accuracy_1nn")
    parser.add_argument(
        "--where", nargs="+", metavar="KEY=VALUE", help="only runs with these settings, as in trainer.max_epochs=30"
    )


def names(text: str) -> list[str]:
    """A list of names."""
    return text.split(",")


def home(outputs: Path) -> Path:
    """The folder of the runs, or of the file that holds them."""
    return outputs if outputs.is_dir() else outputs.parent


def formats(text: str) -> list[str]:
    """A list of formats."""
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in FILES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no format {unknown[0]}: choose from {', '.join(FILES)}")
    return chosen


def compare(outputs: Path, *wanted: str) -> None:
    """Print two runs side by side."""
    from src.report import comparison, records

    print(comparison.text(*(records.find(outputs, run) for run in wanted)))


def verify(options: argparse.Namespace) -> None:
    """Run a run again; exit with 1 if its scores are others now."""
    from src.report import verify

    stored_in, run = options.verify
    if not verify.verify(Path(stored_in), run, options.to):
        sys.exit(1)


def read(outputs: Path, options: argparse.Namespace) -> "Records":
    """The requested runs, and what was skipped."""
    from src.report import archive, keys, records

    places = [outputs, *options.also]
    found = records.together(
        records.Records(archive.read(place), {}) if place.is_file() else records.read(place) for place in places
    )
    runs = sweep_runs(found.runs, *options.sweep) if options.sweep else found.runs
    if not runs:
        raise UserError(f"there is no run in {' or '.join(map(str, places))}")
    return found._replace(runs=keys.chosen(runs, options.where or []))


def fill_texts(options: argparse.Namespace) -> None:
    """Renew the tables of texts; if one of them cannot be filled, no file is written."""
    from src.report.fill import fill
    from src.runs.files import write_whole

    found = read(options.outputs, options)
    texts = {path: fill(path, found.runs) for path in options.fill}
    for path, text in texts.items():
        write_whole(path, text)
    tell(found.skipped, found.runs, [], list(texts))


def report(outputs: Path, folder: Path, options: argparse.Namespace) -> None:
    """Write the requested formats, and print where they are and what was skipped."""
    from src.report import archive, tables
    from src.runs.files import write_whole

    found = read(outputs, options)
    found = found._replace(skipped={**found.skipped, **tables.left_out(found.runs)})
    shown = shown_runs(outputs, found.runs, options.explore)
    own = own_tables(found.runs, options)
    filled = [*own, *all_tables(found.runs, bool(options.sweep))]
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(filled, folder, options.format)
    if "json" in options.format:
        write_whole(folder / FILES["json"], archive.text(found.runs))
    if {"latex", "html"} & set(options.format):
        from src.report import figures

        drawn = figures.draw(found.runs, shown, folder / "figures")
    if "html" in options.format:
        from src.report import page, page_tables

        tabled = page_tables.tables_of_page(found.runs, own, bool(options.sweep))
        write_whole(folder / FILES["html"], page.page(outputs, found, shown, tabled, drawn))
    tell(found.skipped, found.runs, shown, [folder / FILES[name] for name in options.format])


def own_tables(runs: "list[Run]", options: argparse.Namespace) -> "list[Table]":
    """The table that the options ask for, which is printed too; none if they ask for none."""
    if not (options.rows or options.columns or options.metric):
        return []
    from src.report import own, terminal

    table = own.own_table(runs, options.rows, options.columns, options.metric)
    print(f"{terminal.text(table)}\n")
    return [table]


def all_tables(runs: "list[Run]", sweep: bool) -> "list[Table]":
    """The papers' tables, the hidden values, the evidence and the table of all runs."""
    from src.report.evidence import evidence_table
    from src.report.imputation import imputation_table
    from src.report.settings import settings_table
    from src.report.tables import paper_tables

    own = [table for table in (imputation_table(runs), evidence_table(runs)) if table]
    return [*paper_tables(runs, sweep), *own, settings_table(runs)]


def write_tables(filled: "list[Table]", folder: Path, chosen: list[str]) -> None:
    """Write the tables as text."""
    from src.report.formats import csv_text, latex, markdown
    from src.runs.files import write_whole

    for name, write in (("md", markdown), ("csv", csv_text), ("latex", latex)):
        if name in chosen:
            write_whole(folder / FILES[name], write(filled))


def shown_runs(outputs: Path, runs: "list[Run]", wanted: list[str] | None) -> "list[Run]":
    """The runs of maps and explorer: the requested ones, or one per model and dataset; none for a file of runs."""
    from src.report import records

    if wanted:
        return [records.find(outputs, run) for run in wanted]
    return [] if outputs.is_file() else records.representatives(runs)


def sweep_runs(found: "list[Run]", *sweep: str) -> "list[Run]":
    """The runs of a sweep by its name and overrides, or by overrides alone; a wrong one is a UserError."""
    from hydra.errors import HydraException

    from src.report import records

    first, *overrides = sweep
    if wrong := [text for text in overrides if "=" not in text]:
        raise UserError(f"--sweep {first} takes overrides such as trainer.max_epochs=20: put {wrong[0]} before --sweep")
    try:
        return records.of_sweep(found, [first if "=" in first else f"+sweep={first}", *overrides])
    except HydraException as error:
        raise UserError(f"--sweep {first}: {str(error).splitlines()[0]}") from error


def tell(skipped: dict[str, str], runs: "list[Run]", shown: "list[Run]", paths: list[Path]) -> None:
    """Print what is in the report, what was skipped, and where the files are."""
    from collections import Counter

    counts = Counter(run.status for run in runs)
    print(f"{len(runs)} runs: " + ", ".join(f"{count} {status}" for status, count in counts.most_common()))
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}")
    for run in shown:
        if not (run.folder / "explorer.npz").exists():
            print(f"no latent map of {run.name}: no explorer.npz, which runs with latents write")
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
