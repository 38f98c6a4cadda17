"""What a trained model does in Python, beside what the evaluation computes and what the distributions say."""

from typing import Any

import numpy as np
import pytest
import torch

from src.data.batch import Batch
from src.python.trained import Trained
from src.runs.errors import UserError
from tests.python.runs import digits, run_of

BITS = ("dataset.binary=true", "model.likelihood=bernoulli")
LATENT = ("sas", "bayesian_sas", "gplvm", "bayesian_gplvm", "vae")


@pytest.mark.parametrize("model", LATENT)
def test_encode_and_decode_are_those_of_the_model(model: str) -> None:
    run, x = run_of(model), digits()
    q = run.model.encode(Batch.of(torch.tensor(x).unsqueeze(1)), seen=False)
    found = run.encode(x)
    assert np.allclose(found.mean, q.mean.detach(), atol=1e-6)
    assert np.allclose(found.variance, q.variance.detach(), atol=1e-6)
    p = run.model.decode(q.mean)
    decoded = run.decode(found.mean)
    assert np.allclose(decoded.mean, p.mean.detach(), atol=1e-5)
    assert np.allclose(decoded.sd**2, p.variance.detach().expand_as(p.mean), atol=1e-5)
    noise = run.model.likelihood.noise.item()
    assert np.allclose(decoded.variance - decoded.variance_without_noise, noise, atol=1e-5)
    assert np.allclose(run.reconstruct(x).mean, decoded.mean, atol=1e-5)


def test_bytes_and_floats_give_the_same_latents_and_torch_gives_torch() -> None:
    run, x = run_of("bayesian_sas"), digits()
    grey = (x * 255).round().astype(np.uint8)
    assert np.allclose(run.encode(grey).mean, run.encode(grey / 255).mean, atol=1e-6)
    found = run.encode(torch.tensor(x))
    assert isinstance(found.mean, torch.Tensor) and np.allclose(found.mean, run.encode(x).mean)


def test_one_image_has_one_latent_point_and_one_point_decodes_to_one_image() -> None:
    run, x = run_of("bayesian_sas"), digits()
    z = run.encode(x[0])
    assert z.mean.shape == z.variance.shape == (2,)
    image = run.decode(z.mean, quantiles=(0.1, 0.5, 0.9))
    assert image.mean.shape == image.variance.shape == image.variance_without_noise.shape == (1, 8, 8)
    assert image.quantiles.shape == (3, 1, 8, 8)
    assert np.allclose(run.encode(x).mean[0], z.mean, atol=1e-5)


def test_what_encode_gave_can_be_decoded_and_joined_as_it_is() -> None:
    run, x = run_of("bayesian_sas"), digits()
    z = run.encode(x)
    assert np.array_equal(run.decode(z).mean, run.decode(z.mean).mean)
    first, second = run.encode(x[0]), run.encode(x[1])
    assert run.decode(first).mean.shape == (1, 8, 8)
    for path in ("straight", "geodesic"):
        found = run.interpolate(first, second, steps=5, path=path)
        assert np.allclose(found.z, run.interpolate(x[0], x[1], steps=5, path=path).z, atol=1e-5)


def test_a_model_without_a_record_says_what_it_is() -> None:
    """As estimators have it."""
    run = run_of("sas")
    assert repr(Trained(run.model)) == "<SAS of 200 points [1 x 8 x 8], 2 latent dimensions>"
    assert "latent" not in repr(Trained(run_of("sas_classifier").model))


def test_quantiles_are_those_of_the_normal() -> None:
    run = run_of("sas")
    found = run.decode([0.1, 0.2], quantiles=(0.5, 0.8413447))
    assert np.allclose(found.quantiles[0], found.mean, atol=1e-6)
    assert np.allclose(found.quantiles[1], found.mean + found.sd, atol=1e-5)
    with pytest.raises(UserError, match="1 must lie between 0 and 1"):
        run.decode([0.1, 0.2], quantiles=(0.5, 1))


def test_there_are_gradients_in_the_input_only_if_they_are_asked_for() -> None:
    run, x, z = run_of("sas"), torch.tensor(digits(), requires_grad=True), torch.zeros(3, 2, requires_grad=True)
    assert not run.encode(x).mean.requires_grad and not run.decode(z).mean.requires_grad
    (slope,) = torch.autograd.grad(run.encode(x, gradients=True).mean.sum(), x)
    assert slope.abs().sum() > 0
    (slope,) = torch.autograd.grad(run.decode(z, gradients=True).mean.sum(), z)
    step = torch.tensor([[1e-3, 0.0]])
    run.model.double()
    run.__dict__.pop("given", None)
    try:
        rise = (run.decode(z + step).mean - run.decode(z - step).mean).flatten(1).sum(1) / 2e-3
        assert torch.allclose(slope[:, 0].double(), rise.double(), rtol=1e-2)
    finally:
        run.model.float()
        run.__dict__.pop("given", None)


def test_a_mask_hides_what_nan_hides() -> None:
    run, x = run_of("bayesian_sas"), digits()
    mask = np.ones_like(x, bool)
    mask[:, :4] = False
    hidden = np.where(mask, x, np.nan)
    assert np.allclose(run.encode(x, mask=mask).mean, run.encode(hidden).mean)
    assert not np.allclose(run.encode(x).mean, run.encode(hidden).mean)


def test_imputation_keeps_what_was_observed_and_knows_the_rest_better_than_chance() -> None:
    run, x = run_of("bayesian_sas"), digits(20)
    holes = x.copy()
    holes[:, 4:] = np.nan
    found = run.impute(holes)
    assert found.x.shape == (20, 1, 8, 8)
    assert np.array_equal(found.x[:, 0, :4], x[:, :4]) and np.array_equal(found.x[:, 0, 4:], found.mean[:, 0, 4:])
    assert (found.variance > 0).all()
    error = np.square(found.x[:, 0, 4:] - x[:, 4:]).mean()
    assert error < np.square(x[:, 4:] - x[:, 4:].mean()).mean()
    complete = run.impute(x[0])
    assert complete.x.shape == (1, 8, 8) and np.allclose(complete.x[0], x[0])


@pytest.mark.parametrize("model", ["sas", "bayesian_sas", "vae"])
def test_samples_are_a_function_of_the_seed(model: str) -> None:
    run = run_of(model)
    first, again, other = run.sample(300, seed=1), run.sample(300, seed=1), run.sample(300, seed=2)
    assert np.array_equal(first.x, again.x) and not np.array_equal(first.x, other.x)
    assert np.allclose(run.decode(first.z).mean, first.mean, atol=1e-5)
    assert run.sample(0).x.shape == (0, 1, 8, 8)
    with pytest.raises(UserError, match="count=-1 must not be negative"):
        run.sample(-1)
    deviation = (first.x - first.mean) / run.decode(first.z).sd
    assert abs(deviation.std() - 1) < 0.05 and abs(deviation.mean()) < 0.05


def test_latents_of_samples_follow_the_prior_or_the_training_latents() -> None:
    prior = run_of("vae").sample(4000).z
    assert np.allclose(np.cov(prior.T), np.eye(2), atol=0.1) and np.allclose(prior.mean(0), 0, atol=0.1)
    run = run_of("sas")
    known = run.model.encode(run.model.stored_active_set(), seen=True).mean.detach().double().numpy()
    width = len(known) ** (-1 / 6)  # Scott's rule in two dimensions
    expected = np.cov(known.T, ddof=0) + width**2 * np.cov(known.T)
    drawn = run.sample(6000).z
    assert np.allclose(np.cov(drawn.T), expected, rtol=0.15, atol=0.05 * np.trace(expected))


def test_free_latents_and_bits_can_be_sampled() -> None:
    free = run_of("sas", "model.amortised=false").sample(3)
    assert free.x.shape == (3, 1, 8, 8) and np.isfinite(free.x).all()
    run = run_of("sas", *BITS)
    bits = run.sample(50)
    assert set(np.unique(bits.x)) <= {0.0, 1.0} and abs(bits.x.mean() - bits.mean.mean()) < 0.03
    found = run.decode(bits.z, quantiles=(0.3,))
    assert found.variance_without_noise is None
    assert np.array_equal(found.quantiles[0], (found.mean > 0.7).astype(np.float32))


def test_warped_images_have_variances_and_quantiles_between_0_and_1() -> None:
    run = run_of("sas", "model.warp=logit")
    found = run.decode(np.zeros((2, 2)), quantiles=(0.05, 0.95))
    assert (found.variance_without_noise < found.variance).all()
    assert (
        (found.quantiles[0] <= found.quantiles[1]).all() and found.quantiles.min() >= 0 and found.quantiles.max() <= 1
    )
    assert (run.sample(5).x >= 0).all()


def test_a_straight_path_has_even_steps_between_images_or_latent_points() -> None:
    run, x = run_of("sas"), digits()
    path = run.interpolate(x[0], x[1], steps=5)
    ends = run.encode(x[:2]).mean
    assert np.allclose(path.z, ends[0] + np.linspace(0, 1, 5)[:, None] * (ends[1] - ends[0]), atol=1e-5)
    assert np.allclose(path.mean, run.decode(path.z).mean, atol=1e-5)
    assert np.allclose(run.interpolate(ends[0], x[1], steps=5).z, path.z, atol=1e-5)
    with pytest.raises(UserError, match="at least 2"):
        run.interpolate(x[0], x[1], steps=1)
    with pytest.raises(UserError, match="b holds 4 observations"):
        run.interpolate(x[0], x)
    with pytest.raises(UserError, match="path=spiral is not known"):
        run.interpolate(x[0], x[1], path="spiral")  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["sas", "bayesian_gplvm", "vae"])
def test_a_geodesic_has_the_same_ends_and_no_more_energy_than_the_straight_line(model: str) -> None:
    run, x = run_of(model), digits(20)

    def energy(z: np.ndarray) -> float:
        middle, step = torch.tensor((z[1:] + z[:-1]) / 2), torch.tensor(np.diff(z, axis=0))
        with torch.no_grad():
            g = run.model.metric(middle, run.given).to(step)
        return (len(z) - 1) * torch.einsum("nq,nqr,nr->", step, g, step).item()

    straight, curve = (run.interpolate(x[3], x[10], steps=101, path=path) for path in ("straight", "geodesic"))
    assert np.allclose(curve.z[[0, -1]], straight.z[[0, -1]], atol=1e-5)
    assert energy(curve.z) <= energy(straight.z) * (1 + 1e-3)
    assert np.allclose(curve.mean, run.decode(curve.z).mean, atol=1e-5)


@pytest.mark.parametrize("model", ["cvae", "gp_vae", "svgp_vae"])
def test_models_of_videos_take_the_video_and_the_time_of_each_image(model: str) -> None:
    sizes = ("num_train_videos=4", "num_test_videos=2", "batch_videos=2", "steps_per_epoch=2")
    run = run_of(model, *(f"dataset.{size}" for size in sizes), "trainer.max_epochs=1", dataset="moving_ball")
    x = np.random.default_rng(0).random((30, 32, 32)).astype(np.float32)
    aux = np.stack([np.zeros(30), np.arange(30)], 1)
    z = run.encode(x, aux=aux)
    assert z.mean.shape == (30, 2) and run.impute(x, aux=aux).x.shape == (30, 1, 32, 32)
    assert np.allclose(run.reconstruct(x, aux=aux).mean, run.decode(z, aux=aux).mean, atol=1e-5)
    drawn = run.sample(30, aux=aux)
    assert drawn.x.shape == (30, 1, 32, 32) and np.allclose(run.decode(drawn.z, aux=aux).mean, drawn.mean, atol=1e-5)
    ends = [run.encode(x[i], aux=aux[0]).mean for i in (0, 1)]
    for path in ("straight", "geodesic"):
        found = run.interpolate(x[0], x[1], steps=3, path=path, aux=aux[0])
        assert np.allclose(found.z[[0, -1]], ends, atol=1e-5) and found.mean.shape == (3, 1, 32, 32)
    with pytest.raises(UserError, match=r"needs aux=\[n, 2\], the columns video, time"):
        run.sample(3)


def test_classes_have_probabilities_and_names() -> None:
    run, x = run_of("sas_classifier"), digits(30)
    p = run.predict_proba(x)
    assert p.shape == (30, 10) and np.allclose(p.sum(1), 1, atol=1e-5)
    assert np.array_equal(run.predict(x), p.argmax(1)) and run.classes == tuple(map(str, range(10)))
    one = run.predict(torch.tensor(x[0]))
    assert isinstance(one, torch.Tensor) and one.shape == () and int(one) == p[0].argmax()
    with pytest.raises(UserError, match="no latent space, so it cannot encode: it has predict"):
        run.encode(x)
    with pytest.raises(UserError, match="complete observations"):
        run.predict(np.where(x > 0.5, np.nan, x))
    with pytest.raises(UserError, match="predicts no target, so it cannot predict_proba"):
        run_of("sas").predict_proba(x)


def test_real_targets_have_means_variances_and_quantiles(tmp_path: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows, y=rows[:, 0])
    small = (
        f"dataset.train={tmp_path / 'rows.npz'}",
        "dataset.max_train=60",
        "dataset.max_test=8",
        "dataset.batch_size=40",
    )
    run = run_of("sas_regression", *small, dataset="array")
    found = run.predict(rows, quantiles=(0.5,))
    assert found.mean.shape == found.variance.shape == (80, 1) and np.allclose(found.quantiles[0], found.mean)
    with pytest.raises(UserError, match="no classes"):
        run.predict_proba(rows)


def test_a_standardised_table_answers_in_its_own_units(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).normal(loc=(1000, 5, -3), scale=(50, 1, 0.1), size=(80, 3))
    pandas.DataFrame(rows, columns=["a", "b", "c"]).to_csv(tmp_path / "rows.csv", index=False)
    small = (
        f"dataset.train={tmp_path / 'rows.csv'}",
        "dataset.max_train=60",
        "dataset.max_test=8",
        "dataset.batch_size=40",
    )
    run = run_of("sas", *small, dataset="table")
    found = run.reconstruct(rows)
    assert np.allclose(found.mean.mean(0), (1000, 5, -3), rtol=0.1)
    assert np.all(found.sd.mean(0) < (60, 1.2, 0.12)) and found.sd[:, 0].mean() > 10
    assert abs(run.sample(200).x.mean(0)[0] - 1000) < 30
    assert np.allclose(run.impute(rows).x, rows, rtol=1e-4)
