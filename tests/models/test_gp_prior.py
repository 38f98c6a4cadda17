"""What the GP-VAEs share: the bound per value, whose latents are known to whom, and the density of a pixel."""

from typing import Any

import pytest
import torch
from torch.distributions import Bernoulli, Independent, Normal

from src.data.batch import Batch
from src.models.gp_prior import product
from src.runs.errors import UserError
from tests.models.builders import OBJECT_ANGLE, SMALL_NETS, Given, built, little_videos, little_views, rows
from tests.models.direct import pseudo_observations


def of_videos(likelihood: str = "bernoulli") -> tuple[Any, Batch]:
    data = little_videos()
    model = built(data, "gp_vae", **SMALL_NETS, likelihood=likelihood)
    return model, rows(data)


def of_views(name: str, data: Given) -> Any:
    options: dict[str, Any] = {"num_inducing": 4} if name == "svgp_vae" else {}
    return built(data, name, **SMALL_NETS, **OBJECT_ANGLE, likelihood="gaussian", **options)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_fit_and_divergence_are_per_value(likelihood: str) -> None:
    """The loss recomputed under the same seed from q, its divergence and the density of torch."""
    model, batch = of_videos(likelihood)
    q, kl, _ = model.posterior(batch)
    torch.manual_seed(0)
    f = model.decoder(Normal(q.mean, q.stddev).rsample())
    density = Bernoulli(logits=f) if likelihood == "bernoulli" else Normal(f, model.likelihood.noise.sqrt())
    fit = density.log_prob(batch.x.double()).sum()
    torch.manual_seed(0)
    loss, parts = model.objective(batch)
    torch.testing.assert_close(loss, (kl - fit) / (8 * 6))
    torch.testing.assert_close(parts["reconstruction"], fit.detach() / (8 * 6))
    torch.testing.assert_close(parts["kl"], -kl.detach() / (8 * 6))
    assert not any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts.values())


def test_a_decoded_bit_has_the_variance_of_a_bit() -> None:
    model, _ = of_videos()
    z = torch.tensor([[0.5, -2.0], [1.0, 0.0]]).double()
    p = torch.sigmoid(model.decoder(z))
    torch.testing.assert_close(model.decode(z).mean, p)
    torch.testing.assert_close(model.decode(z).variance, p * (1 - p))


def test_a_decoded_real_value_has_the_noise() -> None:
    model, _ = of_videos("gaussian")
    z = torch.tensor([[0.5, -2.0], [1.0, 0.0]]).double()
    torch.testing.assert_close(model.decode(z).mean, model.decoder(z))
    torch.testing.assert_close(model.decode(z).variance, model.likelihood.noise.expand(2, 6))


def test_the_answers_are_in_the_order_of_the_batch() -> None:
    """Frames of unequal videos stand in groups with gaps, and come back to their places."""
    model, batch = of_videos()
    assert batch.aux is not None
    q, _, _ = model.posterior(batch)
    for video in (3, 7):
        own = (batch.aux[:, 0] == video).nonzero().flatten()
        alone, _, _ = model.posterior(Batch.of(batch.x[own], batch.aux[own]))
        torch.testing.assert_close(q.mean[own], alone.mean)
        torch.testing.assert_close(q.variance[own], alone.variance)


def test_a_frame_alone_is_its_pseudo_observation_times_the_prior() -> None:
    """Precisions add up: the prior has variance 1."""
    model, batch = of_videos()
    assert batch.aux is not None
    alone = Batch.of(batch.x[:1], batch.aux[:1])
    y, s2 = pseudo_observations(model, alone.x.double())
    q, _, _ = model.posterior(alone)
    torch.testing.assert_close(1 / q.variance, 1 + 1 / s2)
    torch.testing.assert_close(q.mean, y / s2 * q.variance)


def test_videos_of_unequal_length_have_gradients() -> None:
    """The root of the weight of an absent frame, which is 0, has an infinite slope: it must meet no gradient."""
    model, batch = of_videos()
    model.objective(batch).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["gp_vae", "svgp_vae"])
def test_an_unseen_image_adds_to_what_its_view_tells_and_a_seen_one_is_known(name: str) -> None:
    data = little_views()
    model = of_views(name, data)
    model.finalise(data)
    test, train = data.test.all(), data.train.all()
    assert test.aux is not None and train.aux is not None
    with torch.no_grad():
        told, unseen = model.generate(test.aux), model.encode(test, seen=False)
        y, s2 = pseudo_observations(model, test.x.double())
        seen, known = model.encode(train, seen=True), model.generate(train.aux)
    precision = 1 / told.variance + 1 / s2
    torch.testing.assert_close(1 / unseen.variance, precision)
    torch.testing.assert_close(unseen.mean, (told.mean / told.variance + y / s2) / precision)
    torch.testing.assert_close(seen.mean, known.mean)
    torch.testing.assert_close(seen.variance, known.variance)


def test_the_product_of_normals_is_bayes_rule() -> None:
    first, second = (Normal(torch.tensor([m]), torch.tensor([s])) for m, s in ((1.0, 2.0), (-1.0, 0.5)))
    both = product(*(Independent(n, 1) for n in (first, second)))
    z = torch.linspace(-3, 3, 7)[:, None]
    difference = first.log_prob(z) + second.log_prob(z) - Normal(both.mean, both.stddev).log_prob(z)
    torch.testing.assert_close(difference, difference[:1].expand(7, 1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["gp_vae", "svgp_vae"])
def test_points_need_their_auxiliary_columns(name: str) -> None:
    data = little_views()
    with pytest.raises(UserError, match="needs the auxiliary columns of its points: object and angle"):
        of_views(name, data).encode(Batch.of(data.test.all().x), seen=False)
