"""SAS-GP: Gaussian-process decoders trained with stochastic active sets.

Moreno-Muñoz, Feldager & Hauberg, "Revisiting Active Sets for Gaussian Process Decoders", NeurIPS 2022.
"""

from typing import ClassVar

import torch
from torch import Tensor

from src.data.batch import Batch, complete_first
from src.data.facts import Facts
from src.gp.active_set import Estimate
from src.models.base import Terms
from src.models.gp_decoder import GPDecoder, check_cost
from src.models.needs import UNBIASED, active_set_problem, full_batch_problem, require
from src.models.posterior import Kind


class SAS(GPDecoder):
    """The point model, Algorithm 1: z is a function of x (amortised) or a free point, the mapping is integrated out."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("point",)

    def check(self, facts: Facts) -> None:
        """The active set is a part of the batch, and something must be left to predict."""
        super().check(facts)
        if self.active_set == "random":
            require(full_batch_problem("active_set=random", facts.batch_size, self.num_data, UNBIASED))
        else:
            require(active_set_problem(self.active_set, facts.batch_size))
        check_cost(facts, self.active_size**2 * facts.batch_size, "set a smaller active_set or dataset.batch_size")

    def objective(self, batch: Batch) -> Terms:
        """Algorithm 1, lines 5-13: minus the estimate of log p(x | z)."""
        x, mask = self.observed(batch)
        z = self.encode_centred(x, mask, batch.index).rsample()
        active, rest, jitter = self.estimate(self.values(batch, x), z, mask)
        return self.per_value({"active": active, "rest": rest} | self.slope_term(x, mask), jitter)

    def estimate(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Estimate:
        """Eq. 6 with a fixed number of active points, or the unbiased form with a random number.

        Complete points are the first choice for an active set of fixed size: they share one Cholesky factor.
        """
        gp, likelihood = self.densities()
        estimate: Estimate
        if self.active_set == "random":
            rest_size = int(torch.randint(1, len(x) + 1, ()))
            estimate = gp.random_size(x, z, self.kernel, likelihood, rest_size, mask)
            return estimate
        if mask is not None:
            x, z, mask = (part[complete_first(mask)] for part in (x, z, mask))
        estimate = gp.fixed_size(x, z, self.kernel, likelihood, self.active_set, self.num_data, mask)
        return estimate
