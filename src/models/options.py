"""Options of models in small groups, so that constructors do not repeat a dozen arguments.

A config is flat (`model.latent_dim=5`); a constructor takes groups. `arguments` sorts the one into the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast, get_type_hints

from src.models.posterior import Kind
from src.runs.errors import UserError
from src.runs.specs import Spec


@dataclass(frozen=True)
class LearningOptions:
    """How a model learns."""

    optimizer: Spec
    seed: int = 0


@dataclass(frozen=True)
class LatentOptions:
    """q(z): amortised by an encoder, or free with one row per data point."""

    encoder: Spec
    latent_dim: int = 2
    amortised: bool = True
    posterior: Kind | None = None  # None: the model's first choice


@dataclass(frozen=True)
class GPOptions:
    """A GP: its kernel, and the noise variance that it starts from."""

    kernel: Spec
    noise: float = 0.1


@dataclass(frozen=True)
class DecoderOptions(GPOptions):
    """A GP decoder: also the likelihood of its observations, and what makes real numbers of intensities."""

    likelihood: str | None = None  # None: gaussian
    warp: str | None = None


@dataclass(frozen=True, kw_only=True)
class AutoencoderOptions:
    """The nets of a VAE whose encoder gives mean and variance in one."""

    encoder: Spec
    decoder: Spec
    latent_dim: int = 2
    variance_range: Sequence[float] = (1e-10, 1e10)  # of the encoder


@dataclass(frozen=True, kw_only=True)
class GPPriorOptions(AutoencoderOptions):
    """A VAE whose latents are GPs: their kernel and what they are functions of, and the likelihood of the pixels."""

    kernel: Spec
    aux: Spec
    likelihood: str = "gaussian"
    noise: float = 0.1  # the variance that a Gaussian starts from


def arguments(model_class: type, spec: Spec) -> dict[str, Any]:
    """The constructor's arguments from a flat spec: each group takes its own fields."""
    hints = get_type_hints(model_class.__init__)  # type: ignore[misc]
    wanted = {name: hint for name, hint in hints.items() if name not in ("facts", "return")}
    values = {key: value for key, value in spec.items() if not (key.startswith("_") and key.endswith("_"))}
    found: dict[str, Any] = {}
    used: set[str] = set()
    for name, hint in wanted.items():
        own = {field.name for field in fields(hint)} if is_dataclass(hint) else {name}
        given = {key: values[key] for key in own & values.keys()}
        used |= given.keys()
        if is_dataclass(hint):
            found[name] = cast(Any, hint)(**given)
        else:
            found |= given
    if unknown := sorted(values.keys() - used):
        raise UserError(f"{model_class.__name__} has no option model.{unknown[0]}")
    return found
