"""How models learn: seeds and rates of every step, phases, and optimisers that evaluate a step several times."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.optim import LBFGS, SGD
from torch.optim.lr_scheduler import StepLR

from src.models.base import Model
from src.models.learning import shown
from src.models.optimizers import FALL_FROM, Phased, rates_left
from src.models.phases import Phase
from src.models.sas import SAS
from src.models.vae import VAE
from src.runs.errors import NumericalError, UserError
from src.training.experiment import make_data, make_model
from src.training.history import History
from src.training.trainer import make_trainer
from tests.configs import composed
from tests.models.builders import Given, built, far_curve, rows
from tests.models.test_base import sas
from tests.training.two_phases import OVERRIDES as TWO_PHASES

SMALL = ["dataset.max_train=120", "dataset.max_test=20", "active_set.size=20", "trainer.enable_progress_bar=false"]
HALVES = [*SMALL, "dataset.batch_size=60"]
FULL = [*SMALL, "dataset.batch_size=full"]
COLLAPSED = ["model=bayesian_gplvm", "model.bound=collapsed", "model.num_inducing=15", "model.amortised=false", *FULL]


class Spy(Callback):
    """Keeps what a function says of the model after every step."""

    def __init__(self, look: Any) -> None:
        self.look = look
        self.seen: list[Any] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.seen.append(self.look(pl_module))


def trained(folder: Path, *overrides: str, spy: Callback | None = None, checkpoint: Path | None = None) -> Any:
    """A trained model and the rows of its history."""
    config = composed(*overrides)
    data = make_data(config)
    model = make_model(config, data).train()
    model.initialise(data)
    history = History(folder / "history.csv")
    trainer = make_trainer(config, history, folder, *([spy] if spy else []))
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return model, history.rows


def made(*overrides: str) -> Model:
    config = composed(*overrides)
    return make_model(config, make_data(config))


def test_the_seed_of_a_step_differs_by_step_rank_and_run() -> None:
    """Processes that train together must not draw the same noise."""
    model = made(*HALVES)
    seeds = [model.step_seed(seed, step, rank) for seed in (0, 1) for step in (0, 1) for rank in (0, 1)]
    assert len(set(seeds)) == 8
    assert model.step_seed(0, 1, 0) == seeds[2]


def test_random_numbers_are_those_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(rank: int, step: int) -> float:
        model = made(*HALVES)
        monkeypatch.setattr(type(model), "global_rank", rank)
        model.seed_step(step)
        return torch.rand(()).item()

    assert drawn(0, 3) == drawn(0, 3)
    assert len({drawn(0, 3), drawn(1, 3), drawn(0, 4), drawn(1, 4)}) == 4


@pytest.mark.parametrize("schedule", FALL_FROM)
def test_every_step_has_its_rates(schedule: str, tmp_path: Path) -> None:
    """Those of the GP and of free latents, each from its own start, also in a training that is resumed."""
    overrides = ["model=sas", "model.amortised=false", "optimizer.lr=0.01", "trainer.max_epochs=4", *HALVES]
    overrides.append(f"optimizer.schedule={schedule}")
    optimizer, steps = composed(*overrides)["optimizer"], 8

    class Rates(Callback):
        def __init__(self) -> None:
            self.seen: list[list[float]] = []

        def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
            self.seen.append([group["lr"] for group in trainer.optimizers[0].param_groups])

        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.global_step == steps // 2:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    factors = (optimizer["gp_lr_factor"], optimizer["latent_lr_factor"])
    expected = [[rates_left(k / steps, schedule) * 0.01 * factor for factor in factors] for k in range(steps)]
    for checkpoint, first in ((None, 0), (tmp_path / "half.ckpt", steps // 2)):
        trained(tmp_path, *overrides, spy=(rates := Rates()), checkpoint=checkpoint)
        assert rates.seen == [pytest.approx(step) for step in expected[first:]]


def test_a_model_may_have_an_optimiser_and_rates_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configure(self: SAS) -> Any:
        optimizer = SGD(self.parameters(), 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 1, 0.5), "interval": "epoch"}}

    monkeypatch.setattr(SAS, "configure_optimizers", configure)
    model, _ = trained(tmp_path, "model=sas", "trainer.max_epochs=2", *HALVES)
    assert model.trainer.optimizers[0].param_groups[0]["lr"] == 0.125


def test_a_phase_moves_its_own_parameters_only(tmp_path: Path) -> None:
    """The others get no gradient either; afterwards everything can learn again."""

    def look(model: VAE) -> tuple[int, dict[str, torch.Tensor], set[str]]:
        values = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        with_gradient = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
        return model.phase_number, values, with_gradient

    spy = Spy(look)
    model, _ = trained(tmp_path, "model=vae", *TWO_PHASES, *HALVES, spy=spy)
    assert isinstance(model.trainer.optimizers[0], Phased)
    assert [phase for phase, *_ in spy.seen] == [0, 0, 0, 0, 1, 1, 0, 0]
    for (_, before, _), (phase, after, with_gradient) in zip(spy.seen, spy.seen[1:], strict=False):
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        allowed = {name for name in before if model.phases[phase].has(name)}
        assert moved == with_gradient == allowed
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_rates_of_a_phase_follow_its_own_schedule(tmp_path: Path) -> None:
    spy = Spy(lambda model: model.trainer.optimizers[0].param_groups[0]["lr"])
    trained(tmp_path, "model=vae", *TWO_PHASES, *HALVES, "optimizer.lr=0.01", spy=spy)
    cosine = [0.01 * rates_left(step / 8, "cosine") for step in range(8)]
    assert spy.seen == pytest.approx([*cosine[:4], 1e-3, 1e-3, *cosine[6:]])


def test_rows_name_the_phase_and_keep_all_columns(tmp_path: Path) -> None:
    _, rows = trained(tmp_path, "model=vae", *TWO_PHASES, *HALVES)
    assert [row["phase"] for row in rows] == [0, 0, 1, 0]
    assert "kl" in rows[0] and "kl" not in rows[2] and rows[2]["mean_fit"] == pytest.approx(-rows[2]["loss"])
    lines = [line.split(",") for line in (tmp_path / "history.csv").read_text().splitlines()]
    assert lines[0] == ["epoch", "step", "seconds", "phase", "loss", "fit", "kl", "jitter", "mean_fit"]
    assert [line[-1] == "nan" for line in lines[1:]] == [True, True, False, True]
    _, rows = trained(tmp_path, "model=vae", "trainer.max_epochs=1", *HALVES)
    assert "phase" not in rows[0]


def test_a_phase_that_cannot_be_trained_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VAE, "phases", (Phase(epochs=1), Phase(epochs=1, parameters=("decoder",))))
    with pytest.raises(UserError, match="phase 1 of VAE trains parameters whose names begin with 'decoder'"):
        made("model=vae", *HALVES)


def test_all_evaluations_of_a_step_see_the_same_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And other steps see others."""
    drawn: dict[int, list[float]] = {}
    objective = VAE.objective

    def drawing(model: VAE, batch: Any) -> Any:
        state = torch.get_rng_state()
        drawn.setdefault(model.global_step, []).append(torch.rand(()).item())
        torch.set_rng_state(state)
        return objective(model, batch)

    monkeypatch.setattr(VAE, "objective", drawing)
    trained(tmp_path, "model=vae", "optimizer=lbfgs", "trainer.max_epochs=3", *FULL)
    assert all(len(numbers) > 1 and len(set(numbers)) == 1 for numbers in drawn.values())
    assert len({numbers[0] for numbers in drawn.values()}) == 3


def test_a_row_is_the_loss_where_its_step_began(tmp_path: Path) -> None:
    """L-BFGS evaluates further points; the row is that of the parameters that the step started from."""
    config = composed(*COLLAPSED, "optimizer=lbfgs", "trainer.max_epochs=2")
    data = make_data(config)
    model = make_model(config, data)
    model.initialise(data)
    before = model.objective(data.train.all()).loss.item()
    after, rows = trained(tmp_path, *COLLAPSED, "optimizer=lbfgs", "trainer.max_epochs=2")
    assert isinstance(after.trainer.optimizers[0], LBFGS)
    assert rows[0]["loss"] == pytest.approx(before, rel=1e-5)
    assert rows[0]["loss"] == pytest.approx(-rows[0]["likelihood"] - rows[0]["kl"], rel=1e-4)
    assert after.objective(data.train.all()).loss.item() < rows[1]["loss"] < rows[0]["loss"]


def test_twenty_steps_of_lbfgs_are_worth_more_than_twenty_of_adam(tmp_path: Path) -> None:
    """For the collapsed Bayesian GP-LVM with free latents."""
    double = "trainer.precision=64-true"
    losses = {}
    for name in ("lbfgs", "adam"):
        _, rows = trained(tmp_path, *COLLAPSED, f"optimizer={name}", "trainer.max_epochs=20", double)
        losses[name] = [row["loss"] for row in rows]
    assert losses["lbfgs"][0] == pytest.approx(losses["adam"][0], rel=1e-9)
    assert losses["lbfgs"][-1] < losses["adam"][-1] - 0.1 < losses["adam"][0]
    assert all(later <= earlier for earlier, later in zip(losses["lbfgs"], losses["lbfgs"][1:], strict=False))


def test_lbfgs_is_rejected_with_mini_batches_and_with_fresh_data() -> None:
    with pytest.raises(UserError, match=r"L-BFGS needs all 120 points in every batch \(dataset.batch_size=full\)"):
        made("model=sas", "optimizer=lbfgs", *HALVES)
    with pytest.raises(UserError, match=r"L-BFGS needs the same data in every step: set dataset.fresh=false"):
        made("model=sas", "dataset=moving_ball", "optimizer=lbfgs")


@pytest.mark.parametrize(
    "optimizer",
    [["optimizer=lbfgs"], ["optimizer.algorithm._target_=torch.optim.SGD"]],
    ids=["lbfgs", "sgd"],
)
def test_geco_is_rejected_with_optimisers_whose_moments_it_cannot_rescale(optimizer: list[str]) -> None:
    geco = ["model=svgp_vae", "model.geco=0.02", "model.num_inducing=15", *FULL]
    with pytest.raises(UserError, match="use optimizer=adam or optimizer=adamw"):
        made(*geco, *optimizer)
    for name in ("adam", "adamw"):
        assert made(*geco, f"optimizer={name}")


def noise_of_step(model: Any, step: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.setattr(SAS, "global_rank", property(lambda self: rank))
    torch.manual_seed(123)  # whatever happened before
    model.seed_step(step)
    return torch.randn(3)


def test_random_numbers_are_a_function_of_seed_step_and_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Given(far_curve(12))
    places = [(0, 0, 0), (0, 1, 0), (0, 250, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 1)]
    first, again = (
        [noise_of_step(sas(data, f"seed={seed}"), step, rank, monkeypatch) for seed, step, rank in places]
        for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({tuple(noise.tolist()) for noise in first}) == len(places)


def test_a_step_in_between_has_the_numbers_of_a_run_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Given(far_curve(12))
    from_start, resumed = sas(data), sas(data)
    numbers = [noise_of_step(from_start, step, 0, monkeypatch) for step in range(120)]
    assert torch.equal(noise_of_step(resumed, 117, 0, monkeypatch), numbers[117])


def test_a_loss_that_is_no_number_stops_with_the_hyperparameters() -> None:
    data = Given(far_curve(12))
    model = sas(data, amortised=False)
    batch = rows(data)
    batch.x = batch.x.masked_fill(torch.eye(12, 3, dtype=torch.bool), math.nan)
    with pytest.raises(NumericalError, match=r"the loss is nan at step 0; hyperparameters: .*outputscale = \["):
        model.training_step(batch, 0)


def test_a_covariance_without_a_factor_stops_with_the_hyperparameters() -> None:
    data = Given(far_curve(12))
    model = sas(data, amortised=False)
    with torch.no_grad():
        model.latents.mean.weight.fill_(math.nan)
    with pytest.raises(NumericalError, match=r"no Cholesky factor.*hyperparameters: .*noise = "):
        model.training_step(rows(data), 0)


def test_hyperparameters_are_printed_as_a_person_reads_them() -> None:
    model = sas(Given(far_curve(12)), noise=0.25)
    model.kernel.outputscale, model.kernel.base_kernel.lengthscale = 1.5, 0.5
    text = model.describe_gp()
    assert text.startswith("hyperparameters: ") and "raw" not in text
    numbers = dict(part.split(" = ") for part in text.removeprefix("hyperparameters: ").split(", "))
    values = {name.split(".")[-1]: float(value.strip("[]")) for name, value in numbers.items()}
    assert values == pytest.approx({"outputscale": 1.5, "lengthscale": 0.5, "noise": 0.25}, rel=1e-5)
    assert shown(torch.linspace(0.5, 28.25, 784)) == "0.5 to 28.2 (784 values)"


def test_every_parameter_has_one_rate() -> None:
    model = built(Given(far_curve(12)), "bayesian_sas", "active_set.size=4", amortised=False)
    nets, gp, free = model.rates(Phase())
    assert len(nets) == 0 and len(gp) == 3 and len(free) == 2
    amortised = sas(Given(far_curve(12)))
    nets, gp, free = amortised.rates(Phase())
    assert len(nets) == 2 and len(gp) == 3 and free == []
    assert {id(p) for p in [*nets, *gp]} == {id(p) for p in amortised.parameters()}


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(UserError, match=r"optimizer\.schedule=linear is none of cosine, late, constant"):
        sas(Given(far_curve(12)), "optimizer.schedule=linear")
