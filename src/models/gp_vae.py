"""GP-VAE: a VAE whose latents are functions of auxiliary inputs, with the exact GP posterior.

Pearce, "The Gaussian Process Prior VAE for Interpretable Latent Dynamics from Pixels", AABI 2019.
"""

import torch
from torch import Tensor
from torch.distributions import Independent

from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.exact import exact_posterior
from src.gp.kernels import covariance
from src.models.gp_prior import Inferred, PseudoObserved
from src.models.options import GPPriorOptions, LearningOptions
from src.models.posterior import gaussian
from src.runs.errors import UserError

LARGEST_SET = 5000  # points that one exact GP takes: L matrices of N x N in float64


class GPVAE(PseudoObserved):
    """One exact GP per video, or one for all of a dataset that fits into a batch.

    The objective is Pearce's bound, E_q[log p(x | z)] + log Z(y, s2) - E_q[log N(z | y, s2)], the last two terms being
    -KL[q || GP].
    """

    known_inputs: Tensor  # [N, P], the training points that unseen ones are predicted from
    known_y: Tensor  # [N, L]
    known_weight: Tensor  # [N, L], 0 before the end of training

    def __init__(self, facts: Facts, vae: GPPriorOptions, learning: LearningOptions) -> None:
        super().__init__(facts, vae, learning)
        num_kept = 0 if self.aux.grouped else facts.num_train
        self.register_buffer("known_inputs", torch.zeros(num_kept, self.aux.size))
        self.register_buffer("known_y", torch.zeros(num_kept, self.latent_dim))
        self.register_buffer("known_weight", torch.zeros(num_kept, self.latent_dim))

    def check(self, facts: Facts) -> None:
        """All points of a function come in one batch."""
        super().check(facts)
        if not self.aux.grouped and (self.num_data > LARGEST_SET or facts.batch_size < self.num_data):
            raise UserError(
                f"GPVAE takes the exact GP of all {self.num_data} points at once: at most {LARGEST_SET} points "
                "(dataset.max_train) in one batch (dataset.batch_size=full); model=svgp_vae takes more, in batches"
            )

    def infer(self, inputs: Tensor, rows: Tensor, y: Tensor, weight: Tensor) -> Inferred:
        """The exact posterior and its KL to the prior; it needs no jitter."""
        at = inputs[rows]  # [G, T, P]
        k = covariance(self.kernel, at, at)
        q = exact_posterior(k, y, weight)
        mean, variance = q.marginals(k, k.diagonal(dim1=-2, dim2=-1))
        return Inferred(mean, variance, q.kl(y, weight, mean, variance).sum(), 0.0)

    def posterior_at(self, inputs: Tensor) -> Independent:
        """The GP given the pseudo-observations of all training data, at inputs [X, P]."""
        at, known = inputs.double(), self.known_inputs.double()
        q = exact_posterior(covariance(self.kernel, known, known), self.known_y, self.known_weight)
        return gaussian(*q.marginals(covariance(self.kernel, known, at), self.kernel(at, diag=True)))

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep the pseudo-observations of the training data."""
        if self.aux.grouped:
            return
        for chunk in data.train.chunks(1000):
            batch = chunk.to(self.device)
            pseudo = self.recognise(batch)
            self.known_inputs[batch.index] = self.aux(self.filled(batch), batch.aux)
            self.known_y[batch.index], self.known_weight[batch.index] = pseudo.mean, 1 / pseudo.variance
