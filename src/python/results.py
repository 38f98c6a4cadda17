"""What a trained model answers: small named tuples of arrays, numpy or torch like the question.

For one point they lack the axis n. Values are in the units of the data: 0 to 1 for images of bytes.
"""

from typing import Any, NamedTuple


class Encoded(NamedTuple):
    """q(z) of observations."""

    mean: Any  # [n, Q]
    variance: Any  # [n, Q]; 0 for models whose latents are points


class Decoded(NamedTuple):
    """The distribution of observations at latent points."""

    mean: Any  # [n, *shape]; of bits and categories their probabilities
    variance: Any  # [n, *shape], of a new observation: noise included
    variance_without_noise: Any  # [n, *shape], of what the decoder knows; None for bits and categories
    quantiles: Any = None  # [levels, n, *shape], of a new observation, if they were asked for

    @property
    def sd(self) -> Any:
        """The standard deviation of a new observation."""
        return self.variance**0.5


class Sampled(NamedTuple):
    """New observations, and the latent points that they come from."""

    x: Any  # [n, *shape], with noise
    mean: Any  # [n, *shape], without noise
    z: Any  # [n, Q]


class Imputed(NamedTuple):
    """Observations without holes."""

    x: Any  # [n, *shape]: what was observed, and the mean of what was not
    mean: Any  # [n, *shape]
    variance: Any  # [n, *shape], of a new observation: that of z and of the noise included


class Path(NamedTuple):
    """A curve through the latent space, and what it decodes to."""

    z: Any  # [steps, Q]
    mean: Any  # [steps, *shape]
    variance: Any  # [steps, *shape], noise included
    variance_without_noise: Any  # as in Decoded


class Predicted(NamedTuple):
    """The distribution of real targets."""

    mean: Any  # [n, P]
    variance: Any  # [n, P], noise included
    quantiles: Any = None  # [levels, n, P], if they were asked for
