"""A small model that trains in two phases with different objectives, parameters and optimisers."""

from typing import Any, ClassVar

from src.data.batch import Batch
from src.models.base import Terms
from src.models.phases import Phase
from src.models.vae import VAE

RMSPROP: dict[str, Any] = {
    "lr": 1e-3,
    "schedule": "late",
    "algorithm": {"_target_": "torch.optim.RMSprop", "_partial_": True, "momentum": 0.9},
}
OVERRIDES = ("model._target_=tests.training.two_phases.AlternatingVAE", "trainer.max_epochs=4")


class AlternatingVAE(VAE):
    """Two epochs of the ELBO of everything, then one epoch of the fit at the mean of q(z), of the decoder alone."""

    phases: ClassVar[tuple[Phase, ...]] = (  # type: ignore[misc]
        Phase(epochs=2),
        Phase(epochs=1, objective="mean_fit", parameters=("net", "likelihood"), optimizer=RMSPROP),
    )

    def mean_fit(self, batch: Batch) -> Terms:
        """(N / B) sum_n log p(x_n | E_q[z_n])."""
        z = self.encode(batch, seen=True).mean
        fit = self.likelihood.log_prob(self.as_float(batch.x), self.mean(z)).sum()
        return self.per_value({"mean_fit": self.num_data / len(batch) * fit})
