"""Searches with Optuna: ask for the settings of a few runs, launch them as a sweep does, tell their scores.

The folders of the runs are the truth: they say which trials are done, failed or dead. The same command continues a
study. It first launches the trials again that a killed command left behind, which resume from their checkpoints.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from src.launch import cells, hydra_private, sweeps, values
from src.launch.freeze import continue_frozen
from src.launch.heavy import heavy
from src.launch.search_space import Options, Space, space_of
from src.launch.stored_study import count_started, count_states, open_study, settings
from src.runs import files, record, trials
from src.runs.errors import UserError
from src.runs.request import RunRequest
from src.runs.specs import Spec, make

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

STARTS = 2  # a run that dies so often is left to the next command


def start(arguments: list[str]) -> None:
    """Search until the study has its trials, and exit with 1 if it has no result or unfinished trials."""
    os.chdir(os.environ.get(record.HOME, Path.cwd()))
    with hydra_private.config_loader() as loader:
        config = hydra_private.sweep_config(arguments, loader)
        space = space_of(cells.swept(arguments, loader)[0])
    options: Options = make(cast("Spec", OmegaConf.to_container(config.hydra.sweeper, resolve=True)))
    outputs = Path(config.paths.outputs).absolute()
    if record.HOME not in os.environ:
        space.check()
        record.check_writable(outputs)
        continue_frozen(outputs)
    launcher = [text for text in arguments if text.lstrip("+~").startswith("hydra")]
    search = Search(options, space, launcher, outputs)
    try:
        with FileLock(outputs / f".{search.name.replace('/', '-')}.lock", timeout=0):
            search.run()
    except Timeout:
        raise UserError(f"another command works on the study {search.name}") from None
    sys.exit(search.report())


class Search:
    """One study and the runs of its trials."""

    def __init__(self, options: Options, space: Space, launcher: list[str], outputs: Path) -> None:
        self.options, self.space, self.launcher, self.outputs = options, space, launcher, outputs
        self.name = options.study_name or space.name()
        self.config = space.cell({}).config
        self.score = heavy("src.evaluation.search")
        self.metric = self.score.metric_of(self.config)
        self.label = self.score.label(self.metric)
        self.study = open_study(options, self.name, self.metric, self.score.direction(self.metric))
        self.starts: Counter[int] = Counter()  # of each trial, by this command

    def run(self) -> None:
        """Launch a few trials at a time until none is left to do."""
        print(f"study {self.name}: {count_started(self.study)} of {self.options.n_trials} trials so far", flush=True)
        while True:
            if self.tell() and self.config["fail_fast"]:
                return
            batch = self.dead()[: self.options.n_jobs]
            room = min(self.options.n_jobs - len(batch), self.options.n_trials - count_started(self.study))
            batch += [self.asked() for _ in range(room)]
            if not batch:
                return
            self.launch(batch)

    def asked(self) -> "tuple[FrozenTrial, RunRequest]":
        """A new trial and its run."""
        try:
            number = self.study.ask(self.space.distributions()).number
        except ValueError as error:  # of choices that differ from those of the stored trials
            raise UserError(f"{error} Choose another hydra.sweeper.study_name.") from error
        trial = self.study.trials[number]
        return trial, self.space.cell(trial.params)

    def running(self) -> "Iterator[tuple[FrozenTrial, RunRequest]]":
        """Trials without a score, and their runs."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
            yield trial, self.space.cell(trial.params)

    def dead(self) -> "list[tuple[FrozenTrial, RunRequest]]":
        """Trials on whose runs nobody works."""
        pairs = [(trial, cell) for trial, cell in self.running() if cell.status != "running"]
        return [(trial, cell) for trial, cell in pairs if self.starts[trial.number] < STARTS]

    def launch(self, batch: "list[tuple[FrozenTrial, RunRequest]]") -> None:
        """Launch the runs of trials; those that cannot start fail. Trials may share a run."""
        problems = values.rejected([cell for _, cell in batch])
        todo: dict[Path, RunRequest] = {}
        for trial, cell in batch:
            self.starts[trial.number] += 1
            if cell.folder in problems:
                self.fail(trial, problems[cell.folder])
            elif cell.status != "done" or cell.config["rerun"]:
                self.options.assign(cell.folder, self.name, trial.number)
                record.withdraw_stop(cell.folder)
                todo[cell.folder] = cell
        sweeps.fetch_data(list(todo.values()))
        sweeps.launch_all(list(todo.values()), self.launcher, self.outputs)
        for folder in todo:
            trials.release(folder)

    def tell(self) -> bool:
        """Tell the study what has ended; returns whether anything failed. Pruned runs have told it themselves."""
        failed = False
        for trial, cell in self.running():
            if cell.status == "done":
                score = self.score.score(files.read_json(cell.folder / "metrics.json"), self.metric)
                self.study.tell(trial.number, score)
                print(f"trial {trial.number}: {self.label} {score:.6g}  {settings(trial)}", flush=True)
            elif cell.status == "failed":
                self.fail(trial, files.read_json(cell.folder / "record.json").get("error", ""))
                failed = True
        return failed

    def fail(self, trial: "FrozenTrial", reason: str) -> None:
        """Record a trial as failed; the search goes on."""
        from optuna.trial import TrialState

        self.study.tell(trial.number, state=TrialState.FAIL)
        print(f"trial {trial.number}: failed, {reason}  {settings(trial)}", file=sys.stderr, flush=True)

    def report(self) -> int:
        """Print how the trials ended and which is best; returns the exit code."""
        counts = count_states(self.study)
        print(f"\n{counts.total()} trials: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
        if counts["running"]:
            print("The same command resumes trials whose runs have stopped, and counts those that end elsewhere.")
        if counts["complete"]:
            best = self.study.best_trial
            print(f"best: trial {best.number}, {self.label} {best.value:.6g}  {settings(best)}")
            print(f"run folder: {self.space.cell(best.params).folder}")
        return 0 if counts["complete"] and not counts["running"] else 1
