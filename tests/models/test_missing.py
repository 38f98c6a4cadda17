"""Missing values in every latent model: only what was observed counts, in training, encoding and prediction."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor
from torch.distributions import MultivariateNormal

from src.data.batch import Batch
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal, strict_cholesky
from src.models.base import LatentModel, Model, build
from src.models.posterior import expected, rows_of
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, first_batch, noisy_curve, rows, started
from tests.models.test_contract import CASES, QUIET, dataset, model_of, small_spec

GP_PRIORS = ("gp_vae", "svgp_vae")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    name_and_overrides: tuple[str, list[str]] = request.param
    return name_and_overrides


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refining takes a few steps where the answer need not be the best."""
    monkeypatch.setattr("src.models.refining.REFINING_STEPS", 2)


def loss_of(model: LatentModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch with one set of random numbers, and all its gradients."""
    torch.manual_seed(0)
    model.zero_grad()
    loss = model.objective(batch).loss
    loss.backward()
    return loss, {n: p.grad.to_dense() for n, p in model.named_parameters() if p.grad is not None}


def test_every_model_trains_on_incomplete_data(case: tuple[str, list[str]]) -> None:
    """Gradients are finite although the hidden values are NaN or blank, and what stands behind a mask has no part."""
    data = dataset(case[0], "both")
    model, batch = model_of(case, data), first_batch(data)
    loss, gradients = loss_of(model, batch)
    assert loss.isfinite() and all(g.isfinite().all() for g in gradients.values())
    assert [name for name, _ in model.named_parameters() if name not in gradients] == []
    assert batch.mask is not None
    noise = torch.randint(0, 256, batch.x.shape).to(batch.x)
    other_loss, other_gradients = loss_of(model, replace(batch, x=torch.where(batch.mask, batch.x, noise)))
    assert torch.equal(loss, other_loss)
    assert all(torch.equal(gradients[name], other_gradients[name]) for name in gradients)


@pytest.mark.usefixtures("few_steps")
def test_incomplete_test_points_are_encoded_and_decoded(case: tuple[str, list[str]]) -> None:
    """By models that were trained on complete and on incomplete data; again only what was observed counts."""
    for hidden in ("test", "both"):
        data = dataset(case[0], hidden)
        model, batch = model_of(case, data), data.test.all()
        model.finalise(data)
        assert batch.mask is not None
        q = model.encode(batch, seen=False)
        other = replace(batch, x=torch.where(batch.mask, batch.x, torch.zeros_like(batch.x) + 1))
        again = model.encode(other, seen=False)
        assert torch.equal(q.mean, again.mean) and torch.equal(q.variance, again.variance)
        p = model.decode(q.mean, model.given(), batch.aux)
        assert p.mean.shape == batch.x.shape and p.mean.isfinite().all() and (p.variance > 0).all()


@pytest.mark.usefixtures("few_steps")
def test_a_mask_of_ones_changes_no_digit(case: tuple[str, list[str]]) -> None:
    data = dataset(case[0])
    model, batch = model_of(case, data), first_batch(data)
    ones = torch.ones_like(batch.x, dtype=torch.bool)
    loss, gradients = loss_of(model, batch)
    same_loss, same_gradients = loss_of(model, replace(batch, mask=ones))
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(gradients[name], same_gradients[name]) for name in gradients)
    model.finalise(data)
    with torch.no_grad():
        q, same = (model.encode(replace(batch, mask=mask), seen=False) for mask in (None, ones))
    assert torch.equal(q.mean, same.mean) and torch.equal(q.variance, same.variance)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm", "bayesian_gplvm", "vae", "cvae"])
def test_only_incomplete_points_are_refined(name: str) -> None:
    data = dataset(name)
    model, batch = model_of((name, []), data), data.test.all()
    mask = torch.ones_like(batch.x, dtype=torch.bool)
    mask[[1, 3], ..., :5] = False
    q, encoded = model.encode(replace(batch, mask=mask), seen=False), model.encode(batch, seen=False)
    same = (q.mean == encoded.mean).all(1)
    assert same.tolist() == [True, False, True, False, *[True] * (len(batch) - 4)]


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "bayesian_gplvm", "vae", "cvae"])
def test_refining_raises_the_bound(name: str) -> None:
    data = dataset(name, "test")
    model, batch = model_of((name, []), data), data.test.all()
    start = model.recognise(batch)
    before, after = (model.lower_bound(batch, q, draws=200) for q in (start, model.refine(batch, start)))
    assert (after > before - 0.5).all() and after.mean() > before.mean()


@pytest.mark.parametrize("name", ["bayesian_sas", "bayesian_gplvm", "vae", "cvae"])
def test_hiding_everything_gives_the_prior(name: str) -> None:
    data = dataset(name)
    model, batch = model_of((name, []), data), data.test.all()
    q = model.encode(replace(batch, mask=torch.zeros_like(batch.x, dtype=torch.bool)), seen=False)
    torch.testing.assert_close(q.mean, torch.zeros_like(q.mean), atol=0.03, rtol=0)
    torch.testing.assert_close(q.variance, torch.ones_like(q.variance), atol=0.05, rtol=0)


@pytest.mark.parametrize("name", GP_PRIORS)
def test_videos_of_which_nothing_is_seen_have_the_gp_as_their_bound(name: str) -> None:
    """What is left of the bound is -KL[q || GP], which refining brings near its maximum, 0."""
    data = dataset("gp_vae")
    model = started(data, f"model={name}", "dataset=moving_ball", encoder=small_encoder(), decoder=small_decoder())
    batch = data.test.all()
    blind = replace(batch, mask=torch.zeros_like(batch.x, dtype=torch.bool))
    start = model.recognise(blind)
    before, after = (
        expected(lambda q: model.gain(blind, q, None), q).sum() for q in (start, model.refine(blind, start))
    )
    assert before < -1 and after > -0.2 * before.abs()


def small_encoder() -> dict[str, Any]:
    return {"_target_": "src.nets.mlp.tanh_encoder", "hidden": 5}


def small_decoder() -> dict[str, Any]:
    return {"_target_": "src.nets.mlp.TanhDecoder", "hidden": 5}


SEARCHED = {"amortised": False}
GP_MODELS = [
    ("sas", ["active_set.size=5"], SEARCHED),
    ("bayesian_sas", ["active_set.size=5"], SEARCHED),
    ("gplvm", ["active_set.size=5"], SEARCHED),
    ("bayesian_gplvm", [], SEARCHED | {"num_inducing": 4, "samples": 2}),
    ("bayesian_gplvm", [], SEARCHED | {"num_inducing": 4, "bound": "collapsed"}),
]


@pytest.mark.parametrize(("name", "overrides", "options"), GP_MODELS)
def test_a_column_that_nobody_saw_could_as_well_not_exist(
    name: str, overrides: list[str], options: dict[str, Any]
) -> None:
    """Loss, gradients of kernel, noise and latents, and predictions equal those of the smaller dataset."""
    x = far_curve(12, 3).double()
    holed = x.clone()
    holed[:, 1] = torch.nan
    whole, smaller = incomplete(holed), Given(x[:, [0, 2]])
    models = [built(data, name, *overrides, **options) for data in (whole, smaller)]
    models[0].load_state_dict(
        {
            key: value
            for key, value in models[1].state_dict().items()
            if value.shape == models[0].state_dict()[key].shape
        },
        strict=False,
    )
    if name == "bayesian_gplvm" and "bound" not in options:
        models[0].q_mean.data[:, [0, 2]], models[0].q_mean.data[:, 1] = models[1].q_mean.data, 0
    (loss, gradients), (expected, expected_gradients) = (
        loss_of(model, rows(data)) for model, data in zip(models, (whole, smaller), strict=True)
    )
    extra = 0.0
    if "samples" in options:  # svi: q(u) of the unseen column has the shared covariance, and a KL
        extra = (models[0].q_v().kl() - models[1].q_v().kl()) / whole.facts.observed
    torch.testing.assert_close(loss - extra, expected)
    for key in ("kernel.raw_outputscale", "likelihood.learned.noise_covar.raw_noise", "latents.mean.weight"):
        torch.testing.assert_close(gradients[key], expected_gradients[key])
    for model, data in zip(models, (whole, smaller), strict=True):
        model.finalise(data)
    z = torch.randn(4, 2).double()
    with torch.no_grad():
        p, other = (model.decode(z) for model in models)
    torch.testing.assert_close(p.mean[:, [0, 2]], other.mean)
    torch.testing.assert_close(p.variance.expand(4, 3)[:, [0, 2]], other.variance.expand(4, 2))


def incomplete(x: Tensor, batch_size: int | None = None) -> Given:
    """Data with NaN where values are missing."""
    data = Given(x, batch_size)
    data.given = replace(data.given, mask=~x.isnan())
    data.other = data.given
    return data


def test_sas_with_patterns_is_the_direct_computation_output_by_output() -> None:
    """The whole objective of a full batch: Eq. 6 from the values that each output has, at the model's own latents."""
    x = far_curve(12, 4).double()
    x[torch.rand(12, 4, generator=torch.Generator().manual_seed(3)) < 0.3] = torch.nan
    data = incomplete(x)
    model = built(data, "sas", "active_set.size=5", amortised=False)
    batch = rows(data)
    mask = ~x.isnan()
    order = mask.all(1).argsort(descending=True, stable=True)  # complete points are active first
    assert 0 < mask.all(1).sum() < 5
    z, seen = model.latents.mean.weight[order], mask[order]
    centred = (x - x.nanmean(0))[order]
    k = add_diagonal(covariance(model.kernel, z, z), model.likelihood.noise)
    total = torch.zeros((), dtype=torch.float64)
    for d in range(4):
        active = seen[:5, d].nonzero().squeeze(1)
        total = total + MultivariateNormal(x.new_zeros(len(active)), k[active][:, active]).log_prob(centred[active, d])
        for n in (5 + seen[5:, d].nonzero().squeeze(1)).tolist():
            weights = torch.linalg.solve(k[active][:, active], k[active, n])
            sd = (k[n, n] - k[n, active] @ weights).sqrt()
            total = total + torch.distributions.Normal(weights @ centred[active, d], sd).log_prob(centred[n, d])
    torch.testing.assert_close(model.objective(batch).loss, -total / mask.sum())


def test_a_complete_active_set_takes_one_cholesky(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def counted(k: Tensor) -> Tensor:
        shapes.append(tuple(k.shape))
        return strict_cholesky(k)

    monkeypatch.setattr("src.gp.patterns.strict_cholesky", counted)
    x = far_curve(12, 4).double()
    x[::2, 1] = torch.nan
    data = incomplete(x)
    model = built(data, "bayesian_sas", "active_set.size=5")
    model.objective(rows(data))
    assert shapes == [(1, 5, 5)]


def test_data_means_and_facts_are_those_of_what_was_observed() -> None:
    x = noisy_curve(20, 3)
    x[:5, 0] = x[:, 2] = torch.nan
    data = incomplete(x)
    model = started(data, "model=vae")
    torch.testing.assert_close(model.data_mean, torch.stack([x[5:, 0].mean(), x[:, 1].mean(), torch.tensor(0.0)]))
    assert data.facts.observed == 35 and data.facts.patterns == 3
    assert model.latents.mean[1].in_features == 6  # values and mask


def test_encoders_see_the_mask_only_if_training_data_have_holes() -> None:
    seen = []
    for hidden in (None, "test", "both"):
        model = model_of(("vae", ["encoder=conv"]), dataset("vae", hidden))
        seen.append(model.latents.mean[0].in_channels)  # type: ignore[index]
    assert seen == [1, 1, 2]


def test_an_encoder_sees_holes_as_small_numbers_beside_the_centred_values() -> None:
    data = dataset("vae", "both")
    model, batch = model_of(("vae", []), data), data.train.all()
    x, mask = model.observed(batch)
    assert mask is not None
    seen = model.encoder_input(x.unflatten(1, model.shape), mask)
    values, holes = seen.chunk(2, 1)
    torch.testing.assert_close(values.flatten(1), x)
    torch.testing.assert_close(holes.flatten(1), 0.1 * (~mask).float())
    assert not model.encoder_input(x.unflatten(1, model.shape), None).chunk(2, 1)[1].any()


def test_costs_are_refused_with_the_reason_and_the_cost() -> None:
    x = torch.rand(40, 30, generator=torch.Generator().manual_seed(0))
    x[torch.rand(40, 30, generator=torch.Generator().manual_seed(1)) < 0.3] = torch.nan
    facts = incomplete(x)
    facts.setup()
    large = replace(facts.facts, num_train=5000, batch_size=5000, patterns=784)
    for name, message in (
        ("gplvm", r"784 patterns of missing values .* 1e\+14 operations per step, 784 times .* use model=sas"),
        ("sas", r"784 patterns of missing values .* operations per step"),
    ):
        model = build(small_spec(name) | {"active_set": 800 if name == "sas" else 6}, large)
        with pytest.raises(UserError, match=message):
            model.check(large)
    model = build(small_spec("bayesian_gplvm") | {"bound": "collapsed", "num_inducing": 100}, large)
    with pytest.raises(UserError, match=r"psi2 for each of the 784 patterns .* 4e\+10 exponentials .* model.bound=svi"):
        model.check(large)


@pytest.mark.parametrize("name", ["bayesian_sas", "bayesian_gplvm", "svgp_vae"])
def test_a_checkpoint_of_incomplete_data_predicts_alone(name: str, tmp_path: Path) -> None:
    data = dataset(name, "both")
    model = model_of((name, []), data).train()
    trainer = Trainer(**QUIET, max_epochs=2, default_root_dir=tmp_path)
    trainer.fit(model, datamodule=data)
    model.finalise(data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    again, batch = Model.load_from_checkpoint(tmp_path / "model.ckpt"), data.test.all()
    model.eval()
    q, same = model.encode(batch, seen=False), again.encode(batch, seen=False)
    assert torch.equal(q.mean, same.mean)
    with torch.no_grad():
        assert torch.equal(model.decode(q.mean).mean, again.decode(q.mean).mean)


def test_the_stored_active_set_has_the_holes_of_its_points() -> None:
    data = dataset("bayesian_sas", "both")
    model: Any = model_of(("bayesian_sas", []), data).eval()
    z = torch.randn(5, 2)
    with torch.no_grad():
        stored, same = model.decode(z), model.decode(z, model.given(data.train[model.active_index]))
    torch.testing.assert_close((stored.mean, stored.variance), (same.mean, same.variance))


def test_rows_of_q_are_those_of_the_batch() -> None:
    data = dataset("vae", "test")
    model, batch = model_of(("vae", []), data), data.test.all()
    index = torch.tensor([2, 0])
    part, whole = model.recognise(batch.part(index)), rows_of(model.recognise(batch), index)
    torch.testing.assert_close((part.mean, part.variance), (whole.mean, whole.variance))
