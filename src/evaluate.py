"""Evaluate a finished run again: `python -m src.evaluate RUN_FOLDER [evaluation.condition_on=4000 ...]`."""

import argparse
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from src.launch.cli import CONF, heavy
from src.runs import record as runs
from src.runs.errors import NumericalError, UserError

EVALUATION = ("training.experiment", "evaluation.registry", "evaluation.task")  # loads torch


def main(arguments: list[str] | None = None) -> None:
    """Load the run's model, evaluate it on its data, print the metrics and keep them beside the run's own."""
    parser = argparse.ArgumentParser(prog="python -m src.evaluate", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "overrides",
        nargs="*",
        help="settings that differ from the run's own: evaluation.active_sets=8, evaluation.condition_on=4000, "
        "evaluation.exact_evidence=true, evaluation.evidence_points=10000, dataset.max_test=1000, dataset.root=...",
    )
    options = parser.parse_args(arguments)
    try:
        evaluate_again(options.folder, options.overrides)
    except (UserError, NumericalError) as error:
        sys.exit(f"Error: {error}")


def evaluate_again(folder: Path, overrides: list[str]) -> dict[str, float]:
    """The metrics of a run's checkpoint with other settings, kept in `evaluations/`; its record stays as it is."""
    config = runs.plain(overridden(folder, overrides))
    experiment, registry, task = (heavy(f"src.{name}") for name in EVALUATION)
    data = experiment.make_data(config)
    subject = task.Subject(experiment.load_model(folder), data, config["evaluation"], config["seed"])
    registry.check(subject.model, data, subject.settings)
    metrics: dict[str, float] = registry.scores(subject)
    results = folder / "evaluations"
    results.mkdir(exist_ok=True)
    path = results / f"{runs.fingerprint(config)}{evidence_suffix(**config['evaluation'])}.json"
    runs.write_json(path, {"overrides": overrides, "metrics": metrics})
    print(f"\n{registry.summary(metrics)}\n\nkept in: {path}")
    return metrics


def evidence_suffix(exact_evidence: bool, evidence_points: int | None, evidence_precision: str, **others: int) -> str:
    """What the fingerprint does not tell, since it changes no other number."""
    return f"-evidence-{evidence_points or 'all'}-{evidence_precision}" if exact_evidence else ""


def overridden(folder: Path, overrides: list[str]) -> DictConfig:
    """The config of a finished run with some of its evaluation's or dataset's values replaced."""
    if runs.status(folder) != "done":
        raise UserError(f"{folder} is not the folder of a finished run (status: {runs.status(folder)})")
    defaults = OmegaConf.load(CONF / "config.yaml")  # a run may be older than a setting
    config = OmegaConf.merge({"evaluation": defaults.evaluation}, OmegaConf.load(folder / "config.yaml"))
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
