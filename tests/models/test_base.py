"""What all models share: values as floats, centring, q(z) of unseen points, steps and their rates."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from src.data.batch import Batch, split_of
from src.data.facts import Facts, Target
from src.models.base import Model, build
from src.models.refining import nearest
from src.models.sas import SAS
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, noisy_curve, rows, spec_of

LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}
LINEAR_DECODER = {"_target_": "src.nets.mlp.mlp_decoder", "hidden": []}
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def sas(data: Given, *overrides: str, **arguments: Any) -> Any:
    return built(data, "sas", "active_set.size=4", *overrides, encoder=LINEAR, **arguments)


def test_bytes_become_0_to_1_and_stay_bytes_in_the_batch() -> None:
    x = torch.tensor([[0, 51, 255], [1, 2, 3], [9, 9, 9], [4, 4, 4], [5, 6, 7]], dtype=torch.uint8)
    model = sas(Given(x))
    batch = rows(loaded(Given(x)))
    before = batch.x.clone()
    torch.testing.assert_close(model.as_float(batch.x), x.double() / 255)
    torch.testing.assert_close(model.centred(batch.x), x.double() / 255 - (x.double() / 255).mean(0))
    assert torch.equal(batch.x, before) and model.as_float(batch.x).dtype == torch.float64


def loaded(data: Given) -> Given:
    data.setup()
    return data


def test_floats_are_taken_as_they_are_and_are_not_changed() -> None:
    data = Given(far_curve(12).double())
    model, x = sas(data), far_curve(12).double()
    before = x.clone()
    torch.testing.assert_close(model.as_float(x), x)
    torch.testing.assert_close(model.centred(x), x - x.mean(0))
    torch.testing.assert_close(model.uncentred(model.centred(x)), x)
    model.objective(Batch.of(x))
    assert torch.equal(x, before)


def test_the_mean_is_that_of_all_training_data_and_of_no_other() -> None:
    """In pieces, since the data may be larger than the memory."""
    x = torch.rand(9000, 2, generator=torch.Generator().manual_seed(0)) + torch.tensor([3.0, -8.0])
    model = sas(Given(x, batch_size=50, test=split_of(x + 1)))
    torch.testing.assert_close(model.data_mean, x.double().mean(0))


def test_free_latents_start_at_whitened_principal_components() -> None:
    data = Given(far_curve(12))
    z = sas(data, amortised=False).latents.mean.weight.detach()
    x = far_curve(12).double()
    u, _, _ = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    torch.testing.assert_close(z.abs(), (math.sqrt(11) * u[:, :2]).abs(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(z.T.cov(), torch.eye(2).double(), rtol=1e-5, atol=1e-5)


def test_a_decoded_normal_has_the_mean_of_the_data_and_one_sd_per_point() -> None:
    model = sas(Given(far_curve(12)))
    p = model.normal(torch.zeros(2, 3).double(), torch.tensor([4.0, 9.0]).double())
    torch.testing.assert_close(p.mean, model.data_mean.expand(2, 3))
    torch.testing.assert_close(p.stddev, torch.tensor([[2.0], [3.0]]).double().expand(2, 3))


def test_terms_are_per_observed_value_and_parts_have_no_gradient() -> None:
    model = sas(Given(far_curve(12)))
    fit, kl = torch.tensor(-72.0, requires_grad=True), torch.tensor(18.0)
    loss, parts = model.per_value({"fit": fit, "kl": -kl}, jitter=0.5)
    assert loss.item() == pytest.approx(90 / 36) and loss.requires_grad
    assert {name: float(part) for name, part in parts.items()} == {"fit": -2.0, "kl": -0.5, "jitter": 0.5}
    assert not any(isinstance(part, Tensor) and part.requires_grad for part in parts.values())


def test_seen_rows_have_their_own_latents_and_an_encoder_takes_any() -> None:
    data = Given(far_curve(12), test=split_of(far_curve(20)))
    free, amortised = sas(data, amortised=False), sas(data)
    batch = rows(data, 7, 2)
    torch.testing.assert_close(free.encode(batch, seen=True).mean, free.latents.mean.weight[[7, 2]])
    x = batch.x.double() - far_curve(12).double().mean(0)
    layer = amortised.latents.mean[1]
    for seen in (True, False):
        torch.testing.assert_close(amortised.encode(batch, seen).mean, x @ layer.weight.mT + layer.bias)


def linear_vae(posterior: str) -> tuple[Any, Tensor]:
    """A VAE with free latents whose decoder is W z + mean: probabilistic PCA. Also five unseen points."""
    data = Given(noisy_curve(30) + 4)
    model = built(data, "vae", decoder=LINEAR_DECODER, amortised=False, posterior=posterior)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.net[0].bias.zero_()
        w = torch.linalg.qr(torch.randn(5, 2, generator=generator).double())[0]
        model.net[0].weight.copy_(w * torch.tensor([2.0, 0.7]))
        z = torch.randn(5, 2, generator=generator).double()
        x = model.data_mean + z @ model.net[0].weight.mT + 0.3 * torch.randn(5, 5, generator=generator)
    return model, x


def exact_posterior(model: Any, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of p(z | x) of one point with some of its values observed, and the variances of the best diagonal q.

    These are 1 / precision_qq: the columns of W are orthogonal only if everything was observed.
    """
    w, noise = model.net[0].weight.detach()[observed], model.likelihood.noise.item()
    precision = torch.eye(2).double() + w.mT @ w / noise
    return torch.linalg.solve(precision, w.mT @ (x - model.data_mean)[observed] / noise), 1 / precision.diagonal()


def test_unseen_points_of_a_linear_decoder_have_the_exact_posterior() -> None:
    """Of whatever was observed of each. The search is stochastic: 50 copies of each point are averaged."""
    model, x = linear_vae("diagonal")
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2, 3:] = mask[4, 0] = False
    torch.manual_seed(0)
    q = model.encode(Batch(x.repeat(50, 1), torch.arange(250), mask=mask.repeat(50, 1)), seen=False)
    mean, variance = (values.unflatten(0, (50, 5)).mean(0) for values in (q.mean, q.variance))
    for row in range(5):
        exact_mean, exact_variance = exact_posterior(model, x[row], mask[row])
        torch.testing.assert_close(mean[row], exact_mean, atol=0.03, rtol=0)
        torch.testing.assert_close(variance[row], exact_variance, atol=0, rtol=0.1)


@pytest.mark.parametrize("hidden", [math.nan, 1e3])
def test_values_that_were_not_observed_play_no_part_in_q(hidden: float) -> None:
    model, x = linear_vae("diagonal")
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2, 3:] = mask[4, 0] = False
    answers = []
    for behind in (0.0, hidden):
        answers.append(model.encode(Batch.of(x.masked_fill(~mask, behind), mask=mask), seen=False))
    torch.testing.assert_close(answers[0].mean, answers[1].mean)
    torch.testing.assert_close(answers[0].variance, answers[1].variance)


def test_the_nearest_image_is_that_of_the_observed_values() -> None:
    images = torch.tensor([[0.0, 0, 0], [1, 1, 5], [4, 1, 1]])
    x = torch.tensor([[1.0, 1, 1], [3.0, 3, 5], [0.9, 1.2, math.nan]])
    mask = torch.tensor([[True, True, False], [True, True, True], [False, True, False]])
    assert nearest(x[:2], images, None).tolist() == [0, 1]
    assert nearest(x, images, mask).tolist()[:2] == [1, 1] and nearest(x, images, mask)[2] in (1, 2)


def test_unseen_points_start_at_the_known_latent_with_the_nearest_image() -> None:
    model, _ = linear_vae("diagonal")
    known = model.latents.mean.weight.detach()
    images = known @ model.net[0].weight.detach().mT + model.data_mean
    q = model.nearest_known(Batch.of(images[[17, 3]]))
    torch.testing.assert_close(q.mean, known[[17, 3]])


def test_encoding_leaves_the_decoder_as_it_is() -> None:
    model, x = linear_vae("diagonal")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.encode(Batch.of(x), seen=False)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert all(p.grad is None for p in model.parameters())


def test_a_checkpoint_keeps_spec_facts_and_precision(tmp_path: Path) -> None:
    data = Given(far_curve(12))
    model = sas(data)
    checkpoint: dict[str, Any] = {"state_dict": model.state_dict()}
    model.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "model.ckpt")
    again = Model.load_from_checkpoint(tmp_path / "model.ckpt")
    assert isinstance(again, SAS) and again.facts == model.facts and again.spec == model.spec
    assert again.dtype == torch.float64 and not again.training
    z = torch.zeros(2, 2).double()
    assert torch.equal(again.decode(z).mean, model.decode(z).mean)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Opens:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "opened",)

    torch.save({"state_dict": {}, "model": Opens()}, tmp_path / "model.ckpt")
    with pytest.raises(Exception, match=r"weights_only|Weights only"):
        Model.load_from_checkpoint(tmp_path / "model.ckpt")
    assert not (tmp_path / "opened").exists()


def test_specs_that_do_not_fit_are_refused_in_a_sentence() -> None:
    facts = Facts((3,), 12, 12)
    spec = spec_of("model=sas", "active_set.size=4")
    with pytest.raises(UserError, match=r"SAS has no option model\.latent_dimm"):
        build(spec | {"latent_dimm": 3}, facts)
    with pytest.raises(UserError, match=r"SAS: .*missing.*kernel"):
        build({name: value for name, value in spec.items() if name != "kernel"}, facts)
    with pytest.raises(UserError, match=r"model\.posterior=full does not fit SAS: point"):
        build(spec | {"posterior": "full"}, facts)


def test_data_that_do_not_fit_are_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"model\.amortised=false needs the same data in every epoch"):
        sas(Given(far_curve(12), told={"fresh": True}), amortised=False)
    sas(Given(far_curve(12), told={"fresh": True}))


def test_a_predictor_needs_a_target() -> None:
    spec = {"_target_": "tests.models.linear_gaussian.LinearGaussian", "optimizer": spec_of("model=sas")["optimizer"]}
    facts = Facts((3,), 12, 12, target=Target("real", 2))
    build(spec, facts).check(facts)
    with pytest.raises(UserError, match="LinearGaussian predicts a target, but the dataset has none"):
        build(spec, facts).check(Facts((3,), 12, 12))
    for incomplete in (replace(facts, complete=False), replace(facts, complete_test=False)):
        with pytest.raises(UserError, match="LinearGaussian needs complete data"):
            build(spec, facts).check(incomplete)
