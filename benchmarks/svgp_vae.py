"""GP-VAEs on rotated MNIST beside our VAE with the same networks: what the Gaussian process costs."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent

from benchmarks.examples import composed, training_step
from benchmarks.growth import exponent
from benchmarks.rows import Row, seconds, slower
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.low_rank import expected_log_prior
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
    model, vae, data = with_its_vae("model=svgp_vae")
    batch = data.train.draw(data.batch_size, 0)
    ours, other = seconds(*(training_step(m, lambda: batch) for m in (model, vae)), repeats=25)
    yield slower("svgp_vae step, rotated MNIST", "our VAE with the same networks", ours, other, 1.3)


def casale_gp_vae() -> Iterator[Row]:
    """All of an epoch of the published batches, with the expansion of its prior; the growth of the exact prior."""
    model, vae, data = with_its_vae("model=casale_gp_vae", "model.vae_epochs=null")
    steps = data.facts.num_train // data.batch_size
    batch = data.train.draw(data.batch_size, 0)
    step, other_step = (training_step(m, lambda: batch) for m in (model, vae))

    def epoch() -> None:
        model.expand_prior(data.train)
        repeat(step, steps)

    ours, other = seconds(epoch, lambda: repeat(other_step, steps), repeats=5, warm_up=1)
    yield slower("casale_gp_vae epoch, rotated MNIST", "our VAE with the same networks", ours, other, 1.6)
    sizes = (4_050, 20_250, 40_500)  # of one, five and ten digits
    yield exponent("Casale's exact prior with N, H=128", sizes, seconds(*map(prior_step, sizes), repeats=5), 1.1)


def with_its_vae(*overrides: str) -> tuple[Any, SameNetsVAE, DataModule]:
    """A GP-VAE on rotated MNIST, the VAE with its networks, and the data."""
    config = composed(*overrides, "dataset=rotated_mnist")
    data, spec = make_data(config), config["model"]
    torch.manual_seed(0)
    latents = LatentOptions(spec["encoder"], spec["latent_dim"])
    vae = SameNetsVAE(data.facts, latents, LearningOptions(spec["optimizer"]), spec["decoder"])
    model = make_model(config, data)
    for each in (model, vae):
        each.initialise(data)
    return model, vae, data


def prior_step(num_data: int) -> Callable[[], None]:
    """Value and gradient of the exact prior of 16 channels."""
    mean, variance = (torch.rand(num_data, 16, requires_grad=True) for _ in range(2))
    v, noise = torch.randn(num_data, 128, requires_grad=True), torch.tensor([0.1], requires_grad=True)
    return lambda: expected_log_prior(mean, variance, v, noise).backward()


def repeat(step: Callable[[], None], times: int) -> None:
    """The same step several times."""
    for _ in range(times):
        step()
