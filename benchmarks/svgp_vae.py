"""The SVGP-VAE on rotated MNIST beside our VAE with the same networks: what the Gaussian process costs."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Independent

from benchmarks.examples import composed, training_step
from benchmarks.rows import Row, seconds, slower
from src.data.facts import Facts
from src.models.options import LatentOptions, LearningOptions
from src.models.posterior import GaussianNet
from src.models.vae import VAE
from src.runs.specs import Spec, make
from src.training.experiment import make_data, make_model


class SameNetsVAE(VAE):
    """The VAE with mean and variance from one net, as in the SVGP-VAE."""

    def __init__(self, facts: Facts, latents: LatentOptions, learning: LearningOptions, decoder: Spec) -> None:
        super().__init__(facts, latents, learning, decoder)
        self.latents = GaussianNet(make(latents.encoder, shape=facts.shape, outputs=2 * latents.latent_dim))

    def encode_centred(self, x: Tensor, mask: Tensor | None, index: Tensor) -> Independent:
        """The index is not a condition."""
        q: Independent = self.latents(x.unflatten(1, self.shape))
        return q


def svgp_vae() -> Iterator[Row]:
    """The published setting: 16 channels, 32 inducing points, batches of 256."""
    config = composed("model=svgp_vae", "dataset=rotated_mnist")
    data, spec = make_data(config), config["model"]
    torch.manual_seed(0)
    latents = LatentOptions(spec["encoder"], spec["latent_dim"])
    vae = SameNetsVAE(data.facts, latents, LearningOptions(spec["optimizer"]), spec["decoder"])
    model = make_model(config, data)
    for each in (model, vae):
        each.initialise(data)
    batch = data.train.draw(data.batch_size, 0)
    ours, other = seconds(*(training_step(m, lambda: batch) for m in (model, vae)), repeats=25)
    yield slower("svgp_vae step, rotated MNIST", "our VAE with the same networks", ours, other, 2.0)
