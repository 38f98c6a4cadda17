"""What all models share."""

import math
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback, Trainer
from src.training.callbacks import History
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from src.models.base import FALL_FROM, fallen
from src.models.sas import SAS
from src.runs.errors import UserError
from src.training.experiment import make_data, make_model, make_trainer
from tests.configs import composed
from tests.training.test_experiment import run


@pytest.mark.parametrize("start", FALL_FROM.values())
def test_rates_stay_then_fall_along_half_a_cosine(start: float) -> None:
    end = 0.0 if start < 1 else 1.0
    assert fallen(0.0, start) == fallen(start, start) == 1 and fallen(1.0, start) == pytest.approx(end, abs=1e-15)
    if start < 1:
        assert fallen((1 + start) / 2, start) == pytest.approx(0.5)
        assert fallen(start + (1 - start) / 3, start) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 3))


@pytest.mark.parametrize("schedule", FALL_FROM)
def test_every_step_has_its_rates(schedule: str, tmp_path: Path) -> None:
    """Of nets, of the GP and of free latents, each from its own start, also in a training that goes on."""
    overrides = ["model=sas", "model.amortised=false", "active_set=a50", "optimizer.lr=0.01", "trainer.max_epochs=4"]
    config = composed(*overrides, f"optimizer.schedule={schedule}", "trainer.enable_progress_bar=false")
    data = make_data(config)
    optimizer, steps, seen = config["optimizer"], 4 * len(data.train_dataloader()), []

    class Rates(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
            seen.append([group["lr"] for group in trainer.optimizers[0].param_groups])

        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.global_step == steps // 2:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    def rates(checkpoint: Path | None) -> list[list[float]]:
        seen.clear()
        model = make_model(config, data).train()
        model.initialise(data)
        trainer = make_trainer(config, History(tmp_path / "history.csv"), tmp_path, Rates())
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        return list(seen)

    factors = (optimizer["gp_lr_factor"], optimizer["latent_lr_factor"])
    expected = [[fallen(k / steps, FALL_FROM[schedule]) * 0.01 * factor for factor in factors] for k in range(steps)]
    assert rates(None) == [pytest.approx(step) for step in expected]
    assert rates(tmp_path / "half.ckpt") == [pytest.approx(step) for step in expected[steps // 2 :]]


def test_a_model_may_have_an_optimiser_and_rates_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configure(self: SAS) -> Any:
        optimizer = SGD(self.parameters(), 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 1, 0.5), "interval": "epoch"}}

    monkeypatch.setattr(SAS, "configure_optimizers", configure)
    config = composed("model=sas", "active_set=a50", "trainer.max_epochs=2", "trainer.enable_progress_bar=false")
    data = make_data(config)
    model = make_model(config, data).train()
    model.initialise(data)
    trainer = make_trainer(config, History(tmp_path / "history.csv"), tmp_path)
    trainer.fit(model, datamodule=data)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.125


def test_an_unknown_schedule_is_refused(tmp_path: object) -> None:
    config = composed("optimizer.schedule=linear", "trainer.max_epochs=1", f"paths.outputs={tmp_path}")
    with pytest.raises(UserError, match=r"optimizer\.schedule=linear is none of cosine, late, constant"):
        run(config, "sas", "digits")
