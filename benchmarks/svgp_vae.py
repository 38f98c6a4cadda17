"""The SVGP-VAE on rotated MNIST beside our VAE with the same networks: what the Gaussian process costs."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Independent

from benchmarks.examples import composed, training_step
from benchmarks.rows import Row, seconds, slower
from src.models.posterior import GaussianNet, Kind
from src.models.vae import VAE
from src.runs.specs import Spec, make
from src.training.experiment import make_data


class SameNetsVAE(VAE):
    """The VAE with mean and variance from one net, as the SVGP-VAE has them."""

    def make_latents(self, kind: Kind, encoder: Spec, amortised: bool) -> GaussianNet:
        """One net with twice the outputs."""
        return GaussianNet(make(encoder, shape=self.shape, outputs=2 * self.latent_dim))

    def encode_centred(self, x: Tensor, index: Tensor | None) -> Independent:
        """The index is not a condition."""
        q: Independent = self.latents(x.unflatten(1, self.shape))
        return q


def svgp_vae() -> Iterator[Row]:
    """The published setting: 16 channels, 32 inducing points, batches of 256."""
    config = composed("model=svgp_vae", "dataset=rotated_mnist")
    data, spec = make_data(config), config["model"]
    torch.manual_seed(0)
    model = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
    nets = {name: spec[name] for name in ("encoder", "decoder", "optimizer", "latent_dim")}
    vae = SameNetsVAE(data.shape, len(data.train), **nets)
    model.initialise(data)
    vae.initialise(data)
    batch = data.train.draw(data.batch_size, 0)
    ours, other = seconds(*(training_step(m, lambda: batch) for m in (model, vae)), repeats=25)
    yield slower("svgp_vae step, rotated MNIST", "our VAE with the same networks", ours, other, 2.0)
