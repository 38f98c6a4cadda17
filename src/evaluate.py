"""Evaluate a finished run again: `python -m src.evaluate RUN_FOLDER [evaluation.condition_on=4000 ...]`."""

import argparse
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from src.launch.cli import CONF
from src.launch.heavy import heavy
from src.runs import files, identity, record
from src.runs.errors import NumericalError, UserError

MODULES = ("src.training.experiment", "src.evaluation.registry", "src.evaluation.task")


def main(arguments: list[str] | None = None) -> None:
    """Load the model of a run, evaluate it on its data, print the metrics and store them beside the run's own."""
    parser = argparse.ArgumentParser(prog="python -m src.evaluate", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "overrides",
        nargs="*",
        help="settings to change for this evaluation: evaluation.active_sets=8, evaluation.condition_on=4000, "
        "evaluation.exact_evidence=true, evaluation.evidence_points=10000, evaluation.refine=true, "
        "dataset.missing.fraction=0.5, dataset.max_test=1000, dataset.root=...",
    )
    options = parser.parse_args(arguments)
    try:
        evaluate_again(options.folder, options.overrides)
    except (UserError, NumericalError) as error:
        sys.exit(f"Error: {error}")


def evaluate_again(folder: Path, overrides: list[str]) -> dict[str, float]:
    """Metrics of a run's model with other settings, stored in `evaluations/`; the run's record does not change."""
    config = identity.plain(overridden(folder, overrides))
    experiment, registry, task = map(heavy, MODULES)
    data = experiment.make_data(config)
    subject = task.Subject(experiment.load_model(folder), data, config["evaluation"], config["seed"])
    registry.check(subject.model, data, subject.settings)
    metrics: dict[str, float] = registry.scores(subject)
    results = folder / "evaluations"
    results.mkdir(exist_ok=True)
    path = results / f"{identity.fingerprint(config)}{suffix(**config['evaluation'])}.json"
    files.write_json(path, {"overrides": overrides, "metrics": metrics})
    print(f"\n{registry.summary(metrics)}\n\nstored in: {path}")
    return metrics


def suffix(
    exact_evidence: bool, evidence_points: int | None, evidence_precision: str, refine: bool | None, **others: int
) -> str:
    """Suffix of the file name with the settings that only add metrics and do not count in the fingerprint."""
    evidence = f"-evidence-{evidence_points or 'all'}-{evidence_precision}" if exact_evidence else ""
    return evidence + ("-refined" if refine else "")


def overridden(folder: Path, overrides: list[str]) -> DictConfig:
    """Config of a finished run with some settings of its evaluation or its dataset replaced."""
    if record.status(folder) != "done":
        raise UserError(f"{folder} is not the folder of a finished run (status: {record.status(folder)})")
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
