"""What all estimators share: settings by keywords, a config composed as the command line does it, and its training."""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from src.data.arrays import GivenArrays
from src.data.module import Options
from src.launch import cells, choices, values
from src.launch.cli import check_overrides
from src.launch.hydra_private import config_loader
from src.python.run import Columns, Run
from src.python.trained import Trained
from src.runs.bars import bars
from src.runs.errors import UserError
from src.runs.files import whole
from src.runs.identity import Config
from src.runs.request import RunRequest
from src.training import experiment

P = ParamSpec("P")
T = TypeVar("T")

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
NOT_SETTINGS = {"model": "another class", "dataset": "fit(X)", "paths.outputs": "outputs="}  # but what they stand for


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):
    """What all estimators share. None means the value that the command line has.

    Of small data, a batch has all points, the active set half of them, and the inducing points are no more than they
    are, unless keywords say otherwise. With `outputs`, the training is a run in that folder: recorded, evaluated on the
    training data, resumed.
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

    @property
    def own_encoder(self) -> nn.Module | None:
        """The encoder, if it is a module and not a name."""
        encoder = self.get_params(deep=False).get("encoder")
        return encoder if isinstance(encoder, nn.Module) else None

    def train(self, x: np.ndarray, y: np.ndarray | None) -> None:
        """Train on checked arrays. `notes_` says what went wrong, such as a latent dimension that is unused."""
        self.trained_ = self.in_memory(x, y) if self.outputs is None else self.as_run(x, y, Path(self.outputs))
        self.n_iter_ = self.config_["trainer"]["max_epochs"]

    def in_memory(self, x: np.ndarray, y: np.ndarray | None) -> Trained:
        """A model that was trained without a folder."""
        self.config_ = self.request(len(x)).config
        if self.own_encoder is not None:
            self.config_["model"]["encoder"] = {"_target_": "src.nets.given.given", "module": self.own_encoder}
        options: Any = {key: self.config_["dataset"].get(key) for key in Options.__annotations__}
        model, history = experiment.train_in_memory(self.config_, GivenArrays(x, y, **options))
        self.history_, self.notes_ = Columns(history.rows), experiment.notes(history.rows)
        if self.progress:
            print(*(f"note: {text}" for text in self.notes_), sep="\n", end="\n" if self.notes_ else "")
        return Trained(model)

    def as_run(self, x: np.ndarray, y: np.ndarray | None, outputs: Path) -> Trained:
        """The model of a run, whose data are kept in the folder of runs."""
        if self.own_encoder is not None:
            raise UserError("outputs= needs an encoder of conf/encoder by name: a run is built from its config")
        image = stored(x, outputs)
        files = {"train": image, "test": image}
        files |= {} if y is None else dict.fromkeys(("train_labels", "test_labels"), stored(y, outputs))
        named = [f"dataset.{key}={path}" for key, path in files.items()]
        request = self.request(len(x), *named, f"paths.outputs={outputs}")
        values.check_pair(request)
        with nullcontext() if self.progress else redirect_stdout(StringIO()):
            experiment.run(request.config, request.model, request.dataset)
        self.config_, run = request.config, Run(request.folder / "model.ckpt")
        self.history_, self.notes_ = run.history, run.notes
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
        """The keywords and the settings as overrides of the command line."""
        given = {KEYS[key]: value for key, value in self.get_params(deep=False).items() if key in KEYS}
        own = {name: f"{key}=" for key, name in KEYS.items() if name in given}
        for name in self.settings or {}:
            if place := (NOT_SETTINGS | own).get(name):
                raise UserError(f"{name} is no key of settings: use {place}")
        given |= self.settings or {}
        return [f"{key}={text(value)}" for key, value in given.items() if is_override(value)]

    def sizes(self, config: Config, num_data: int) -> list[str]:
        """Sizes of the batch, the active set and the inducing points that fit small data, where nobody chose them."""
        batch, found = config["dataset"]["batch_size"], []
        size, inducing = (config["model"].get(name) for name in ("active_set", "num_inducing"))
        if self.is_free("batch_size") and batch != "full" and batch > num_data:
            found.append("dataset.batch_size=full")
        total = num_data if batch == "full" else min(batch, num_data)
        if self.is_free("active_set") and isinstance(size, int) and size >= total:
            found.append(f"active_set.size={max(1, total // 2)}")
        if self.is_free("num_inducing") and isinstance(inducing, int) and inducing > num_data:
            found.append(f"model.num_inducing={num_data}")
        return found

    def is_free(self, keyword: str) -> bool:
        """Whether the estimator has a keyword, and nobody gave it a value or chose a file of this group."""
        return self.get_params(deep=False).get(keyword, keyword) is None and keyword not in (self.settings or {})


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


def as_numpy(values: Any) -> Any:
    """A tensor as an array, wherever it is and with gradients or not; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def as_array(estimator: Estimator, x: Any, reset: bool, **options: Any) -> np.ndarray:
    """Observations as a model takes them: bytes [N, ...] of images stay, all other numbers become floats."""
    x = validate_data(estimator, as_numpy(x), reset=reset, dtype="numeric", allow_nd=True, **options)
    if x.dtype == np.uint8 and x.ndim > 2:
        return x
    found: np.ndarray = x.astype(np.float32) if x.dtype.kind != "f" or x.dtype == np.float16 else x
    return found


def with_bars_if_wanted(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """A method of an estimator, without progress bars if it has `progress=False`."""

    @wraps(method)
    def quiet(self: Estimator, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with bars(self.progress):
            return method(self, *args, **kwargs)

    return quiet
