"""The metric of each model is that of what it decodes."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Normal

from src.gp.geodesics import geodesics
from src.models.capabilities import HasMetric
from src.models.metric import PulledBackMetric
from tests.models.builders import OBJECT_ANGLE, SMALL_NETS, Given, built, far_curve, little_views, rows, started

STEP = 1e-4
POINTS: dict[str, dict[str, Any]] = {
    "sas": {"active_set": 6},
    "bayesian_sas": {"active_set": 6},
    "gplvm": {"active_set": 6},
}


def jacobian(function: Any, z: Tensor) -> Tensor:
    """By differences, [n, D, Q]."""
    moves = STEP * torch.eye(z.shape[1]).to(z)
    return torch.stack([(function(z + move) - function(z - move)).flatten(1) / (2 * STEP) for move in moves], 2)


def bits(size: int) -> Given:
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(1)) + far_curve(size)[:, :1]
    return Given((x > x.median()).double(), told={"binary": True})


def images(size: int) -> Given:
    """Grey images of 2 x 2 pixels."""
    x = far_curve(size)[:, :4]
    x = (x - x.amin(0)) / (x.amax(0) - x.amin(0))
    return Given((255 * x).round().to(torch.uint8).view(-1, 1, 2, 2))


@torch.no_grad()
@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm", "bayesian_gplvm"])
def test_a_gp_adds_its_uncertainty_to_the_metric_of_its_mean(name: str) -> None:
    """The rest is the covariance of the Jacobian: positive, the same for all directions far away, and D s / l^2."""
    options = POINTS.get(name, {"num_inducing": 6})
    model = started(Given(far_curve(20)), f"model={name}", dtype=torch.float64, **options)
    given, z = model.given(), torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slopes = jacobian(lambda at: model.decode(at, given).mean, z)
    uncertainty = model.metric(z, given) - slopes.mT @ slopes
    assert torch.linalg.eigvalsh(uncertainty).min() > 0
    far = torch.full((1, 2), 60.0).double()
    outputs, kernel = model.data_mean.numel(), model.kernel
    expected = outputs * kernel.outputscale / kernel.base_kernel.lengthscale.item() ** 2
    torch.testing.assert_close(model.metric(far), expected * torch.eye(2).double().unsqueeze(0), rtol=1e-6, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("name", ["sas", "bayesian_gplvm"])
def test_bits_have_the_metric_of_their_logits(name: str) -> None:
    model = started(
        bits(20), f"model={name}", dtype=torch.float64, likelihood="bernoulli", **POINTS.get(name, {"num_inducing": 6})
    )
    given, z = model.given(), torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slopes = jacobian(lambda at: given.predict(at)[0], z)
    assert torch.linalg.eigvalsh(model.metric(z, given) - slopes.mT @ slopes).min() > 0
    probabilities = jacobian(lambda at: model.decode(at, given).mean, z)
    assert (slopes - probabilities).abs().max() > 0.1 * slopes.abs().max()  # they are not the same


@torch.no_grad()
def test_a_net_has_the_metric_of_its_mean_of_its_logits_or_of_warped_values() -> None:
    z = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    cases: list[tuple[Given, dict[str, Any]]] = [
        (Given(far_curve(20)), {}),
        (bits(20), {"likelihood": "bernoulli"}),
        (images(20), {"warp": "logit"}),
    ]
    for data, options in cases:
        model = started(data, "model=vae", dtype=torch.float64, **options)
        slopes = jacobian(model.net, z)
        torch.testing.assert_close(model.metric(z), slopes.mT @ slopes, rtol=1e-6, atol=1e-9)
        assert model.metric(z.float()).dtype == torch.float32


def test_a_decoder_of_convolutions_has_a_metric_and_geodesics() -> None:
    """Whose layers choose their own memory layout."""
    data = Given(torch.rand(20, 1, 16, 16, generator=torch.Generator().manual_seed(0)).double())
    convolutional: dict[str, Any] = {"decoder": {"_target_": "src.nets.convolutional.ELUDecoder"}}
    model = started(data, "model=vae", dtype=torch.float64, **convolutional)
    z = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        slopes = jacobian(model.net, z)
        torch.testing.assert_close(model.metric(z), slopes.mT @ slopes, rtol=1e-5, atol=1e-9)
        found = geodesics(lambda at: model.metric(at), z[:2], z[2:4], steps=5)
    assert (found.energy <= found.straight_energy).all()
    three = started(data, "model=vae", dtype=torch.float64, latent_dim=3, **convolutional)
    a, b = torch.randn(2, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (geodesics(lambda at: three.metric(at), a, b, steps=3).energy > 0).all()  # with gradients of the metric


@torch.no_grad()
@pytest.mark.parametrize("name", ["cvae", "gp_vae", "casale_gp_vae", "svgp_vae"])
def test_models_with_auxiliary_columns_have_the_metric_of_their_decoder(name: str) -> None:
    options: dict[str, Any] = dict(SMALL_NETS)
    options |= {} if name == "cvae" else {**OBJECT_ANGLE, "likelihood": "gaussian"}
    options |= {"num_inducing": 4} if name == "svgp_vae" else {}
    data = little_views()
    model = built(data, name, **options).double()
    batch = rows(data, 0, 3)
    z = torch.randn(len(batch), model.latent_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slopes = jacobian(lambda at: model.decode(at, None, batch.aux).mean, z)
    assert isinstance(model, HasMetric)
    torch.testing.assert_close(model.metric(z, None, batch.aux), slopes.mT @ slopes, rtol=1e-6, atol=1e-9)


class Funnel(PulledBackMetric):
    """A decoder whose noise grows along z: x = (z_1, 2 z_2) with sd exp(z_1)."""

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Any:
        if given == "bits":
            return Bernoulli(logits=3 * z)
        return Normal(z * torch.tensor([1.0, 2.0]).to(z), z[:, :1].exp())


def test_an_sd_that_changes_is_part_of_the_metric_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.tensor([[0.3, 1.0], [-0.2, 0.0], [1.0, 1.0]]).double()
    expected = torch.stack(
        [torch.diag(torch.tensor([1 + 2 * torch.tensor(2 * a).exp().item(), 4.0])) for a in z[:, 0].tolist()]
    )
    monkeypatch.setattr("src.models.metric.CHUNK", 2)
    torch.testing.assert_close(Funnel().metric(z), expected.double(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(Funnel().metric(z, "bits"), 9 * torch.eye(2).double().expand(3, -1, -1))


@pytest.mark.parametrize("name", ["sas", "vae"])
def test_geodesics_of_a_model_in_three_dimensions(name: str) -> None:
    """Where the search follows the gradient of the model's own metric."""
    model = started(Given(far_curve(20)), f"model={name}", latent_dim=3, **POINTS.get(name, {}))
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 6, 3, generator=generator)
    with torch.no_grad():
        found = geodesics(lambda z: model.metric(z), a, b, steps=10)
    assert (found.energy <= found.straight_energy).all() and (found.energy < found.straight_energy).any()
