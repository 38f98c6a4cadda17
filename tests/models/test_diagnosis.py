"""What models tell about themselves after an epoch, against closed forms and torch's own KL divergence."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal

from src.data.batch import split_of
from src.models.diagnosis import POINTS, columns, dimensions, findings, hyperparameters, spread_over, unused_dimensions
from src.models.posterior import Point, gaussian, kl_to_prior
from tests.models.builders import Given, built, far_curve, noisy_curve


def q_of(kind: str, points: int = 30) -> Any:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(points, 3, generator=generator)
    root = torch.randn(points, 3, 3, generator=generator)
    if kind == "diagonal":
        return gaussian(mean, root.diagonal(dim1=1, dim2=2).square() + 0.1)
    return MultivariateNormal(mean, root @ root.mT + 0.1 * torch.eye(3))


def test_the_kl_divergences_of_the_dimensions_add_up_to_that_of_q() -> None:
    q = q_of("diagonal")
    found = dimensions(q)
    assert sum(found[f"kl_{i}"] for i in (1, 2, 3)) == pytest.approx(kl_to_prior(q).mean().item(), rel=1e-5)


def test_a_full_covariance_has_the_kl_divergences_of_its_marginals() -> None:
    q, found = q_of("full"), dimensions(q_of("full"))
    for i in range(3):
        marginal = Independent(Normal(q.mean[:, i : i + 1], q.covariance_matrix[:, i, i].sqrt().unsqueeze(1)), 1)
        assert found[f"kl_{i + 1}"] == pytest.approx(kl_to_prior(marginal).mean().item(), rel=1e-5)


def test_points_have_a_spread_and_no_kl_divergence() -> None:
    z = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert dimensions(Point(z)) == {"spread_1": 1.0, "spread_2": 0.0}


@pytest.mark.parametrize(
    ("values", "unused"),
    [
        ({"spread_1": 1.0, "spread_2": 0.05}, [2]),  # less than a tenth of the other
        ({"spread_1": 1.0, "spread_2": 0.15}, []),
        ({"spread_1": 0.08, "spread_2": 0.08}, []),  # points: their scale means nothing
        ({"spread_1": 0.08, "spread_2": 0.08, "kl_1": 0.1, "kl_2": 0.1}, [1, 2]),  # held to N(0, I), it does
        ({"spread_1": 1.0, "spread_2": 1.0, "lengthscale_1": 1.0, "lengthscale_2": 30.0}, [2]),  # ARD
        ({"spread_1": 1.0, "spread_2": 0.02, "lengthscale_1": 50.0, "lengthscale_2": 1.0}, []),
        ({"spread_1": 1.0, "spread_2": 1.0, "lengthscale": 1000.0}, []),  # nearly linear, and so for both
        ({"spread_1": 0.0}, [1]),
        ({"noise": 0.1}, []),
    ],
)
def test_unused_dimensions(values: dict[str, float], unused: list[int]) -> None:
    assert unused_dimensions(values) == unused


def test_findings_are_sentences() -> None:
    collapsed = {"spread_1": 1.0, "spread_2": 0.0, "spread_3": 0.0, "noise_share": 0.981}
    assert findings(collapsed) == [
        "2 of 3 latent dimensions are unused: z2, z3",
        "the noise variance is 0.98 times that of the data: the model predicts little more than a mean",
    ]
    assert findings({"spread_1": 1.0, "spread_2": 0.0, "noise_share": 0.9}) == [
        "1 of 2 latent dimensions is unused: z2"
    ]
    assert findings({"loss": 1.0}) == []


@pytest.mark.parametrize("overrides", [[], ["model.amortised=false"]], ids=["amortised", "free"])
@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm", "bayesian_gplvm", "vae"])
def test_a_model_tells_its_hyperparameters_and_dimensions(name: str, overrides: list[str]) -> None:
    """Q = 3; the noise, 0.1 at first, as a part of the variance of the data."""
    data = Given(noisy_curve())
    small = ["model.active_set=20"] if name in ("sas", "bayesian_sas", "gplvm") else []
    small += ["model.num_inducing=8"] if name == "bayesian_gplvm" else []
    model: Any = built(data, name, "model.latent_dim=3", *small, *overrides)
    found = model.trace(data)
    kernel = set() if name == "vae" else {"kernel_variance", "lengthscale"}
    kl = set() if name in ("sas", "gplvm") else {"kl_1", "kl_2", "kl_3"}
    spreads = {"spread_1", "spread_2", "spread_3"}
    assert found.keys() == {"noise", "noise_share", "active_dims"} | spreads | kl | kernel
    assert found["noise"] == pytest.approx(0.1)
    assert found["noise_share"] == pytest.approx(0.1 / noisy_curve().var(0, correction=0).mean().item(), rel=1e-4)
    if not overrides:
        return
    assert found["spread_2"] == pytest.approx(model.latents.mean.weight[:, 1].std(correction=0).item())
    assert found["active_dims"] == 3  # whitened PCA scores have the same variance in all dimensions


def test_a_collapsed_dimension_is_told() -> None:
    data = Given(noisy_curve())
    model = built(data, "bayesian_sas", "model.latent_dim=3", "model.active_set=20", "model.amortised=false")
    with torch.no_grad():
        model.latents.mean.weight[:, 1] = 0.0
        model.latents.spread.weight[:, 1] = math.log(math.expm1(1.0))  # variance 1, as the prior
        model.likelihood.learned.noise = 0.99 * noisy_curve().var(0, correction=0).mean()
    found = model.trace(data)
    assert found["kl_2"] == pytest.approx(0.0, abs=1e-9) and found["active_dims"] == 2
    assert [text.partition(":")[0] for text in findings(found)] == [
        "1 of 3 latent dimensions is unused",
        "the noise variance is 0.99 times that of the data",
    ]


def test_ard_length_scales_have_a_column_each() -> None:
    data = Given(noisy_curve())
    model = built(data, "sas", "kernel=rbf_ard", "model.latent_dim=3", "model.active_set=20", "model.amortised=false")
    model.kernel.base_kernel.lengthscale = torch.tensor([1.0, 2.0, 300.0])
    found = model.trace(data)
    assert [found[f"lengthscale_{i}"] for i in (1, 2, 3)] == pytest.approx([1.0, 2.0, 300.0])
    assert found["active_dims"] == 2


def test_very_many_values_have_their_range() -> None:
    values = torch.arange(1.0, 101.0)
    assert columns("lengthscale", values, None) == {"lengthscale_min": 1.0, "lengthscale_max": 100.0}
    assert len(columns("lengthscale", values, Point(torch.zeros(2, 100)))) == 100
    assert columns("noise", values[:2], None) == {"noise_1": 1.0, "noise_2": 2.0}


def test_parts_of_a_kernel_that_share_a_name_have_their_whole_names() -> None:
    data = Given(noisy_curve())
    model = built(data, "sas", "kernel=matern32_linear", "model.active_set=20")
    names = hyperparameters(model).keys()
    assert {"noise", "kernel_variance", "lengthscale"} < names and any(n.endswith(".variance") for n in names)


@pytest.mark.parametrize("name", ["sas_regression", "sparse_regression", "autogp"])
def test_the_noise_of_targets_is_a_part_of_their_variance(name: str) -> None:
    """Targets are standardised, whatever their units."""
    data = Given(far_curve(40), y=1000 * noisy_curve(40, 1) + 7)
    small = ["model.active_set=10"] if name == "sas_regression" else ["model.num_inducing=5"]
    model = built(data, name, *small)
    found = model.trace(data)
    noise = model.likelihood.noise.mean().item()
    assert found["noise_share"] == pytest.approx(noise, rel=1e-3)
    assert "active_dims" not in found


def test_missing_values_do_not_count() -> None:
    data = Given(noisy_curve(), missing={"fraction": 0.4, "split": "train"})
    model = built(data, "bayesian_sas", "model.active_set=20", "model.amortised=false")
    x, mask = noisy_curve().double(), data.train.mask
    assert mask is not None and not mask.all()
    seen = torch.where(mask, x, math.nan)
    centred = seen - seen.nanmean(0)
    assert model.trace(data)["noise_share"] == pytest.approx(0.1 / centred.square().nanmean().item(), rel=1e-4)


def test_looking_changes_nothing() -> None:
    """Neither parameters nor random numbers."""
    data = Given(noisy_curve())
    model = built(data, "bayesian_gplvm", "model.num_inducing=8").train()
    before: dict[str, Tensor] = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first = model.trace(data)
    assert torch.equal(state, torch.get_rng_state()) and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.trace(data) == first and all(p.grad is None for p in model.parameters())


def test_points_are_spread_over_the_training_data() -> None:
    split = split_of(torch.zeros(1000, 2))
    rows = spread_over(split).index
    assert len(rows) == POINTS == len(rows.unique()) and rows[0] == 0 and rows[-1] >= 996
    assert spread_over(split_of(torch.zeros(3, 2))).index.tolist() == [0, 1, 2]
