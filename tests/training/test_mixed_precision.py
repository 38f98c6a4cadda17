"""Mixed precision of layers, and of nothing else."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor, nn

from src.evaluate import evaluate_again
from src.training.mixed_precision import MixedLayers, keep_to_layers
from tests.models.builders import SMALL_NETS, first_batch, little_videos, noisy_curve, started
from tests.models.builders import Given as Data
from tests.training.test_experiment import QUICK, small_run


@pytest.fixture
def mixed() -> MixedLayers:
    return MixedLayers("bf16-mixed", "cpu")


def rounded(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).float()


def test_a_layer_multiplies_rounded_numbers_and_returns_the_precision_of_its_input(mixed: MixedLayers) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(200, 50, bias=False), torch.randn(30, 200)
    exact, expected = layer(x), rounded(x) @ rounded(layer.weight).mT
    mixed.convert_module(layer)
    answer = layer(x)
    assert answer.dtype == torch.float32
    torch.testing.assert_close(answer, expected, rtol=2**-8, atol=1e-5)  # the product itself is rounded once more
    assert not torch.allclose(answer, exact, rtol=1e-5)


def test_a_layer_is_exact_where_nothing_is_trained_and_after_the_training(mixed: MixedLayers) -> None:
    net, x = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)), torch.randn(7, 20)
    exact = net(x)
    mixed.convert_module(net)
    assert torch.equal(net.eval()(x), exact)
    assert not torch.equal(net.train()(x), exact)
    mixed.teardown()
    assert torch.equal(net(x), exact)


def test_gradients_and_parameters_stay_in_full_precision(mixed: MixedLayers) -> None:
    net, x = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4)), torch.randn(7, 20)
    mixed.convert_module(net)
    net(x).square().sum().backward()
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in net.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "bayesian_gplvm", "vae", "gp_vae", "svgp_vae"])
def test_a_step_is_that_of_a_model_with_rounded_layers(name: str, mixed: MixedLayers) -> None:
    """Kernels, factors and densities have full precision."""
    videos = name.endswith("gp_vae")
    data = little_videos() if videos else Data(noisy_curve(120))
    arguments: dict[str, Any] = {"likelihood": "bernoulli", **SMALL_NETS} if videos else {}
    arguments |= {"num_inducing": 3} if name == "svgp_vae" else {}
    model = started(data, f"model={name}", "dataset=moving_ball" if videos else "active_set.size=20", **arguments)
    batch = first_batch(data)

    def loss() -> float:
        torch.manual_seed(0)
        return model.train().objective(batch).loss.item()

    full = loss()
    mixed.convert_module(model)
    half = loss()
    for layer in mixed.converted:
        layer.forward = partial(by_hand, layer)
    assert half == pytest.approx(loss(), rel=1e-3)
    assert half == pytest.approx(full, rel=0.05) and half != full


def by_hand(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return rounded(rounded(x) @ rounded(layer.weight).mT + rounded(layer.bias))


def test_the_step_itself_is_not_rounded(mixed: MixedLayers) -> None:
    a = torch.randn(5, 5)
    with mixed.train_step_context():
        assert (a @ a).dtype == torch.float32


def test_a_run_in_mixed_precision_leaves_its_model_as_any_other(tmp_path: Path) -> None:
    """Evaluated again in full precision, it has the scores of the run."""
    folder = small_run(tmp_path, "trainer.precision=bf16-mixed")
    scores = json.loads((folder / "metrics.json").read_text())
    again = evaluate_again(folder, QUICK)
    assert {name: scores[name] for name in again} == again
    full = json.loads((small_run(tmp_path) / "metrics.json").read_text())
    assert scores["objective"] != full["objective"] and scores["rmse"] == pytest.approx(full["rmse"], rel=0.02)


def test_a_trainer_with_mixed_precision_keeps_it_to_layers_and_others_stay_as_they_are() -> None:
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "accelerator": "cpu",
    }
    mixed, full = Trainer(precision="bf16-mixed", **quiet), Trainer(precision="32-true", **quiet)
    before = full.strategy.precision_plugin
    for trainer in (mixed, full):
        keep_to_layers(trainer)
    assert isinstance(mixed.strategy.precision_plugin, MixedLayers)
    assert mixed.strategy.precision_plugin.precision == "bf16-mixed"
    assert full.strategy.precision_plugin is before
