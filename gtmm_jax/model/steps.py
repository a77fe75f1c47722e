"""What one time step of the temporal VAE takes and makes."""

from typing import Any, NamedTuple

import jax

from gtmm_jax.model.distributions import DiagonalGaussian

Array = jax.Array


class State(NamedTuple):
  """What a step hands to the next.

  Attributes:
    core: the memory core's carry.
    stored_tm1: what the memory is given of z_{t-1}, [..., Z].
    features_tm1: features of x_{t-1}, [..., F]; None where the core sees no
      frames.
  """

  core: Any
  stored_tm1: Array
  features_tm1: Array | None


class Inferred(NamedTuple):
  """What a step with a frame makes for those after it.

  Attributes:
    z: latent sample, [..., Z].
    context: the paper's Psi_{t-1}, [..., P].
    posterior: Gaussian over z.
  """

  z: Array
  context: Array
  posterior: DiagonalGaussian


class Step(NamedTuple):
  """All that a step with a frame makes.

  Attributes:
    z: latent sample, [..., Z].
    context: the paper's Psi_{t-1}, [..., P].
    prior: Gaussian over z.
    posterior: Gaussian over z.
    kl: KL[posterior || prior] in nats, [...].
  """

  z: Array
  context: Array
  prior: DiagonalGaussian
  posterior: DiagonalGaussian
  kl: Array


class Imagined(NamedTuple):
  """What a step without a frame makes.

  Attributes:
    z: latent drawn from the prior, [..., Z].
    context: [..., P].
    stored: what the memory will be given of this step, [..., Z].
    frame: [..., H, W, C], drawn where something needs to see it; else None.
  """

  z: Array
  context: Array
  stored: Array
  frame: Array | None
