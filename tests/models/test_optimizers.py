"""Optimisers of a config: their groups, their rates, their states, and L-BFGS at known optima."""

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Embedding, Parameter
from torch.optim import LBFGS, Adam, Optimizer, SparseAdam

from src.models.optimizers import FALL_FROM, Phased, Rates, WithSparseRows, optimizer_of, rates_left
from src.runs.errors import UserError
from tests.configs import composed


def spec_of(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = composed(f"optimizer={name}")["optimizer"]
    return spec


def parameter(*values: float) -> Parameter:
    return Parameter(torch.tensor(values, dtype=torch.float64))


def stored(state: Any) -> Any:
    """A state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("schedule", FALL_FROM)
def test_rates_stay_then_fall_along_half_a_cosine(schedule: str) -> None:
    start = FALL_FROM[schedule]
    end = 0.0 if start < 1 else 1.0
    assert rates_left(0.0, schedule) == rates_left(start, schedule) == 1
    assert rates_left(1.0, schedule) == pytest.approx(end, abs=1e-15)
    if start < 1:
        assert rates_left((1 + start) / 2, schedule) == pytest.approx(0.5)
        assert rates_left(start + (1 - start) / 3, schedule) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 3))


def test_each_kind_of_parameter_has_its_rate() -> None:
    spec = spec_of("adam") | {"lr": 0.01, "gp_lr_factor": 3, "latent_lr_factor": 5}
    optimizer = optimizer_of(spec, Rates([parameter(1)], [parameter(2)], [parameter(3)]))
    assert isinstance(optimizer, WithSparseRows) and isinstance(optimizer.parts[0], Adam)
    assert [group["initial_lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.03, 0.05])
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.03, 0.05])


def test_without_factors_everything_learns_at_the_same_rate() -> None:
    spec = {key: value for key, value in spec_of("adam").items() if not key.endswith("factor")} | {"lr": 0.01}
    optimizer = optimizer_of(spec, Rates([parameter(1)], [parameter(2)], [parameter(3)]))
    assert [group["lr"] for group in optimizer.param_groups] == [0.01] * 3


def test_weight_decay_is_for_nets() -> None:
    nets, gp = parameter(1), parameter(2)
    optimizer = optimizer_of(spec_of("adamw"), Rates([nets], [gp], []))
    for each in (nets, gp):
        each.grad = torch.zeros_like(each)
    optimizer.step()
    assert 0 < nets < 1 and gp == 2


def test_a_phase_may_train_the_rows_alone() -> None:
    assert isinstance(optimizer_of(spec_of("adam"), Rates([], [], [parameter(3)])), SparseAdam)


def test_an_unknown_schedule_is_rejected() -> None:
    with pytest.raises(UserError, match=r"optimizer\.schedule=linear is none of cosine, late, constant"):
        optimizer_of(spec_of("adam") | {"schedule": "linear"}, Rates([parameter(1)], [], []))


def quadratic(at: Tensor, curvature: Tensor, minimum: Tensor) -> Tensor:
    """Half of (x - m)^T C (x - m)."""
    return 0.5 * (at - minimum) @ curvature @ (at - minimum)


def test_lbfgs_solves_a_quadratic_in_a_few_steps() -> None:
    """With a condition number of 100; parameters of all kinds end where the closed form says."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64, generator=generator)).Q
    curvature = basis @ torch.logspace(-1, 1, 12, dtype=torch.float64).diag() @ basis.mT
    minimum = torch.randn(12, dtype=torch.float64, generator=generator)
    nets, gp, rows = (Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(3))
    optimizer = optimizer_of(spec_of("lbfgs"), Rates([nets], [gp], [rows]))
    assert isinstance(optimizer, LBFGS) and len(optimizer.param_groups) == 1

    def closure() -> Any:
        optimizer.zero_grad()
        loss = quadratic(torch.cat([nets, gp, rows]), curvature, minimum)
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    torch.testing.assert_close(torch.cat([nets, gp, rows]).detach(), minimum, atol=1e-6, rtol=0)


def test_lbfgs_takes_the_sparse_gradients_of_embeddings() -> None:
    """All rows, in any order, go to their targets."""
    target = torch.arange(8, dtype=torch.float64).view(4, 2)
    embedding = Embedding(4, 2, sparse=True, dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    optimizer = optimizer_of(spec_of("lbfgs"), Rates([], [], list(embedding.parameters())))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (embedding(order) - target[order]).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    torch.testing.assert_close(embedding.weight.detach(), target, atol=1e-6, rtol=0)


@pytest.mark.parametrize("factor", ["gp_lr_factor", "latent_lr_factor"])
def test_a_factor_without_effect_on_lbfgs_is_rejected(factor: str) -> None:
    rates = Rates([parameter(1)], [], [])
    with pytest.raises(UserError, match=f"optimizer.{factor} has no effect on L-BFGS"):
        optimizer_of(spec_of("lbfgs") | {factor: 10}, rates)
    assert isinstance(optimizer_of(spec_of("lbfgs") | {factor: None}, rates), LBFGS)


def rosenbrock_steps(optimizer: Optimizer, at: Parameter, steps: int) -> Tensor:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = (1 - at[0]) ** 2 + 100 * (at[1] - at[0] ** 2) ** 2
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return at.detach().clone()


def rosenbrock_optimizer(name: str, at: Parameter) -> Optimizer:
    spec = spec_of(name)
    spec["algorithm"] |= {"max_iter": 2} if name == "lbfgs" else {}
    return optimizer_of(spec, Rates([at], [], []))


@pytest.mark.parametrize("name", ["adam", "lbfgs"])
def test_a_restored_optimiser_takes_the_same_steps(name: str) -> None:
    """Also the state of L-BFGS, its lists included, passes through a file that is read without running code."""
    at = parameter(-1.2, 1.0)
    optimizer = rosenbrock_optimizer(name, at)
    middle = rosenbrock_steps(optimizer, at, 3)
    state = stored(optimizer.state_dict())
    expected = rosenbrock_steps(optimizer, at, 3)
    other = Parameter(middle.clone())
    restored = rosenbrock_optimizer(name, other)
    restored.load_state_dict(state)
    assert torch.equal(rosenbrock_steps(restored, other, 3), expected)


def test_only_the_optimiser_of_the_current_phase_steps() -> None:
    first, second = parameter(1.0), parameter(1.0)
    phased = Phased([Adam([first], lr=0.1), Adam([first, second], lr=0.2)])
    for at in (first, second):
        at.grad = torch.ones_like(at)
    assert [group["lr"] for group in phased.param_groups] == [0.1]
    phased.step()
    assert first.item() == pytest.approx(0.9) and second.item() == 1.0
    phased.enter(1)
    assert [group["lr"] for group in phased.param_groups] == [0.2]
    phased.step()
    assert first.item() == pytest.approx(0.7) and second.item() == pytest.approx(0.8)


def test_the_states_of_all_phases_are_restored() -> None:
    """A phase finds the moments that it left, whatever phase the checkpoint was written in."""

    def phased(at: Parameter) -> Phased:
        return Phased([rosenbrock_optimizer("adam", at), rosenbrock_optimizer("lbfgs", at)])

    at = parameter(-1.2, 1.0)
    optimizer = phased(at)
    rosenbrock_steps(optimizer, at, 2)
    optimizer.enter(1)
    middle = rosenbrock_steps(optimizer, at, 2)
    state = stored(optimizer.state_dict())
    other = Parameter(middle.clone())
    restored = phased(other)
    restored.load_state_dict(state)
    restored.enter(1)
    for phase in (1, 0, 1):
        optimizer.enter(phase)
        restored.enter(phase)
        assert torch.equal(rosenbrock_steps(restored, other, 2), rosenbrock_steps(optimizer, at, 2))
