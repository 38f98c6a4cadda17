"""Evaluate a finished run again, or encode new data with its checkpoint.

`python -m src.evaluate RUN_FOLDER [evaluation.condition_on=4000 ...]`
`python -m src.evaluate RUN_FOLDER --embed new.csv [--out latents.csv]`
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from src.launch.cli import CONF
from src.launch.heavy import heavy
from src.runs import files, identity, record
from src.runs.bars import bars
from src.runs.contents import contents
from src.runs.errors import NumericalError, UserError

MODULES = ("src.training.experiment", "src.evaluation.registry", "src.evaluation.task")
EMBEDDING = ("src.training.experiment", "src.evaluation.embedding", "src.models.capabilities")


def main(arguments: list[str] | None = None) -> None:
    """Load the model of a run and evaluate it on its data, or encode new data with it."""
    parser = argparse.ArgumentParser(
        prog="python -m src.evaluate",
        description="Evaluate a finished run again and store the metrics beside its own, or encode new data (--embed).",
    )
    parser.add_argument("folder", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "overrides",
        nargs="*",
        help="settings to change for this evaluation: evaluation.active_sets=8, evaluation.condition_on=4000, "
        "evaluation.exact_evidence=true, evaluation.evidence_points=10000, evaluation.refine=true, "
        "evaluation.geometry=true, "
        "dataset.missing.fraction=0.5, dataset.max_test=1000, dataset.root=...",
    )
    parser.add_argument(
        "--embed",
        type=Path,
        metavar="FILE",
        help="encode new data with the checkpoint of the run: .csv, .parquet or .h5ad with the columns of the training "
        "data, or .npy or .npz (x); writes means and variances of the latents",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write the latents: .csv, .parquet, .npz or, for an .h5ad file, .h5ad "
        "(default: the folder embeddings of the run)",
    )
    options = parser.parse_intermixed_args(arguments)
    try:
        if options.embed is not None:
            embed(options.folder, options.embed.expanduser(), options.out, options.overrides)
        elif options.out is not None:
            raise UserError(f"--out {options.out} has an effect with --embed only")
        else:
            evaluate_again(options.folder, options.overrides)
    except (UserError, NumericalError) as error:
        sys.exit(f"Error: {error}")


def evaluate_again(folder: Path, overrides: list[str]) -> dict[str, float]:
    """Metrics of a run's model with other settings, stored in `evaluations/`; the run's record does not change."""
    config = checked_contents(identity.plain(overridden(folder, overrides)), overrides)
    experiment, registry, task = map(heavy, MODULES)
    data = experiment.make_data(config)
    subject = task.Subject(experiment.load_model(folder), data, config["evaluation"], config["seed"])
    registry.check(subject.model, data, subject.settings)
    with bars(config["trainer"]["enable_progress_bar"]):
        metrics: dict[str, float] = registry.scores(subject)
    results = folder / "evaluations"
    results.mkdir(exist_ok=True)
    path = results / f"{identity.fingerprint(config)}{suffix(**config['evaluation'])}.json"
    files.write_json(path, {"overrides": overrides, "metrics": metrics})
    print(f"\n{registry.summary(metrics)}\n\nstored in: {path}")
    if asked := [task.name for task in registry.tasks() if f"evaluation.{task.name}=true" in overrides]:
        draw(registry, subject, path.with_suffix(""), asked)
    return metrics


def draw(registry: Any, subject: Any, folder: Path, tasks: Sequence[str]) -> None:
    """Write the figures of tasks that were asked for by their names, as evaluation.geometry=true does."""
    for name, error in registry.draw(subject, folder, tasks).items():
        print(f"A figure of the task {name} could not be drawn: {record.one_line(error)}")
    for picture in sorted(folder.glob("*.png")):
        print(f"figure: {picture}")


def checked_contents(config: identity.Config, overrides: list[str]) -> identity.Config:
    """The config with the digests of its data files; an error if a file has changed since the run was trained."""
    found = contents(config["dataset"])
    for option, digest in (config.get(identity.CONTENT) or {}).items():
        same_file = not any(text.startswith(f"dataset.{option}=") for text in overrides)
        if same_file and found.get(option, digest) != digest:
            path = config["dataset"][option]
            raise UserError(
                f"dataset.{option}={path} has changed since the run was trained: restore it, or train again"
            )
    return {**config, identity.CONTENT: found} if found else config


def embed(folder: Path, source: Path, out: Path | None = None, overrides: Sequence[str] = ()) -> Path:
    """Encode new data with the checkpoint of a run; returns the path of the latents."""
    check_finished(folder)
    if overrides:
        raise UserError(f"{overrides[0]} has no effect on --embed, which needs the checkpoint only")
    experiment, embedding, capabilities = map(heavy, EMBEDDING)
    path: Path = embedding.target(source, out, folder)
    model = experiment.load_model(folder)
    if not isinstance(model, capabilities.HasLatents):
        raise UserError(f"{folder} holds a {type(model).__name__}, which has no latent space: --embed needs one")
    layer = OmegaConf.select(OmegaConf.load(folder / "config.yaml"), "dataset.layer")
    new = embedding.read(source, model.facts, layer if source.suffix == ".h5ad" else None)
    embedding.write(embedding.embed(model, new), source, path)
    print(f"latents of {len(new.rows)} rows: {path}")
    return path


def suffix(
    exact_evidence: bool,
    evidence_points: int | None,
    evidence_precision: str,
    refine: bool | None = None,
    geometry: bool | None = None,
    **others: int,
) -> str:
    """Suffix of the file name with the settings that only add metrics and do not count in the fingerprint."""
    evidence = f"-evidence-{evidence_points or 'all'}-{evidence_precision}" if exact_evidence else ""
    return evidence + "-refined" * bool(refine) + "-geometry" * bool(geometry)


def check_finished(folder: Path) -> None:
    """Raise a UserError if a folder is not that of a finished run."""
    if record.status(folder) != "done":
        raise UserError(f"{folder} is not the folder of a finished run (status: {record.status(folder)})")


def overridden(folder: Path, overrides: list[str]) -> DictConfig:
    """Config of a finished run with some settings of its evaluation or its dataset replaced."""
    check_finished(folder)
    defaults = OmegaConf.load(CONF / "config.yaml")  # for runs that are older than a setting
    known = {"evaluation": defaults.evaluation, "dataset": {"missing": defaults.dataset.missing}}
    config = OmegaConf.merge(known, OmegaConf.load(folder / "config.yaml"))
    OmegaConf.set_struct(config, True)
    for override in overrides:
        if not override.startswith(("evaluation.", "dataset.")) or "=" not in override:
            raise UserError(f"{override}: only evaluation.* and dataset.* can be overridden, as key=value")
        try:
            config = OmegaConf.merge(config, OmegaConf.from_dotlist([override]))
        except OmegaConfBaseException as error:
            raise UserError(f"{override}: {str(error).splitlines()[0]}") from error
    assert isinstance(config, DictConfig)
    return config


if __name__ == "__main__":
    main()
