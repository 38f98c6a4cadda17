"""A trained model in Python: encode, decode, sample, reconstruct, impute, interpolate, predict."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from src.data.batch import Batch, Split, Storage
from src.evaluation.imputation import draws, moments
from src.evaluation.task import CHUNK, latents_of
from src.gp.geodesics import geodesics
from src.models import sampling
from src.models.capabilities import HasLatents, Predicts
from src.python import arrays
from src.python.arrays import Kind, in_units
from src.python.distributions import check_levels, draw, quantile, variance_of, variance_without_noise
from src.python.results import Decoded, Encoded, Imputed, Path, Predicted, Sampled
from src.runs.errors import UserError

DECODED_AT_ONCE = 512  # latent points; bounds the memory


class Trained:
    """A trained model. Arrays may be numpy or torch, one point or many; answers are of the same kind.

    Nothing has gradients unless `gradients=True` asks for those in the input.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def summary(self) -> str:
        """The model and its data in a few words."""
        facts, latent_dim = self.model.facts, getattr(self.model, "latent_dim", None)
        latents = "" if latent_dim is None else f", {latent_dim} latent dimensions"
        return f"{type(self.model).__name__} of {facts.num_train} points [{' x '.join(map(str, facts.shape))}]{latents}"

    def __repr__(self) -> str:
        return f"<{self.summary()}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their ids."""
        facts = self.model.facts
        return facts.classes or tuple(map(str, range(facts.target.size if facts.target.kind == "class" else 0)))

    def encode(self, x: Any, mask: Any = None, aux: Any = None, *, gradients: bool = False) -> Encoded:
        """q(z) of observations that the model has not seen; NaN, or a False mask, is missing."""
        model = self.with_latents("encode")
        batch, kind = arrays.observations(x, model.facts, mask, aux)
        with torch.set_grad_enabled(gradients):
            return Encoded(*map(kind.answer, self.encoded(batch)))

    def decode(self, z: Any, quantiles: Sequence[float] = (), aux: Any = None, *, gradients: bool = False) -> Decoded:
        """The distribution of observations at latent points, of which `encode` gives the means."""
        model = self.with_latents("decode")
        points, kind = arrays.latent_points(z, model.latent_dim)
        at = arrays.aux_of(aux, model.facts, len(points))
        check_levels(quantiles)
        with torch.set_grad_enabled(gradients):
            return self.decoded(points, at, kind, quantiles)

    @torch.no_grad()
    def reconstruct(self, x: Any, mask: Any = None, aux: Any = None) -> Decoded:
        """What the means of q(z) decode to."""
        batch, kind = arrays.observations(x, self.with_latents("reconstruct").facts, mask, aux)
        return self.decoded(self.encoded(batch)[0], batch.aux, kind)

    @torch.no_grad()
    def impute(self, x: Any, mask: Any = None, aux: Any = None, seed: int = 0) -> Imputed:
        """Missing values, predicted from the others: the mixture over 16 draws of q(z), as the evaluation has it."""
        model = self.with_latents("impute")
        batch, kind = arrays.observations(x, model.facts, mask, aux)
        split = Split(Storage(batch.x), aux=batch.aux, mask=batch.mask)
        z = draws(latents_of(model, split, seen=False), seed).to(model.device)
        parts = [moments(model, z[:, part.index], self.given, part.aux) for part in self.chunks(batch, DECODED_AT_ONCE)]
        mean, sd = (torch.cat(values) for values in zip(*parts, strict=True))
        seen = model.as_float(batch.x.to(model.device))
        filled = seen if batch.mask is None else torch.where(batch.mask.to(seen.device), seen, mean)
        values = in_units(filled, model.facts), in_units(mean, model.facts), in_units(sd.square(), model.facts, 2)
        return Imputed(*map(kind.answer, values))

    @torch.no_grad()
    def sample(self, count: int = 1, seed: int = 0, aux: Any = None) -> Sampled:
        """New observations as numpy arrays, a function of the seed."""
        model = self.with_latents("sample")
        if count < 0:
            raise UserError(f"count={count} must not be negative")
        at, generator = arrays.aux_of(aux, model.facts, count), torch.Generator().manual_seed(seed)
        z = sampling.latents(model, count, at, generator)
        p = list(self.distributions(z, at))
        x = torch.cat([draw(each, model.facts, generator) for each in p])
        values = in_units(x, model.facts), in_units(torch.cat([each.mean for each in p]), model.facts), z.to(x)
        return Sampled(*map(Kind(True, torch.device("cpu"), single=False).answer, values))

    def interpolate(
        self, a: Any, b: Any, steps: int = 9, path: Literal["straight", "geodesic"] = "straight", aux: Any = None
    ) -> Path:
        """A curve between two points, each an observation or a latent point [Q], and what it decodes to.

        `straight` is the straight line of the latent space; `geodesic` is the shortest curve under its metric, which
        stays near points that the model knows.
        """
        model = self.with_latents("interpolate")
        if steps < 2:
            raise UserError(f"steps={steps} must be at least 2: a path has two ends")
        ends = [self.end(point, name, aux) for point, name in ((a, "a"), (b, "b"))]
        at = None if aux is None else arrays.aux_of(torch.as_tensor(aux).expand(steps, -1), model.facts, steps)
        z = self.curve(ends[0][0], ends[1][0], steps, path, at).to(model.device)
        kind = Kind(ends[0][1].numpy, ends[0][1].device, single=False)
        with torch.no_grad():
            found = self.decoded(z, at, kind)
        return Path(kind.answer(z.to(model.dtype)), *found[:3])

    def curve(self, a: Tensor, b: Tensor, steps: int, path: str, aux: Tensor | None) -> Tensor:
        """Latent points [steps, Q] from a to b."""
        if path == "straight":
            return torch.lerp(a, b, torch.linspace(0, 1, steps, dtype=a.dtype).unsqueeze(1))
        if path == "geodesic":

            def metric(z: Tensor) -> Tensor:
                at = None if aux is None else aux[:1].expand(len(z), -1).to(self.model.device)
                found: Tensor = self.model.metric(z.to(self.model.device), self.given, at)
                return found.to(z)

            with torch.no_grad():
                known = sampling.carried_points(self.model)
            found = geodesics(metric, a.unsqueeze(0), b.unsqueeze(0), None if known is None else known.cpu())
            return found.points(steps)[0]
        raise UserError(f"path={path} is not known: straight, geodesic")

    def end(self, point: Any, name: str, aux: Any) -> tuple[Tensor, Kind]:
        """One end of a path as a latent point [Q] on the CPU."""
        point = point.mean if isinstance(point, Encoded) else point
        values, numpy = arrays.tensor_of(point, name)
        if tuple(values.shape) == (self.model.latent_dim,):
            z, kind = arrays.latent_points(point, self.model.latent_dim, name)
            return z[0].detach().cpu().double(), kind
        z = torch.as_tensor(self.encode(point, aux=aux).mean).cpu().double()
        if z.ndim != 1:
            raise UserError(f"{name} holds {len(z)} observations, but a path has one at each end")
        return z, Kind(numpy, values.device, single=True)

    def predict(self, x: Any, quantiles: Sequence[float] = ()) -> Any:
        """Ids of classes [n], whose names are in `classes`, or the distribution of real targets."""
        check_levels(quantiles)
        p, kind = self.predictions(x, "predict")
        if isinstance(p[0], Categorical):
            if quantiles:
                raise UserError("classes have no quantiles: predict_proba gives their probabilities")
            return kind.answer(torch.cat([each.probs.argmax(-1) for each in p]))
        levels = [torch.cat([quantile(each, level) for each in p]) for level in quantiles]
        mean, variance = (torch.cat([getattr(each, name) for each in p]) for name in ("mean", "variance"))
        return Predicted(kind.answer(mean), kind.answer(variance), stacked([kind.answer(each) for each in levels]))

    def predict_proba(self, x: Any) -> Any:
        """The probabilities of the classes [n, P]."""
        p, kind = self.predictions(x, "predict_proba")
        if not isinstance(p[0], Categorical):
            raise UserError(f"{type(self.model).__name__} predicts real targets, which have no classes: use predict")
        return kind.answer(torch.cat([each.probs for each in p]))

    @torch.no_grad()
    def predictions(self, x: Any, wanted: str) -> tuple[list[Any], Kind]:
        """The distributions of the targets, in chunks."""
        model = self.model
        if not isinstance(model, Predicts):
            raise UserError(
                f"{type(model).__name__} predicts no target, so it cannot {wanted}: it has encode and decode"
            )
        batch, kind = arrays.observations(x, model.facts)
        if batch.mask is not None:
            raise UserError(f"{type(model).__name__} predicts from complete observations, but values are missing (NaN)")
        parts = self.chunks(batch)
        return [model.predict(model.as_float(part.x.to(model.device)), self.given) for part in parts], kind

    def encoded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean and variance [n, Q] of q(z); an error if a row has none."""
        model = self.model
        parts = [model.encode(part.to(model.device), seen=False) for part in self.chunks(batch)]
        mean, variance = (torch.cat([getattr(q, name) for q in parts]) for name in ("mean", "variance"))
        check_rows(mean, batch)
        return mean, variance

    def decoded(self, z: Tensor, aux: Tensor | None, kind: Kind, quantiles: Sequence[float] = ()) -> Decoded:
        """The distribution at latent points [n, Q], in the units of the data."""
        facts, p = self.model.facts, list(self.distributions(z, aux))
        mean = in_units(torch.cat([each.mean for each in p]), facts)
        variance = in_units(torch.cat([variance_of(each) for each in p]), facts, 2)
        known = [variance_without_noise(each, self.model.likelihood) for each in p]
        without = (
            None
            if known[0] is None
            else kind.answer(in_units(torch.cat([each for each in known if each is not None]), facts, 2))
        )
        levels = [kind.answer(in_units(torch.cat([quantile(each, q) for each in p]), facts)) for q in quantiles]
        return Decoded(kind.answer(mean), kind.answer(variance), without, stacked(levels))

    def distributions(self, z: Tensor, aux: Tensor | None) -> Iterator[Distribution]:
        """p(x | z) at latent points [n, Q], in chunks."""
        model = self.model
        rows = torch.arange(len(z)).split(DECODED_AT_ONCE)
        for part in rows:
            at = None if aux is None else aux[part].to(model.device)
            yield model.decode(z[part].to(model.device, model.dtype), self.given, at)

    @cached_property
    def given(self) -> Any:
        """What predictions condition on."""
        with torch.no_grad():
            return self.model.given()

    def chunks(self, batch: Batch, size: int = CHUNK) -> Iterator[Batch]:
        """Parts of a batch that fit into memory; frames of one video stay together."""
        rows = torch.arange(len(batch)).split(len(batch) if self.model.facts.group else size)
        return (batch.part(part) for part in rows)

    def with_latents(self, wanted: str) -> Any:
        """The model, if it has a latent space."""
        if not isinstance(self.model, HasLatents):
            name = type(self.model).__name__
            raise UserError(f"{name} has no latent space, so it cannot {wanted}: it has predict")
        return self.model


def stacked(levels: list[Any]) -> Any:
    """Quantiles [levels, n, ...], or None if nobody asked."""
    if not levels:
        return None
    return torch.stack(levels) if isinstance(levels[0], Tensor) else np.stack(levels)


def check_rows(mean: Tensor, batch: Batch) -> None:
    """Raise a UserError for the first row that could not be encoded."""
    bad = ~mean.isfinite().all(1)
    if bad.any():
        reason = "values are missing" if batch.mask is not None else "its values are far from the training data"
        raise UserError(f"row {int(bad.nonzero()[0])} of x cannot be encoded: {reason}")
