"""Pruning: a run of a search reports its score as it trains, and stops if it falls behind the other trials."""

import math
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytorch_lightning import Callback, LightningModule, Trainer

from src.runs.record import log
from src.runs.trials import Trial
from src.training.checkpoints import Checkpoints
from src.training.dashboards import notice

if TYPE_CHECKING:
    import optuna

REPORTS = 20  # per run


class Pruning(Callback):
    """Stops the run after a checkpoint if its best score so far is worse than the median of the other trials.

    The run is then interrupted, and can be continued by its own command. A study that cannot be reached stops nothing.
    """

    def __init__(self, folder: Path, trial: Trial, score: Callable[[], float]) -> None:
        self.folder, self.trial, self.score = folder, trial, score
        self.is_working = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the times of reports and verdicts by the length of the run, unless the search says otherwise."""
        self.last = trainer.max_epochs or 1
        self.every = self.trial.every or max(self.last // REPORTS, 1)
        self.warmup = self.last // 4 if self.trial.warmup_epochs is None else self.trial.warmup_epochs

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report every few epochs; a run that is at its end has nothing to save."""
        epochs = trainer.current_epoch + 1
        if epochs == self.last or epochs % self.every:
            return
        reason = self.verdict(pl_module, epochs) if trainer.is_global_zero and self.is_working else None
        checkpoints = trainer.checkpoint_callback
        assert isinstance(checkpoints, Checkpoints)
        checkpoints.save_or_stop(trainer, reason, every=math.inf)

    def verdict(self, model: LightningModule, epochs: int) -> str | None:
        """Why to stop, or None. Whatever goes wrong with the study is said once, and the training continues."""
        try:
            return "its trial is pruned" if self.is_behind(model, epochs) else None
        except Exception as error:
            self.is_working = False
            log(self.folder, traceback.format_exc())
            notice(f"the study {self.trial.study} does not answer, and the run will not be pruned: {error}")
            return None

    def is_behind(self, model: LightningModule, epochs: int) -> bool:
        """Report the score, and record the trial as pruned if the pruner says so."""
        import optuna

        recorded = self.study.trials[self.trial.number]
        if recorded.state.is_finished() or epochs in recorded.intermediate_values:  # reported before an interruption
            return False
        model.eval()
        score = self.score()
        model.train()
        trial = optuna.trial.Trial(self.study, recorded._trial_id)
        trial.report(score, epochs)
        if not trial.should_prune():
            return False
        self.study.tell(self.trial.number, state=optuna.trial.TrialState.PRUNED)
        return True

    @cached_property
    def study(self) -> "optuna.Study":
        """The stored study. Its sampler draws nothing here, so that the cheapest one will do."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruner = optuna.pruners.MedianPruner(self.trial.startup_trials, self.warmup)
        sampler = optuna.samplers.RandomSampler()
        return optuna.load_study(
            study_name=self.trial.study, storage=self.trial.storage, sampler=sampler, pruner=pruner
        )
