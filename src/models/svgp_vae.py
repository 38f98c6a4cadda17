"""SVGP-VAE: a VAE whose latents are sparse GPs of auxiliary inputs, trained in batches.

Jazbec, Ashman, Fortuin, Pearce, Mandt & Rätsch, "Scalable Gaussian Process Variational Autoencoders", AISTATS 2021.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent
from torch.nn import Parameter
from torch.optim import Adam, Optimizer

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.kernels import covariance
from src.gp.linalg import cholesky, solve_lower
from src.gp.sparse import Statistics, Whitened, add_jitter, optimal_q, prior_factor, statistics
from src.gp.training_marginals import optimal_marginals
from src.models.base import Terms
from src.models.gp_prior import Inferred, PseudoObserved
from src.models.likelihoods import Gaussian, mean_observed, x_at
from src.models.needs import inducing_problem, require
from src.models.options import GPPriorOptions, LearningOptions
from src.models.posterior import gaussian
from src.runs.errors import UserError
from src.runs.randomness import stream

SMOOTHING = 0.99  # of the running mean of GECO's constraint


class SVGPVAE(PseudoObserved):
    """The GP-VAE with q(z) from M inducing points, which are themselves inferred from the batch (Eq. 9).

    With `geco` the training makes the KL divergence small subject to a mean squared error of `geco` (Rezende & Viola,
    2018); without it, it maximises the bound.
    """

    inducing: Parameter  # [M, P]
    known_mean: Tensor  # [L, M], with known_root q(v) of all training data
    known_root: Tensor  # [L, M, M]
    constraint: Tensor  # the running mean C of GECO's constraint
    log_multiplier: Tensor  # log lambda, since lambda itself leaves the range of float32

    def __init__(
        self,
        facts: Facts,
        vae: GPPriorOptions,
        learning: LearningOptions,
        num_inducing: int = 32,
        geco: float | None = None,
    ) -> None:
        super().__init__(facts, vae, learning)
        self.geco = geco
        if geco is not None:
            if not isinstance(self.likelihood, Gaussian):
                raise UserError("model.geco sets a squared error: it needs model.likelihood=gaussian")
            self.likelihood = Gaussian(geco).requires_grad_(False)
        self.inducing = Parameter(torch.zeros(num_inducing, self.aux.size))
        self.register_buffer("known_mean", torch.zeros(self.latent_dim, num_inducing))
        self.register_buffer("known_root", torch.eye(num_inducing).repeat(self.latent_dim, 1, 1))  # with mean 0: prior
        self.register_buffer("constraint", torch.zeros(()))
        self.register_buffer("log_multiplier", torch.zeros(()))

    def check(self, facts: Facts) -> None:
        """There are more points than inducing ones, and GECO can rescale the optimiser."""
        super().check(facts)
        require(inducing_problem(len(self.inducing), self.num_data))
        if self.geco is not None and not isinstance(self.make_optimizer(), Adam):
            raise UserError(
                "model.geco rescales the moments of Adam after every step, which other optimisers do not have: "
                "use optimizer=adam or optimizer=adamw"
            )

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """Also place the inducing points."""
        super().initialise(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(self.seed, self.num_data))
            x = self.filled(data.train.draw(max(1000, len(self.inducing)), self.seed).to(self.device))
            self.inducing.copy_(self.aux.inducing(len(self.inducing), data.train, x))

    def objective(self, batch: Batch) -> Terms:
        """Eq. 10 as E_q[log p(x | z)] - (b / N) sum_l KL[q(f_m) || p(f_m)], or GECO's constraint with that divergence.

        The data terms of L_H and E_q[log q~] are the same and cancel. GECO minimises (b / N) KL + lambda c, where c is
        the mean squared error less its target; here divided by lambda, as `optimizer_step` makes up for.
        """
        if self.geco is None:
            return super().objective(batch)
        q, kl, jitter = self.posterior(batch)
        x = x_at(self.as_float(batch.x), batch.mask)
        error = mean_observed((x - self.decoder(q.rsample())).square(), batch.mask)
        self.violation = (error - self.geco).detach()
        loss = error - self.geco + (-self.log_multiplier).exp() * kl
        parts = {"mse": error, "kl": -kl / batch.observed, "log_multiplier": self.log_multiplier.clone()}
        return Terms(loss, {**{name: part.detach() for name, part in parts.items()}, "jitter": jitter})

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """A step, after which GECO raises lambda if the error is too large."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self.geco is not None:
            self.raise_multiplier(getattr(optimizer, "optimizer", optimizer))

    @torch.no_grad()
    def raise_multiplier(self, adam: Optimizer) -> None:
        """C <- .99 C + .01 c, lambda <- lambda exp(C), and Adam's moments to the scale of the next gradients.

        The published loss is lambda times ours, with gradients that grow by exp(C) a step and soon overflow. Its
        iterates are those of ours if after each step the first moment is divided by exp(C) and the second by exp(2 C).
        """
        smoothed = SMOOTHING * self.constraint + (1 - SMOOTHING) * self.violation
        before_first = self.constraint == 0
        self.constraint.copy_(torch.where(before_first, self.violation, smoothed))
        self.log_multiplier.add_(self.constraint)
        shrink = (-self.constraint).exp()
        states = [state for state in adam.state.values() if "exp_avg" in state]
        torch._foreach_mul_([state["exp_avg"] for state in states], shrink)
        torch._foreach_mul_([state["exp_avg_sq"] for state in states], shrink.square())

    def infer(self, inputs: Tensor, rows: Tensor, y: Tensor, weight: Tensor) -> Inferred:
        """q_S, Eq. 3 and 9, with the batch's part (b / N) of its KL, and the jitter of K_mm."""
        inducing = self.inducing.double()
        k = covariance(self.kernel, inducing, torch.cat([inducing, inputs]))  # one call costs less than two
        k_mm, k_mx = k.tensor_split([len(inducing)], 1)
        chol, jitter = cholesky(add_jitter(k_mm))
        projection = solve_lower(chol, k_mx).mT[rows].mT  # [G, M, T]
        scale = 1.0 if self.aux.grouped else self.num_data / len(inputs)
        k_xx = self.kernel(inputs, diag=True)[rows]
        mean, variance, kl = optimal_marginals(statistics(projection, y, weight), scale, projection, k_xx, y.dtype)
        return Inferred(mean, variance, kl.sum() / scale, jitter)

    def factor(self) -> tuple[Tensor, float]:
        """The Cholesky factor of K_mm, and the jitter it took."""
        return prior_factor(self.kernel, self.inducing)

    def project(self, chol: Tensor, inputs: Tensor) -> Tensor:
        """L^-1 k_mx [M, X] of inputs in float64."""
        return solve_lower(chol, covariance(self.kernel, self.inducing.double(), inputs))

    def posterior_at(self, inputs: Tensor) -> Independent:
        """q_S given all training data, at inputs [X, P]."""
        at = inputs.double()
        q = Whitened(self.known_mean.mT, self.known_root.mT)
        return gaussian(*q.marginals(self.project(self.factor()[0], at), self.kernel(at, diag=True)))

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep q(f_m) of all training data, Eq. 9 with b = N."""
        if self.aux.grouped:
            return
        chol, _ = self.factor()
        chunks = [self.chunk_statistics(chol, chunk.to(self.device)) for chunk in data.train.chunks(1000)]
        total = Statistics(*(torch.stack(parts).sum(0) for parts in zip(*chunks, strict=True)))
        q = optimal_q(total, 1.0, self.known_mean.dtype)
        self.known_mean.copy_(q.mean.mT)
        self.known_root.copy_(q.scale.mT)

    @torch.no_grad()
    def trace(self, data: DataModule) -> dict[str, float]:
        """Also the inducing times of videos, in order."""
        times = self.inducing[:, 0].sort().values.tolist() if self.aux.grouped else []
        return super().trace(data) | {f"inducing_{number}": time for number, time in enumerate(times)}

    @torch.no_grad()
    def trace_closely(self, data: DataModule) -> dict[str, float]:
        """The bias of q_S in mini-batches; videos, which have a q_S each, have none."""
        return {} if self.aux.grouped else {"bias": self.bias(data)}

    def bias(self, data: DataModule) -> float:
        """The mean over channels of |mean over batches of mu_b - mu| / M, Appendix C.4: mu of Eq. 9, mu with b = N.

        The batches of an epoch are parts of the training data in random order, all of the size that training uses.
        """
        chol, _ = self.factor()
        size = min(data.batch_size, self.num_data)
        order = torch.randperm(self.num_data, generator=torch.Generator().manual_seed(self.seed))
        batches = [data.train[rows].to(self.device) for rows in order.split(size) if len(rows) == size]
        found = [self.chunk_statistics(chol, batch) for batch in batches]
        means = torch.stack([optimal_q(each, self.num_data / size, torch.float64).values(chol)[0] for each in found])
        self.finalise(data)
        truth = chol @ self.known_mean.mT.double()
        return ((means.mean(0) - truth).abs().sum(0).mean() / len(self.inducing)).item()

    def chunk_statistics(self, chol: Tensor, batch: Batch) -> Statistics:
        """What the inducing points learn from some of the training data."""
        pseudo, inputs = self.recognise(batch), self.aux(self.filled(batch), batch.aux)
        return statistics(self.project(chol, inputs.double()), pseudo.mean, 1 / pseudo.variance)
