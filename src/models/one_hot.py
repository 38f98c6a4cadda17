"""The distribution of one-hot columns, which torch has for a single category only."""

from torch import Tensor
from torch import distributions as D


class OneHot(D.Distribution):
    """One-hot columns by their log probabilities [..., D]; the log probability of a category is that of its column."""

    def __init__(self, log_probs: Tensor) -> None:
        super().__init__(log_probs.shape, validate_args=False)
        self.log_probs = log_probs

    @property
    def mean(self) -> Tensor:
        """The probabilities."""
        return self.log_probs.exp()

    @property
    def variance(self) -> Tensor:
        """Of each column."""
        return self.mean * (1 - self.mean)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log probability of a category at the column that is 1, and 0 at the others: their sum counts."""
        return x * self.log_probs
