"""What a task is given: latents of each split, told whether they were seen, and decoded observations."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch, split_of
from src.data.moving_ball import MovingBall
from src.evaluation import task
from src.evaluation.task import Latents, Metric, Task, decoded, latent_means
from src.models.posterior import Posterior, gaussian
from tests.evaluation.subjects import Known, LinearDecoder, MadeUp, built, incomplete, noisy_curve, subject

DATA = MadeUp(split_of(torch.arange(30.0).view(10, 3)), split_of(torch.arange(12.0).view(4, 3)))


class Moved(Known):
    """Seen points have other latents than unseen ones."""

    if_seen = 100.0


def test_only_the_training_split_is_seen() -> None:
    known = subject(Moved, DATA)
    assert torch.equal(known.test_latents, DATA.test.all().x[:, :2])
    assert torch.equal(known.train_latents, DATA.train.all().x[:, :2] + 100)


def test_latents_are_encoded_once() -> None:
    known = subject(Known, DATA)
    for _ in range(3):
        assert len(known.test_latents) == 4 and len(known.train_latents) == 10
    assert known.model.encoded == [(False, 4), (True, 10)]


def test_free_latents_of_test_points_are_not_those_of_training_points() -> None:
    data = MadeUp(split_of(noisy_curve(20)), split_of(noisy_curve(40)[::2].flip(0)))
    model = built(data, "model=sas", "active_set.size=10", "model.amortised=false")
    torch.manual_seed(0)
    z = latent_means(model, data.test, seen=False)
    torch.manual_seed(0)
    assert torch.equal(z, model.encode(data.test.all(), seen=False).mean)
    assert not torch.allclose(z, model.latents.mean.weight, atol=0.1)
    assert torch.equal(latent_means(model, data.train, seen=True), model.latents.mean.weight)


def test_chunks_of_points_that_are_not_neighbours_keep_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "CHUNK", 3)
    split = split_of(torch.arange(30.0).view(10, 3), groups=torch.tensor([4, 1, 4, 1, 0, 0, 7, 7, 4, 7]))
    model = Known(DATA.facts)
    assert torch.equal(latent_means(model, split, seen=False), split.all().x[:, :2])
    assert [size for _, size in model.encoded] == [2, 2, 3, 3]


def test_videos_are_encoded_whole() -> None:
    """67 videos are more than a chunk of 2000 frames: q(z) of a frame is given all frames of its video."""
    data = MovingBall(batch_videos=2, num_train_videos=2, num_test_videos=67)
    model = built(data, "model=gp_vae", "dataset=moving_ball", dtype=torch.float64)
    assert len(data.test) > task.CHUNK
    with torch.no_grad():
        at_once = model.encode(data.test.all(), seen=False).mean
    torch.testing.assert_close(latent_means(model, data.test, seen=False), at_once, rtol=1e-8, atol=1e-10)


def test_the_spread_of_latents_comes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point has none, independent coordinates have an sd, and others the root of their covariance."""
    monkeypatch.setattr(task, "CHUNK", 3)
    data = MadeUp(incomplete(4), replace(incomplete(10), groups=torch.arange(10) % 4))
    q = subject(LinearDecoder, data).test_posterior
    exact = LinearDecoder(data.facts).exact(data.test.all())
    assert q.spread is not None
    torch.testing.assert_close(q.mean, exact.mean)
    torch.testing.assert_close(q.spread @ q.spread.mT, exact.covariance_matrix)
    assert subject(Known, DATA).test_posterior.spread is None

    class Diagonal(LinearDecoder):
        def encode(self, batch: Batch, seen: bool) -> Posterior:
            found = self.exact(batch)
            return gaussian(found.mean, found.variance)

    diagonal = subject(Diagonal, data).test_posterior.spread
    torch.testing.assert_close(diagonal, exact.stddev)


@pytest.mark.parametrize("full", [True, False])
def test_draws_have_the_moments_of_q(full: bool) -> None:
    mean, root = torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[[2.0, 0.0], [1.0, 0.5]]]).double()
    q = Latents(mean, root if full else torch.tensor([[2.0, 0.5]]).double())
    z = q.draws(40_000, seed=0)[:, 0]
    covariance = root[0] @ root[0].mT if full else torch.diag(torch.tensor([4.0, 0.25])).double()
    torch.testing.assert_close(z.mean(0), mean[0])
    torch.testing.assert_close(z.T.cov(), covariance, rtol=0.03, atol=0.03)
    assert torch.equal(z, q.draws(40_000, seed=0)[:, 0]) and torch.equal(Latents(mean, None).draws(8, 0), mean[None])


class Told(Known):
    """Decodes to what it is told."""

    def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Normal:
        assert aux is not None and len(aux) == len(z)
        return Normal(torch.cat([z, aux], 1), 0.1)


@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_decoding_in_chunks_is_decoding_at_once(chunk: int) -> None:
    z, aux = torch.randn(10, 2), torch.arange(10.0)[:, None]
    mean, sd = decoded(Told(DATA.facts), z, None, aux, chunk)
    assert torch.equal(mean, torch.cat([z, aux], 1)) and torch.equal(sd, torch.full((10, 3), 0.1))
    mean, sd = decoded(Known(DATA.facts), z, 0.7, None, chunk)
    assert torch.equal(mean[:, :2], z) and (mean[:, 2] == 0.7).all() and (sd == 0.5).all() and sd.shape == (10, 3)


def test_latent_points_of_nothing_are_told_what_the_first_test_point_is() -> None:
    data = MadeUp(split_of(torch.zeros(4, 3)), split_of(torch.zeros(2, 3), aux=torch.tensor([[5.0], [6.0]])))
    assert subject(Told, data).decode(torch.zeros(3, 2)).mean[:, 2].tolist() == [5.0, 5.0, 5.0]


class Two(Task):
    """Two metrics."""

    name = "two"
    metrics = {"first": Metric("the first"), "second": Metric("the second")}  # noqa: RUF012


def test_a_summary_has_one_line_per_metric_with_the_published_value_beside_it() -> None:
    lines = Two().summary({"second": 0.123456, "third": 1.0, "first": 12.0}, {"second": "0.1"})
    assert [line.split() for line in lines] == [["first", "12"], ["second", "0.1235", "published", "0.1"]]
    assert Two().summary({}, {}) == []


def test_a_task_that_only_names_metrics_has_nothing_to_show() -> None:
    known = subject(Known, DATA)
    assert Two().scores(known) == {} and Two().artifacts(known) == {} and list(Two().figures(known)) == []
    Two().check(known.model, DATA, known.settings)
    with pytest.raises(NotImplementedError):
        Two().fits(known.model, DATA)
