"""Models as scikit-learn has them: `BayesianSAS(latent_dim=2, active_set=200, max_epochs=50).fit(X)`.

A keyword is a setting of the command line, and `settings` takes all others by their dotted names. An estimator
composes the same config as the command and runs the same training, so it has the same numbers. All of X is trained on.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import nn

from src.data.batch import Split, Storage
from src.evaluation.task import latents_of
from src.models.likelihoods import masked_log_prob
from src.python import arrays
from src.python.estimator import Estimator, as_array, as_numpy, with_bars_if_wanted
from src.python.results import Imputed, Sampled


@dataclass(eq=False, repr=False)
class Decoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
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
        self._n_features_out = self.latent_dim  # names the columns of `transform`
        return self

    def observations(self, x: Any, reset: bool = False) -> np.ndarray:
        """Observations, of which NaN are missing."""
        return as_array(self, x, reset, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1)

    @with_bars_if_wanted
    def transform(self, X: Any) -> np.ndarray:
        """The means [n, Q] of q(z)."""
        trained = self.trained
        found: np.ndarray = trained.encode(self.observations(X)).mean
        return found

    @with_bars_if_wanted
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

    @with_bars_if_wanted
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

    @with_bars_if_wanted
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
        labels = column_or_1d(as_numpy(y), warn=True)
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
        _, targets = validate_data(self, as_numpy(X), as_numpy(y), ensure_min_samples=2, **options)
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
