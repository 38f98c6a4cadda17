"""Models as scikit-learn has them: `BayesianSAS(latent_dim=2, active_set=200, max_epochs=50).fit(X)`.

A keyword is a setting of the command line, and `settings` takes all others by their dotted names. An estimator
composes the same config as the command and runs the same training, so it has the same numbers. All of X is trained on.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import nn

from src.data.arrays import GivenArrays
from src.data.batch import Split, Storage
from src.data.module import Options
from src.evaluation.task import latents_of
from src.launch import cells, choices, values
from src.launch.cli import check_overrides
from src.launch.hydra_private import config_loader
from src.loading import Columns, load
from src.models.likelihoods import masked_log_prob
from src.python import arrays
from src.python.results import Imputed, Sampled
from src.python.trained import Trained
from src.runs.errors import UserError
from src.runs.files import whole
from src.runs.identity import Config
from src.runs.request import RunRequest
from src.training import experiment

KEYS = {  # the settings that keywords stand for; a name of a group, such as kernel="rbf", chooses its file
    "latent_dim": "model.latent_dim",
    "active_set": "active_set.size",
    "num_inducing": "model.num_inducing",
    "kernel": "kernel",
    "encoder": "encoder",
    "max_epochs": "trainer.max_epochs",
    "batch_size": "dataset.batch_size",
    "lr": "optimizer.lr",
    "seed": "seed",
    "progress": "trainer.enable_progress_bar",
}


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):
    """What all estimators share. None means the value that the command line has.

    Of small data, a batch has all points and the active set half of them, unless `batch_size` and `active_set` say
    otherwise. With `outputs`, the training is a run in that folder: recorded, evaluated on the training data, resumed.
    """

    model: ClassVar[str]  # of conf/model
    _: KW_ONLY
    max_epochs: int | None = None
    batch_size: int | str | None = None
    lr: float | None = None
    seed: int = 0
    settings: Mapping[str, Any] | None = None  # such as {"model.posterior": "full"}
    outputs: str | Path | None = None
    progress: bool = True

    @property
    def trained(self) -> Trained:
        """The trained model, with all that Python can do with it: decode, interpolate, impute, ..."""
        check_is_fitted(self, "trained_")
        found: Trained = self.trained_
        return found

    def train(self, x: np.ndarray, y: np.ndarray | None) -> None:
        """Train on checked arrays."""
        self.trained_ = self.in_memory(x, y) if self.outputs is None else self.as_run(x, y, Path(self.outputs))
        self.n_iter_ = self.config_["trainer"]["max_epochs"]

    def in_memory(self, x: np.ndarray, y: np.ndarray | None) -> Trained:
        """A model that was trained without a folder."""
        self.config_ = self.request(len(x)).config
        if isinstance(encoder := self.get_params(deep=False).get("encoder"), nn.Module):
            self.config_["model"]["encoder"] = {"_target_": "src.nets.given.given", "module": encoder}
        options: Any = {key: self.config_["dataset"].get(key) for key in Options.__annotations__}
        model, history = experiment.train_in_memory(self.config_, GivenArrays(x, y, **options))
        self.history_ = Columns(history.rows)
        return Trained(model)

    def as_run(self, x: np.ndarray, y: np.ndarray | None, outputs: Path) -> Trained:
        """The model of a run, whose data are kept in the folder of runs."""
        if isinstance(self.get_params(deep=False).get("encoder"), nn.Module):
            raise UserError("outputs= needs an encoder of conf/encoder by name: a run is built from its config")
        image = stored(x, outputs)
        files = {"train": image, "test": image}
        files |= {} if y is None else dict.fromkeys(("train_labels", "test_labels"), stored(y, outputs))
        named = [f"dataset.{key}={path}" for key, path in files.items()]
        request = self.request(len(x), *named, f"paths.outputs={outputs}")
        values.check_pair(request)
        experiment.run(request.config, request.model, request.dataset)
        self.config_, run = request.config, load(request.folder)
        self.history_ = run.history
        return run

    def request(self, num_data: int, *overrides: str) -> RunRequest:
        """The run that the keywords ask for, with all names and values checked."""
        typed = [f"model={self.model}", "dataset=array", *self.overrides(), *overrides]
        check_overrides(typed)
        with config_loader() as loader:
            request = cells.compose(typed, loader)
            request = cells.compose([*typed, *self.sizes(request.config, num_data)], loader)
        values.check([request])
        choices.check_run(request)
        return request

    def overrides(self) -> list[str]:
        """The keywords as overrides of the command line."""
        given = {KEYS[key]: value for key, value in self.get_params(deep=False).items() if key in KEYS}
        given |= self.settings or {}
        return [f"{key}={text(value)}" for key, value in given.items() if is_override(value)]

    def sizes(self, config: Config, num_data: int) -> list[str]:
        """Sizes of batch and active set that fit small data, where nobody chose them."""
        chosen, batch, found = self.settings or {}, config["dataset"]["batch_size"], []
        if self.batch_size is None and "dataset.batch_size" not in chosen and batch != "full" and batch > num_data:
            found.append("dataset.batch_size=full")
        size, total = config["model"].get("active_set"), num_data if batch == "full" else min(batch, num_data)
        free = self.get_params(deep=False).get("active_set", 0) is None and "active_set.size" not in chosen
        if free and isinstance(size, int) and size >= total:
            found.append(f"active_set.size={max(1, total // 2)}")
        return found


def is_override(value: Any) -> bool:
    """Whether a keyword is for the command line: None leaves a setting as it is, a module cannot be typed."""
    return value is not None and not isinstance(value, nn.Module)


def text(value: Any) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value.item() if isinstance(value, np.generic) else value)


def stored(array: np.ndarray, outputs: Path) -> Path:
    """A file with an array, named after its content."""
    digest = sha256(repr((array.dtype, array.shape)).encode() + np.ascontiguousarray(array).tobytes()).hexdigest()
    path = (outputs / ".arrays" / f"{digest[:16]}.npy").absolute()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, array)
    return path


def as_array(estimator: Estimator, x: Any, reset: bool, **options: Any) -> np.ndarray:
    """Observations as a model takes them: bytes [N, ...] of images stay, all other numbers become floats."""
    x = validate_data(estimator, x, reset=reset, dtype="numeric", allow_nd=True, **options)
    if x.dtype == np.uint8 and x.ndim > 2:
        return x
    found: np.ndarray = x.astype(np.float32) if x.dtype.kind != "f" or x.dtype == np.float16 else x
    return found


@dataclass(eq=False, repr=False)
class Decoder(TransformerMixin, Estimator):
    """A latent-variable model: `transform` gives latent means, `inverse_transform` decodes. NaN is missing."""

    latent_dim: int = 2
    encoder: str | nn.Module | None = None  # of conf/encoder, or a module from observations to features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # the precision that models train in
        return tags

    def fit(self, X: Any, y: Any = None) -> "Decoder":
        """Train on observations [N, D], [N, H, W] or [N, C, H, W]; y plays no part."""
        self.train(self.observations(X, reset=True), None)
        return self

    def observations(self, x: Any, reset: bool = False) -> np.ndarray:
        """Observations, of which NaN are missing."""
        return as_array(self, x, reset, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1)

    def transform(self, X: Any) -> np.ndarray:
        """The means [n, Q] of q(z)."""
        trained = self.trained
        found: np.ndarray = trained.encode(self.observations(X)).mean
        return found

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Train, and the latent means [N, Q] of the training data as the training left them."""
        x = self.fit(X).observations(X)
        batch, kind = arrays.observations(x, self.trained.model.facts)
        split = Split(Storage(batch.x), mask=batch.mask)
        with torch.no_grad():
            found: np.ndarray = kind.answer(latents_of(self.trained.model, split, seen=True).mean)
        return found

    def inverse_transform(self, Z: Any, return_std: bool = False) -> Any:
        """The means of observations at latent points [n, Q], and their sd, noise included, if it is asked for."""
        decoded = self.trained.decode(Z)
        return (decoded.mean, decoded.sd) if return_std else decoded.mean

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log density (of bits and categories, probability) of observed values given their latent means."""
        trained, x = self.trained, self.observations(X)
        batch, _ = arrays.observations(x, trained.model.facts)
        with torch.no_grad():
            z, total, count = trained.encoded(batch)[0], 0.0, 0
            for part, p in zip(trained.chunks(batch, 512), trained.distributions(z, None), strict=True):
                values_seen = trained.model.as_float(part.x.to(trained.model.device))
                total += masked_log_prob(p, values_seen, part.mask).double().sum().item()
                count += values_seen.numel() if part.mask is None else int(part.mask.sum())
        return total / count

    def sample(self, n_samples: int = 1, seed: int = 0) -> Sampled:
        """New observations, a function of the seed."""
        return self.trained.sample(n_samples, seed)

    def impute(self, X: Any) -> Imputed:
        """Observations with their missing values filled in."""
        return self.trained.impute(self.observations(X))


@dataclass(eq=False, repr=False)
class SAS(Decoder):
    """SAS-GP: point latents, stochastic active sets."""

    model: ClassVar[str] = "sas"
    active_set: int | str | None = None
    kernel: str | None = None  # of conf/kernel


@dataclass(eq=False, repr=False)
class BayesianSAS(SAS):
    """Bayesian SAS-GP: Gaussian q(z), stochastic active sets."""

    model: ClassVar[str] = "bayesian_sas"


@dataclass(eq=False, repr=False)
class GPLVM(SAS):
    """GP-LVM: point latents, the exact marginal likelihood of each batch."""

    model: ClassVar[str] = "gplvm"


@dataclass(eq=False, repr=False)
class BayesianGPLVM(Decoder):
    """Bayesian GP-LVM with inducing points."""

    model: ClassVar[str] = "bayesian_gplvm"
    num_inducing: int | None = None
    kernel: str | None = None


@dataclass(eq=False, repr=False)
class VAE(Decoder):
    """VAE with the same encoder, and its mirror image as decoder."""

    model: ClassVar[str] = "vae"


@dataclass(eq=False, repr=False)
class Classifier(ClassifierMixin, Estimator):
    """Predicts classes and their probabilities."""

    kernel: str | None = None

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Train on observations [N, ...] and labels [N] of any kind."""
        x = as_array(self, X, reset=True, ensure_min_samples=2)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        if len(labels) != len(x):
            raise ValueError(f"X has {len(x)} samples, but y has {len(labels)}")
        encoder = LabelEncoder().fit(labels)
        self.classes_ = encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least 2 classes, but y has 1 class: {self.classes_[0]}")
        self.train(x, encoder.transform(labels))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities [n, P] of the classes, in the order of `classes_`."""
        trained = self.trained
        found: np.ndarray = trained.predict_proba(as_array(self, X, reset=False))
        return found

    def predict(self, X: Any) -> np.ndarray:
        """The most probable classes [n]."""
        best = self.predict_proba(X).argmax(1)
        found: np.ndarray = self.classes_[best]
        return found


@dataclass(eq=False, repr=False)
class Regressor(RegressorMixin, Estimator):
    """Predicts one real target or several."""

    kernel: str | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "Regressor":
        """Train on observations [N, ...] and targets [N] or [N, P]."""
        options = {"dtype": "numeric", "allow_nd": True, "multi_output": True, "y_numeric": True}
        _, targets = validate_data(self, X, y, ensure_min_samples=2, **options)
        self.single_ = targets.ndim == 1
        self.train(as_array(self, X, reset=True), targets.astype(np.float32))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The means of the targets and, if it is asked for, their sd, noise included."""
        found = self.trained.predict(as_array(self, X, reset=False))
        moments = (each.astype(np.float64) for each in (found.mean, found.variance**0.5))  # as scikit-learn has them
        mean, sd = (each[:, 0] if self.single_ else each for each in moments)
        return (mean, sd) if return_std else mean


@dataclass(eq=False, repr=False)
class AutoGPClassifier(Classifier):
    """AutoGP: one sparse GP per class."""

    model: ClassVar[str] = "autogp"
    num_inducing: int | None = None


@dataclass(eq=False, repr=False)
class AutoGPRegressor(Regressor):
    """AutoGP: one sparse GP per target."""

    model: ClassVar[str] = "autogp"
    num_inducing: int | None = None


@dataclass(eq=False, repr=False)
class SASClassifier(Classifier):
    """Classes by stochastic active sets: a GP of an encoder's features."""

    model: ClassVar[str] = "sas_classifier"
    active_set: int | str | None = None
    encoder: str | nn.Module | None = None


@dataclass(eq=False, repr=False)
class SASRegressor(Regressor):
    """Real targets by stochastic active sets: a GP of an encoder's features."""

    model: ClassVar[str] = "sas_regression"
    active_set: int | str | None = None
    encoder: str | nn.Module | None = None
