"""Estimators: scikit-learn's own checks, the numbers of the command line, and what else they promise."""

import pickle
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from src import estimators
from src.estimators import AutoGPClassifier, AutoGPRegressor, BayesianSAS, SASClassifier, SASRegressor
from src.loading import load
from src.runs.errors import UserError
from tests.launch.commands import command

DECODERS = ("SAS", "BayesianSAS", "GPLVM", "BayesianGPLVM", "VAE")
PREDICTORS = ("AutoGPClassifier", "AutoGPRegressor", "SASClassifier", "SASRegressor")
QUICK = ("check_fit_idempotent", "check_estimators_pickle", "check_estimators_unfitted", "check_n_features_in")
NOT_CHECKED = {
    "check_array_api_input": "models compute with torch on arrays of numpy: there is no other array library",
}
TOO_FEW_EPOCHS = {  # for AutoGP, whose scores after enough epochs have a test of their own
    "check_classifiers_train": "wants an accuracy of .83, and fits 20 times",
    "check_regressors_train": "wants an R^2 of .5, and fits 20 times",
}


def quick(name: str, **options: Any) -> Any:
    few = {"num_inducing": 5} if "AutoGP" in name or name == "BayesianGPLVM" else {}
    return getattr(estimators, name)(max_epochs=2, progress=False, **few, **options)


def images() -> np.ndarray:
    return (load_digits().images[:120] / 16).astype(np.float32)


@pytest.mark.parametrize("name", [*DECODERS, *PREDICTORS])
def test_quick_checks_of_scikit_learn(name: str) -> None:
    checks = estimator_checks_generator(quick(name))
    for estimator, check in checks:
        if check.func.__name__ in QUICK:
            check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DECODERS, *PREDICTORS])
@pytest.mark.filterwarnings("default")
def test_all_checks_of_scikit_learn(name: str) -> None:
    # predictions must not change by 1e-7 with the order of the points, so predictors compute in double precision
    precision = {"settings": {"trainer.precision": "64-true"}} if name in PREDICTORS else {}
    results = check_estimator(quick(name).set_params(max_epochs=5, **precision), on_fail=None, on_skip=None)
    assert len(results) > 40
    excluded = NOT_CHECKED | (TOO_FEW_EPOCHS if "AutoGP" in name else {})
    assert {each["check_name"] for each in results if each["status"] != "passed"} <= excluded.keys()


def test_autogp_has_the_scores_that_scikit_learn_asks_for() -> None:
    options: Any = {"num_inducing": 10, "lr": 0.01, "max_epochs": 100, "progress": False}
    x, y = make_regression(n_samples=200, n_features=10, n_informative=1, bias=5.0, noise=20, random_state=42)
    x, y = scale(x), scale(y)
    assert AutoGPRegressor(**options).fit(x, y).score(x, y) > 0.5
    blobs, labels = make_blobs(n_samples=300, random_state=0)
    blobs = scale(blobs)
    assert AutoGPClassifier(**options).fit(blobs, labels).score(blobs, labels) > 0.83


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_transforms_decodes_samples_and_scores(name: str) -> None:
    x, model = images(), quick(name)
    z = model.fit_transform(x)
    assert z.shape == (120, 2) and np.allclose(model.transform(x), z, atol=1e-5)
    mean, sd = model.inverse_transform(z[:3], return_std=True)
    assert mean.shape == sd.shape == (3, 1, 8, 8)
    assert np.array_equal(model.inverse_transform(z[:3]), mean)
    density = torch.distributions.Normal(torch.tensor(mean), torch.tensor(sd)).log_prob(torch.tensor(x[:3, None]))
    assert model.score(x[:3]) == pytest.approx(density.mean().item(), rel=1e-4)
    assert model.sample(4).x.shape == (4, 1, 8, 8)


def test_missing_values_are_filled_in_and_count_neither_in_training_nor_in_the_score() -> None:
    x = images()
    x[:30, :2] = np.nan
    model = quick("VAE").fit(x)
    filled = model.impute(x[:5])
    assert np.array_equal(filled.x[:, 0, 2:], x[:5, 2:]) and np.isfinite(filled.x).all()
    hidden = x[:5].copy()
    whole = model.score(hidden)
    mean, sd = model.inverse_transform(model.transform(hidden), return_std=True)
    density = torch.distributions.Normal(torch.tensor(mean), torch.tensor(sd)).log_prob(
        torch.tensor(hidden[:, None]).nan_to_num()
    )
    assert whole == pytest.approx(density[:, :, 2:].mean().item(), rel=1e-4)


def test_the_command_has_the_same_numbers(tmp_path: Path) -> None:
    x = images()
    np.save(tmp_path / "x.npy", x)
    settings = [
        "model=bayesian_sas",
        "dataset=array",
        "active_set.size=20",
        "trainer.max_epochs=2",
        "dataset.batch_size=64",
    ]
    run = command(
        "src.train", *settings, f"dataset.train={tmp_path}/x.npy", f"dataset.test={tmp_path}/x.npy", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    (folder,) = (tmp_path / "outputs").glob("bayesian_sas-*")
    model = BayesianSAS(active_set=20, max_epochs=2, batch_size=64, progress=False)
    assert np.array_equal(model.fit_transform(x), load(folder).encode(x).mean)
    found = load(folder).history
    assert list(model.history_) == list(found) and "watched_kl_2" in found
    for name in found.keys() - {"seconds"}:
        np.testing.assert_allclose(model.history_[name], found[name], rtol=1e-6, err_msg=name)
    assert model.notes_ == load(folder).notes


def test_with_outputs_it_is_a_run_and_the_second_fit_finds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, model = images(), quick("BayesianSAS", outputs=tmp_path)
    z = model.fit_transform(x)
    (folder,) = tmp_path.glob("bayesian_sas-*")
    assert np.array_equal(load(folder).encode(x).mean, z)
    assert np.array_equal(quick("BayesianSAS").fit_transform(x), z)
    clone(model).fit(x)
    assert capsys.readouterr().out == ""
    clone(model).set_params(progress=True).fit(x)
    assert "This run is finished" in capsys.readouterr().out


def test_random_numbers_elsewhere_stay_as_they_were() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    quick("VAE").fit(images())
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("progress", [True, False])
def test_what_went_wrong_is_noted_and_shown_unless_it_is_to_be_silent(
    progress: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """After two epochs the noise is still where it started."""
    model = quick("SAS").set_params(progress=progress).fit(images())
    (note,) = model.notes_
    assert note.startswith("the noise variance is 1.")
    shown = capsys.readouterr()
    assert shown.out == (f"note: {note}\n" if progress else "")
    assert ("epoch 2/2  loss " in shown.err) == progress and (progress or not shown.err)


@pytest.mark.parametrize("progress", [True, False])
def test_a_terminal_shows_bars_if_they_are_wanted(
    progress: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    model = quick("SAS").set_params(progress=progress, outputs=tmp_path).fit(images())
    assert ("encoding" in capsys.readouterr().err) == progress
    model.transform(np.where(np.arange(images().shape[1]) % 5, images(), np.nan)[:3])
    shown = capsys.readouterr().err
    assert ("embedding" in shown) if progress else not shown


def test_tensors_come_in_with_and_without_gradients() -> None:
    x, y = torch.tensor(images(), requires_grad=True), torch.arange(120) % 3
    z = quick("SAS").fit_transform(x)
    assert isinstance(z, np.ndarray) and np.array_equal(z, quick("SAS").fit_transform(images()))
    assert quick("SASClassifier").fit(x, y).predict(x[:2]).shape == (2,)
    assert quick("SASRegressor").fit(x, y.float()).predict(x[:2]).shape == (2,)


def test_columns_of_latents_have_names() -> None:
    pandas = pytest.importorskip("pandas")
    model = quick("BayesianSAS", latent_dim=3).set_output(transform="pandas")
    z = model.fit_transform(load_iris(as_frame=True).data)
    assert isinstance(z, pandas.DataFrame) and list(z.columns) == ["bayesiansas0", "bayesiansas1", "bayesiansas2"]


def test_sizes_fit_small_data_where_nobody_chose_them() -> None:
    x = images()[:20]
    sas = quick("SAS").fit(x).config_
    assert sas["model"]["active_set"] == 10 and sas["dataset"]["batch_size"] == "full"
    assert estimators.BayesianGPLVM(max_epochs=1, progress=False).fit(x).config_["model"]["num_inducing"] == 20
    assert quick("SAS", settings={"active_set": "a50"}).fit(images()).config_["model"]["active_set"] == 50
    with pytest.raises(UserError, match="num_inducing=30 must not exceed the 20 training points"):
        estimators.BayesianGPLVM(num_inducing=30, progress=False).fit(x)


def test_joblib_keeps_an_estimator_with_all_its_answers(tmp_path: Path) -> None:
    model = quick("BayesianSAS").fit(images())
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(again.transform(images()), model.transform(images()))
    assert np.array_equal(again.sample(3).x, model.sample(3).x) and again.notes_ == model.notes_
    paths = [each.trained.interpolate(images()[0], images()[1], path="geodesic").z for each in (model, again)]
    assert np.array_equal(*paths)


def test_pipelines_searches_clones_and_pickles() -> None:
    iris = load_iris()
    pipeline = make_pipeline(StandardScaler(), quick("BayesianSAS"))
    z = pipeline.fit_transform(iris.data)
    assert np.array_equal(pickle.loads(pickle.dumps(pipeline)).transform(iris.data), pipeline.transform(iris.data))
    assert z.shape == (150, 2)
    search = GridSearchCV(quick("SASClassifier"), {"lr": [1e-5, 1e-2], "active_set": [10, 20]}, cv=2).fit(
        iris.data, iris.target
    )
    assert search.best_params_["lr"] == 1e-2 and search.best_estimator_.config_["model"]["active_set"] in (10, 20)


def test_classes_keep_their_names_and_probabilities_add_up() -> None:
    iris = load_iris()
    names = iris.target_names[iris.target]
    model = SASClassifier(max_epochs=40, progress=False).fit(iris.data, names)
    assert model.score(iris.data, names) > 0.9 and set(model.predict(iris.data)) <= set(names)
    assert np.allclose(model.predict_proba(iris.data).sum(1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="needs at least 2 classes, but y has 1 class: a"):
        SASClassifier(progress=False).fit(iris.data[:9], ["a"] * 9)


def test_real_targets_keep_their_shape_and_units() -> None:
    iris = load_iris()
    x, y = iris.data[:, :3], 100 + 10 * iris.data[:, 3]
    model = AutoGPRegressor(num_inducing=10, max_epochs=60, progress=False).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert mean.shape == sd.shape == (150,) and model.score(x, y) > 0.8
    both = quick("SASRegressor").fit(x, np.stack([y, -y], 1))
    assert both.predict(x).shape == (150, 2)
    assert isinstance(both, SASRegressor)


def test_an_encoder_of_ones_own() -> None:
    layer = torch.nn.Linear(64, 7)
    own, before = torch.nn.Sequential(torch.nn.Flatten(), layer, torch.nn.Tanh()), layer.weight.clone()
    model = quick("BayesianSAS", encoder=own).fit(images())
    assert "Linear(in_features=7, out_features=2" in str(model.trained.model.latents)
    assert torch.equal(layer.weight, before)  # a copy was trained
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(images()), model.transform(images()))
    with pytest.raises(UserError, match=r"the encoder does not take observations \[B, 1, 8, 8\]"):
        quick("VAE", encoder=torch.nn.Linear(5, 2)).fit(images())
    holes = np.where(images() > 0.9, np.nan, images())
    with pytest.raises(UserError, match=r"\[B, 2, 8, 8\] \(with missing values, half of the channels are their mask\)"):
        quick("VAE", encoder=torch.nn.Conv2d(1, 2, 3)).fit(holes)
    two_channels = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3), torch.nn.ReLU())
    assert np.isfinite(quick("VAE", encoder=two_channels).fit_transform(holes)).all()
    with pytest.raises(UserError, match="needs an encoder of conf/encoder by name"):
        quick("VAE", encoder=own, outputs="outputs").fit(images())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"settings": {"model": "vae"}}, "model is no key of settings: use another class"),
        ({"settings": {"trainer.max_epochs": 3}}, "trainer.max_epochs is no key of settings: use max_epochs="),
        ({"kernel": "rbff"}, "There is no kernel=rbff. Did you mean kernel=rbf"),
        ({"active_set": 300}, "active_set.size=300 must be at least 1 and smaller than the batch"),
        ({"lr": -1}, "optimizer.lr=-1 must be a number above 0"),
        ({"settings": {"modle.noise": 1}}, "There is no modle.noise. Did you mean model.noise"),
        ({"settings": {"model.posterior": "fulll"}}, "posterior"),
    ],
)
def test_wrong_values_are_named_before_any_work(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        BayesianSAS(progress=False, **options).fit(images())


def test_settings_reach_the_config_and_nothing_works_before_fit() -> None:
    model = quick("BayesianSAS", settings={"model.posterior": "full", "optimizer.schedule": "constant"})
    with pytest.raises(NotFittedError):
        model.transform(images())
    model.fit(images())
    assert (
        model.config_["model"]["posterior"] == "full" and model.config_["model"]["optimizer"]["schedule"] == "constant"
    )
    assert len(model.history_["loss"]) == model.n_iter_ == 2
