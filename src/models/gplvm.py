"""GP-LVM: the exact marginal likelihood (Lawrence, 2005)."""

from typing import ClassVar

from torch import Tensor

from src.data.batch import Batch
from src.data.facts import Facts
from src.gp.evidence import log_density
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal
from src.gp.patterns import log_density_by_pattern
from src.gp.quadratic_bound import Logits, log_evidence
from src.models.base import Terms
from src.models.gp_decoder import GPDecoder, check_cost
from src.models.posterior import Kind
from src.runs.errors import UserError


class GPLVM(GPDecoder):
    """Point latents, amortised or free. A full batch is Lawrence's model; smaller ones ignore what links batches.

    Predictions condition on an active set, as those of SAS do.
    """

    posteriors: ClassVar[tuple[Kind, ...]] = ("point",)

    def check(self, facts: Facts) -> None:
        """Predictions condition on some of the training points."""
        super().check(facts)
        if not 1 <= self.active_size <= self.num_data:
            raise UserError(f"active_set.size={self.active_size} must lie between 1 and N = {self.num_data}")
        check_cost(facts, facts.batch_size**3, "set a smaller dataset.batch_size, or use model=sas")

    def objective(self, batch: Batch) -> Terms:
        """Eq. 2 of the SAS paper: log p(x | z) of the batch, times N / B. O(B^3), for G patterns of holes O(G B^3)."""
        x, mask = self.observed(batch)
        z = self.encode_centred(x, mask, batch.index).rsample()
        evidence, jitter = self.evidence(self.values(batch, x), z, mask)
        return self.per_value({"evidence": self.num_data / len(z) * evidence} | self.slope_term(x, mask), jitter)

    def evidence(self, x: Tensor, z: Tensor, mask: Tensor | None) -> tuple[Tensor, float]:
        """log p(x | z) of a batch, and the jitter; of bits and categories a lower bound."""
        if self.labels is not None:
            return log_evidence(x, z, self.kernel, Logits(self.labels, self.offset), mask), 0.0
        _, noise = self.densities()
        k = add_diagonal(covariance(self.kernel, z, z), noise)
        return log_density(x, k) if mask is None else log_density_by_pattern(x, mask, k)
