"""Options: a flat config becomes the groups of a constructor, and nothing is ignored."""

import pytest

from src.data.facts import Facts
from src.models.options import (
    DecoderOptions,
    GPPriorOptions,
    LatentOptions,
    LearningOptions,
    arguments,
)
from src.models.sas import SAS
from src.models.svgp_vae import SVGPVAE
from src.runs.errors import UserError
from tests.models.builders import spec_of

NET = {"_target_": "a.net"}
KERNEL = {"_target_": "a.kernel"}
ADAM = {"_target_": "an.optimiser"}


class Example:
    """Two groups that share a field, and options of its own."""

    def __init__(
        self, facts: Facts, latents: LatentOptions, learning: LearningOptions, size: int, depth: int = 3
    ) -> None:
        self.facts = facts


def test_every_group_takes_its_own_fields_and_defaults() -> None:
    found = arguments(Example, {"_target_": "x", "encoder": NET, "latent_dim": 5, "optimizer": ADAM, "size": 7})
    assert found == {"latents": LatentOptions(NET, latent_dim=5), "learning": LearningOptions(ADAM), "size": 7}
    assert found["latents"].amortised and found["latents"].posterior is None and found["learning"].seed == 0


def test_an_unknown_option_is_refused_by_its_name() -> None:
    spec = {"_target_": "x", "encoder": NET, "optimizer": ADAM, "size": 7, "widht": 3}
    with pytest.raises(UserError, match=r"Example has no option model\.widht"):
        arguments(Example, spec)


def test_a_group_that_two_parts_need_is_given_to_both() -> None:
    """The encoder belongs to the nets, the kernel to the prior; `noise` to the likelihood alone."""
    spec = spec_of("model=svgp_vae")
    found = arguments(SVGPVAE, spec)
    own = {name: spec[name] for name in ("encoder", "decoder", "variance_range", "kernel", "aux")}
    assert found["vae"] == GPPriorOptions(latent_dim=2, likelihood="gaussian", noise=0.1, **own)
    assert found["learning"] == LearningOptions(spec["optimizer"], 0)
    assert (found["num_inducing"], found["geco"]) == (32, None)


def test_a_point_model_has_its_kernel_and_noise_in_one_group() -> None:
    spec = spec_of("model=sas", "model.noise=0.7", "seed=4", "active_set.size=9")
    found = arguments(SAS, spec)
    assert found["gp"] == DecoderOptions(spec["kernel"], 0.7)
    assert found["learning"].seed == 4 and found["active_set"] == 9
    assert found["latents"].posterior is None and found["latents"].encoder == spec["encoder"]
