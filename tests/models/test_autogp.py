"""AutoGP against exact GP regression, GPyTorch's SVGP, and itself in other forms."""

import math
from pathlib import Path
from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from pytorch_lightning import Trainer
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal

from src.data.batch import split_of
from src.data.images import Digits
from src.gp.mixture import divergence_bound
from src.gp.sparse import JITTER
from src.models.autogp import AutoGP
from src.models.likelihoods import Bernoulli, Gaussian, RegressionNetwork
from src.models.phases import Phase
from src.runs.errors import UserError
from tests.models.builders import Given, first_batch, started
from tests.models.direct import regression, slopes

SHARES = ("none", "inducing", "all")
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def reals(num_data: int = 12, inputs: int = 2, outputs: int = 2, batch_size: int | None = None) -> Given:
    """Inputs and real targets that are not standardised."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_data, inputs, generator=generator)
    waves = [torch.sin((1.5 + p) * x.sum(1)) for p in range(outputs)]
    y = torch.stack(waves, 1) + 0.2 * torch.randn(num_data, outputs, generator=generator)
    return Given(3 * x + 7, batch_size, y=20 * y - 5)


def classes(size: int = 3, num_data: int = 30, inputs: int = 2, batch_size: int | None = None) -> Given:
    """Inputs in `size` clusters."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(num_data) % size
    centres = 3 * torch.randn(size, inputs, generator=generator)
    return Given(centres[y] + torch.randn(num_data, inputs, generator=generator), batch_size, y=y)


def made(data: Given, *overrides: str, dtype: torch.dtype = torch.float64, **arguments: Any) -> AutoGP:
    """The model with parameters that no slip leaves as they are."""
    options = {"num_inducing": 5, **arguments}
    model: AutoGP = started(data, "model=autogp", *(overrides or ["kernel=rbf_ard"]), dtype=dtype, **options)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator).to(dtype)
    return model


def probabilities(model: AutoGP, x: Tensor) -> Tensor:
    """Those of the classes."""
    p = model.predict(x)
    assert isinstance(p, Categorical)
    return p.probs


def standardised(data: Given) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the training data."""
    train = data.train.all()
    assert train.y is not None
    x, y = train.x.double(), train.y.double()
    return (x - x.mean(0)) / x.std(0, correction=0), (y - y.mean(0)) / y.std(0, correction=0)


def at_all_inputs(start: float = 0.1) -> tuple[AutoGP, Given, Tensor, list[Tensor], Tensor]:
    """M = N and Z = X with the exact posterior: model, data, standardised targets, covariances, noises [P]."""
    data = reals()
    model = made(data, num_inducing=12, noise=start)
    assert isinstance(model.likelihood, Gaussian)
    (x, y), noise = standardised(data), model.likelihood.noise.detach()
    covariances = []
    with torch.no_grad():
        model.inducing.copy_(x.expand_as(model.inducing))
        for p in range(2):
            k = model.kernel[p](x).to_dense()
            chol = torch.linalg.cholesky(k + JITTER * k.diagonal().mean() * torch.eye(12))
            cov = torch.linalg.inv(torch.eye(12) + chol.mT @ chol / noise[p])
            factor = torch.linalg.cholesky(cov)
            model.q_mean[0, p] = cov @ chol.mT @ y[:, p] / noise[p]
            model.q_raw_scale[0, p] = factor.tril(-1) + factor.diagonal().expm1().log().diag()
            covariances.append(k)
    return model, data, y, covariances, noise


def test_at_all_inputs_the_bound_is_the_exact_log_marginal_likelihood() -> None:
    model, data, y, covariances, noise = at_all_inputs()
    exact = [
        MultivariateNormal(torch.zeros(12, dtype=torch.float64), k + s2 * torch.eye(12)).log_prob(target)
        for k, s2, target in zip(covariances, noise, y.mT, strict=True)
    ]
    loss = model.objective(data.train.all()).loss
    torch.testing.assert_close(-loss * 12 * 2, torch.stack(exact).sum(), rtol=1e-5, atol=0)


def test_at_all_inputs_predictions_are_the_exact_gps_in_the_units_of_the_data() -> None:
    model, data, y, covariances, noise = at_all_inputs()
    new = 3 * torch.randn(4, 2, generator=torch.Generator().manual_seed(5)).double() + 7
    prediction = model.predict(new)
    train = data.train.all()
    assert isinstance(prediction, Normal) and train.y is not None
    x = (new - train.x.double().mean(0)) / train.x.double().std(0, correction=0)
    known = standardised(data)[0]
    for p in range(2):
        kernel, identity = model.kernel[p], torch.eye(12)
        mean, cov = regression(
            covariances[p] + noise[p] * identity, kernel(known, x).to_dense(), kernel(x).to_dense(), y[:, p : p + 1]
        )
        location, unit = train.y[:, p].double().mean(), train.y[:, p].double().std(correction=0)
        torch.testing.assert_close(prediction.mean[:, p], location + unit * mean.squeeze(1), rtol=1e-5, atol=1e-4)
        expected = unit * (cov.diagonal() + noise[p]).sqrt()
        torch.testing.assert_close(prediction.stddev[:, p], expected, rtol=1e-4, atol=0)


def test_leave_one_out_with_the_exact_posterior_is_that_of_rasmussen_and_williams() -> None:
    """Eq. 5.10 to 5.12, the sum over points and independent targets; 20,000 samples, whose error is below 1 %.

    With much noise: with little, 1 / p(y | f) has such tails that no number of samples would do.
    """
    model, data, y, covariances, noise = at_all_inputs(start=2.0)
    model.likelihood.samples = 20_000
    expected = 0.0
    for p in range(2):
        inverse = torch.linalg.inv(covariances[p] + noise[p] * torch.eye(12))
        variance = 1 / inverse.diagonal()
        mean = y[:, p] - (inverse @ y[:, p]) * variance
        expected += Normal(mean, variance.sqrt()).log_prob(y[:, p]).sum()
    torch.manual_seed(0)
    loss, parts = model.leave_one_out(data.train.all())
    torch.testing.assert_close(-24 * loss, expected, rtol=0.01, atol=0)
    torch.testing.assert_close(loss, -parts["loo"])
    assert 1 < parts["sample_size"] < 20_000


class SVGP(gpytorch.models.ApproximateGP):
    """GPyTorch's model with the parameters of ours."""

    def __init__(self, model: AutoGP) -> None:
        num_functions, num_inducing = model.q_mean.shape[1:]
        each = torch.Size([num_functions])
        q_u = CholeskyVariationalDistribution(num_inducing, batch_shape=each)
        q_u.variational_mean.data.copy_(model.q_mean[0])
        q_u.chol_variational_covar.data.copy_(model.scale()[0])
        strategy = VariationalStrategy(self, model.inducing.detach(), q_u, learn_inducing_locations=True)
        strategy.variational_params_initialized.fill_(1)
        super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_tasks=num_functions))
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=each)
        self.covar_module = model.kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_gpytorchs_svgp_has_the_same_bound() -> None:
    """To 1e-6, with kernel, inducing inputs and q(u) of each output, in batches. GPyTorch's jitter is absolute."""
    data = reals(batch_size=6)
    model = made(data)
    model.kernel.outputscale = 1.0
    batch = first_batch(data)
    with torch.no_grad():
        x, y = model.standardised(batch.x), model.observed(batch)
        theirs = SVGP(model).double()
        likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2, rank=0, has_global_noise=False)
        likelihood.task_noises = model.likelihood.noise
        elbo = VariationalELBO(likelihood.double(), theirs, num_data=12)
        with gpytorch.settings.variational_cholesky_jitter(double_value=JITTER):
            expected = elbo(theirs(x), y)
        torch.testing.assert_close(-2 * model.objective(batch).loss, expected, rtol=1e-6, atol=1e-6)


def test_one_component_differs_from_its_mixture_by_a_constant() -> None:
    model = made(classes())
    bound = divergence_bound(model.log_weights(), model.q_mean, model.scale())
    excess = 3 * 5 * (1 - math.log(2)) / 2
    torch.testing.assert_close(bound, model.divergence() + excess)


@pytest.mark.parametrize("share", SHARES)
def test_two_equal_components_are_one(share: str) -> None:
    """Everything but the constant of the divergence: expectations, and predictions, which are mixtures."""
    data = reals()
    one, two = (made(data, share=share, components=k) for k in (1, 2))
    copied = {n: p.expand_as(two.state_dict()[n]) for n, p in one.state_dict().items() if n != "q_raw_weights"}
    two.load_state_dict(copied | {"q_raw_weights": torch.tensor([0.3, -0.4])})
    parts = [model.objective(data.train.all()).parts for model in (one, two)]
    torch.testing.assert_close(parts[0]["likelihood"], parts[1]["likelihood"])
    torch.testing.assert_close(parts[0]["kl"], parts[1]["kl"] + 5 * (1 - math.log(2)) / 2 / 12)
    p, mixture = (model.predict(data.train.all().x) for model in (one, two))
    assert isinstance(mixture, MixtureSameFamily)
    torch.testing.assert_close((p.mean, p.variance), (mixture.mean, mixture.variance))


@pytest.mark.parametrize("components", [1, 2])
def test_what_is_shared_does_not_matter_if_all_are_equal(components: int) -> None:
    data = reals()
    models = {share: made(data, share=share, components=components) for share in SHARES}
    shared = models["all"].state_dict()
    for model in models.values():
        model.load_state_dict({n: fitted(shared[n], p) for n, p in model.state_dict().items()})
    answers = [(m.objective(data.train.all()).loss, m.predict(data.train.all().x).mean) for m in models.values()]
    assert [len(m.inducing) for m in models.values()] == [2, 1, 1]
    assert [m.kernel.batch_shape for m in models.values()] == [(2,), (2,), ()]
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0])


def fitted(value: Tensor, like: Tensor) -> Tensor:
    """A parameter that is shared, repeated for those that have one each."""
    if value.ndim < like.ndim:
        value = value.unsqueeze(0)
    return value.expand_as(like)


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (reals(batch_size=4), {}),
        (reals(batch_size=4), {"likelihood": "gprn", "components": 2}),
        (classes(2, batch_size=10), {"likelihood": "bernoulli", "covariance": "diagonal"}),
    ],
    ids=["gaussian", "gprn", "bernoulli"],
)
def test_the_mean_over_disjoint_batches_is_the_full_objective(data: Given, arguments: dict[str, Any]) -> None:
    model = made(data, **arguments)
    rows = torch.arange(len(data.train)).split(data.batch_size)
    losses = [model.objective(data.train[index]).loss for index in rows]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(data.train.all()).loss)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("likelihood", [None, "gprn"])
def test_the_gradient_is_the_slope_of_the_loss(likelihood: str | None, covariance: str) -> None:
    for data in (reals(), classes()) if likelihood is None else (reals(),):
        model = made(data, likelihood=likelihood, covariance=covariance, components=2)
        by_gradient, by_values = slopes(model, data.train.all())
        assert by_gradient == pytest.approx(by_values, rel=1e-4, abs=1e-6)
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_two_classes_by_softmax_are_bits_with_the_difference_of_the_logits() -> None:
    """The same probabilities, to the accuracy of the draws of f."""
    data = classes(2)
    softmax, bits = made(data), made(data, likelihood="bernoulli")
    x = data.train.all().x
    mean, variance, _ = softmax.marginals(softmax.standardised(x))
    expected = Bernoulli().predictive(mean[0, :, 1] - mean[0, :, 0], variance.sum(-1)[0]).probs
    torch.testing.assert_close(probabilities(softmax, x)[:, 1], expected, rtol=0, atol=3e-3)
    assert probabilities(bits, x).shape == (30, 2) and bits.q_mean.shape[1] == 1
    torch.testing.assert_close(probabilities(bits, x).sum(1), torch.ones(30).double())


def test_a_prediction_is_a_function_of_the_point_alone() -> None:
    """Whatever random numbers were drawn before, and in whatever batch the point comes; nothing is drawn."""
    model, x = made(classes()), classes().given.all().x
    state = torch.get_rng_state()
    together = probabilities(model, x)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    torch.testing.assert_close(torch.cat([probabilities(model, part) for part in x.split(7)]), together)


def test_the_start() -> None:
    """Inducing inputs lie among the standardised data, which have mean 0 and sd 1; all GPs start there."""
    x = torch.cat([classes(inputs=4).given.all().x.repeat(4, 1), torch.full((120, 1), 5.0)], 1)
    data = Given(x, y=torch.arange(120) % 3)
    model: AutoGP = started(data, "model=autogp", num_inducing=10)
    rows = model.standardised(x)
    torch.testing.assert_close(rows.std(0, correction=0), torch.tensor([1.0, 1, 1, 1, 0]), rtol=1e-4, atol=1e-6)
    assert model.inducing.shape == (3, 10, 5) and torch.equal(model.inducing[0], model.inducing[2])
    nearest = torch.cdist(model.inducing[0], rows).min(1).values
    assert len(model.inducing[0].unique(dim=0)) == 10 and nearest.max() < torch.pdist(rows).median()


def test_the_pixels_of_an_image_share_one_scale() -> None:
    x = torch.randint(0, 256, (60, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[:, :, 0] //= 100  # almost always black
    model: AutoGP = started(Given(x, y=torch.arange(60) % 3), "model=autogp", num_inducing=10)
    variances = model.standardised(x).var(0, correction=0)
    torch.testing.assert_close(variances.mean(), torch.tensor(1.0))
    assert variances[:4].max() < 0.01


def test_real_targets_of_other_units_give_the_same_model() -> None:
    data = reals()
    train = data.given.all()
    assert train.y is not None
    other = Given(train.x, y=train.y / 20 + 3)
    first, second = made(data), made(other)
    torch.testing.assert_close(first.objective(train).loss, second.objective(other.given.all()).loss, rtol=1e-6, atol=0)
    p, q = first.predict(train.x), second.predict(train.x)
    torch.testing.assert_close(p.mean / 20 + 3, q.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(p.stddev / 20, q.stddev, rtol=1e-5, atol=0)


def test_a_prediction_of_the_network_is_a_mixture_in_the_units_of_the_data() -> None:
    """Mean and variance of w g + noise by the moments of w and g."""
    data = reals()
    model = made(data, likelihood="gprn")
    assert model.q_mean.shape[1] == 3 and isinstance(model.likelihood, RegressionNetwork)
    x = data.train.all().x
    with torch.no_grad():
        mean, variance, _ = model.marginals(model.standardised(x))
        p = model.predict(x)
    (w, g), (v, u) = ((m[0, :, :2], m[0, :, 2:]) for m in (mean, variance))
    noise, unit = model.likelihood.observed.noise.detach(), model.targets.scale
    torch.testing.assert_close(p.mean, model.targets.mean + unit * w * g, rtol=1e-6, atol=1e-6)
    spread = v * (g**2 + u) + w**2 * u + noise
    torch.testing.assert_close(p.variance, unit**2 * spread, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kernel", ["rbf", "rbf_ard", "matern52", "rational_quadratic", "arc_cosine"])
@pytest.mark.parametrize("share", ["none", "all"])
def test_every_kernel_on_many_inputs(kernel: str, share: str) -> None:
    """A step of the bound and one of leave-one-out on images of 3,072 values, in float32."""
    torch.manual_seed(0)
    data = Given(torch.randint(0, 256, (12, 3, 32, 32)).byte(), 6, y=torch.arange(12) % 3)
    model: AutoGP = started(data, "model=autogp", f"kernel={kernel}", share=share, num_inducing=4)
    batch = first_batch(data)
    for objective in (model.objective, model.leave_one_out):
        model.zero_grad()
        objective(batch).loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.kernel.parameters())
        assert model.inducing.grad is not None and model.inducing.grad.any()


def test_deep_arc_cosine_kernels() -> None:
    options = ["kernel=arc_cosine", "kernel.base_kernel.degree=2", "kernel.base_kernel.depth=3"]
    model = made(classes(), *options)
    assert model.kernel.base_kernel.depth == 3
    loss = model.objective(classes().given.all()).loss
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_many_inputs_in_float32_are_near_float64() -> None:
    torch.manual_seed(0)
    y = torch.arange(40) % 3
    data = Given(torch.randn(40, 100) + y[:, None], y=y)
    narrow, wide = (made(data, dtype=dtype) for dtype in (torch.float32, torch.float64))
    wide.load_state_dict(narrow.state_dict())
    with torch.no_grad():
        answers = [m.marginals(m.standardised(data.train.all().x))[:2] for m in (narrow, wide)]
    for mine, reference in zip(*answers, strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("components", [1, 2])
def test_the_divergence_does_not_hold_the_hyperparameters(components: int) -> None:
    """It is that of whitened values, so that leave-one-out has nothing to set free: the bound moves them by the fit."""
    model = made(classes(), components=components)
    held = [model.inducing, *model.kernel.parameters()]
    slopes_of_it = torch.autograd.grad(model.divergence(), [*held, model.q_mean], allow_unused=True)
    assert [slope is not None for slope in slopes_of_it] == [False] * len(held) + [True]


def test_the_phases_of_algorithm_1() -> None:
    assert made(classes()).phases == (Phase(),)
    alternating = made(classes(), objective="loo", bound_epochs=3, loo_epochs=2)
    assert alternating.phases == (Phase(3), Phase(2, "leave_one_out", ("kernel", "inducing")))
    of_reals = made(reals(), objective="loo")
    assert of_reals.phases == (Phase(50), Phase(50, "leave_one_out", ("kernel", "inducing", "likelihood")))


def trained(epochs: int, resume: Path | None = None) -> tuple[Trainer, dict[str, Tensor]]:
    """Digits, two epochs of the bound and three of leave-one-out in turn: the trainer, and the model's state."""
    data = Digits(batch_size=150, max_train=300)
    options: dict[str, Any] = {"num_inducing": 10, "objective": "loo", "bound_epochs": 2, "loo_epochs": 3}
    model: AutoGP = started(data, "model=autogp", "optimizer.schedule=constant", **options)
    trainer = Trainer(max_epochs=epochs, **QUIET)
    trainer.fit(model.train(), datamodule=data, ckpt_path=resume, weights_only=True)
    return trainer, {name: value.clone() for name, value in model.state_dict().items()}


def test_leave_one_out_trains_the_hyperparameters_alone_and_resumes_in_its_phase(tmp_path: Path) -> None:
    bound, whole = trained(2)[1], trained(4)[1]
    trained(3)[0].save_checkpoint(tmp_path / "last.ckpt")
    resumed = trained(4, tmp_path / "last.ckpt")[1]
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    moved = {name for name, value in whole.items() if not torch.equal(value, bound[name])}
    assert moved == {"inducing", "kernel.raw_outputscale", "kernel.base_kernel.raw_lengthscale"}


def test_digits_are_learned() -> None:
    """20 epochs: below 8 % errors, and better probabilities than none."""
    data = Digits(batch_size=250)
    model: AutoGP = started(data, "model=autogp", "optimizer.lr=5e-3", share="all", num_inducing=50)
    Trainer(max_epochs=20, **QUIET).fit(model.train(), datamodule=data)
    test = data.test.all()
    assert test.y is not None
    with torch.no_grad():
        p = Categorical(probabilities(model, test.x))
    assert (p.probs.argmax(1) != test.y).double().mean() < 0.08
    assert -p.log_prob(test.y).mean() < 1


REJECTED: dict[str, tuple[Given, dict[str, Any], str]] = {
    "no target": (Given(torch.randn(9, 2)), {}, "predicts a target, but the dataset has none"),
    "a Gaussian of classes": (
        classes(),
        {"likelihood": "gaussian"},
        "does not fit the targets: use categorical or bern",
    ),
    "classes of reals": (reals(), {"likelihood": "categorical"}, "does not fit the targets: use gaussian or gprn"),
    "three bits": (classes(), {"likelihood": "bernoulli"}, "bernoulli needs 2 classes, not 3"),
    "too many": (classes(), {"num_inducing": 31}, r"model\.num_inducing=31 must not exceed the 30 training points"),
    "epochs of no phase": (classes(), {"loo_epochs": 3}, r"need model\.objective=loo"),
    "no epochs": (classes(), {"objective": "loo", "loo_epochs": 0}, "phase 1 of AutoGP has 0 epochs"),
    "another objective": (classes(), {"objective": "map"}, r"model\.objective=map is neither elbo nor loo"),
    "another share": (classes(), {"share": "some"}, r"model\.share=some is none of none, inducing, all"),
    "another covariance": (classes(), {"covariance": "low"}, r"model\.covariance=low is neither full nor diagonal"),
    "no components": (classes(), {"components": 0}, r"model\.components=0 must be at least 1"),
    "no samples": (classes(), {"samples": 0}, r"model\.samples=0 must be at least 1"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_work_is_rejected_in_a_sentence(name: str) -> None:
    data, arguments, sentence = REJECTED[name]
    with pytest.raises(UserError, match=sentence):
        started(data, "model=autogp", **({"num_inducing": 5} | arguments))


def test_each_real_target_has_its_own_noise() -> None:
    model = made(reals())
    assert isinstance(model.likelihood, Gaussian) and model.likelihood.noise.shape == (2,)


def test_missing_test_targets_are_no_obstacle() -> None:
    data = Given(classes().given.all().x, y=torch.arange(30) % 3, test=split_of(torch.randn(4, 2)))
    assert probabilities(made(data), torch.randn(4, 2)).shape == (4, 3)
