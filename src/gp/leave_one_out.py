"""Leave-one-out predictive densities from one posterior, without N trainings."""

import math
from typing import NamedTuple

from torch import Tensor


class LeaveOneOut(NamedTuple):
    """Estimates for B points."""

    log_density: Tensor  # [B], log p(y_n | all other y)
    sample_size: Tensor  # [B], the number of equally weighted samples that would tell as much


def leave_one_out(log_likelihood: Tensor, log_weights: Tensor) -> LeaveOneOut:
    """-log E_q[1 / p(y_n | f_n)] from log p(y_n | f_n) [S, K, B] at S samples of each of K weighted components.

    Eq. 19 of AutoGP, by logsumexp. Few samples with a low likelihood have most of the weight, so that a small sample
    size is a warning.
    """
    weight = (log_weights - math.log(len(log_likelihood))).unsqueeze(-1) - log_likelihood  # log of a sample's weight
    total = weight.logsumexp((0, 1))
    return LeaveOneOut(-total, (2 * total - (2 * weight).logsumexp((0, 1))).exp())
