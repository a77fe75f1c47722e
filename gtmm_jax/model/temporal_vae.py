"""The temporal VAE of Gemici et al. 2017, sections 2 and 3: one time step.

At step t the core is called first, with z_{t-1} and c_t (the VRNN's also with
the features of x_{t-1}); what it returns is the context of prior, posterior and
observation map at t, the paper's Psi_{t-1}. z_0 and the features of x_0 are
zero. Every dependence on the past goes through that context.

The core is given c_t times sqrt(Z), or the root of the summary's size where
there is one. The paper does not say how actions are coded. One-hot, beside Z
numbers of variance one, they are of little weight at the start, and models take
long to heed them; so they are made as strong.
"""

import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, products
from gtmm_jax.model.distributions import (
  Bernoulli,
  DiagonalGaussian,
  kl_divergence,
)
from gtmm_jax.model.steps import Imagined, Inferred, State, Step

Array = jax.Array
Store = Literal['sample', 'mean', 'denoised']

# A step moves the running average of the posterior's variance by a hundredth.
_VARIANCE_MOMENTUM = 0.99


class TemporalVAE(nn.Module):
  """One time step of the generative temporal model and of its posterior.

  Attributes:
    core: memory core (see `gtmm_jax.memory.contract`).
    prior_map: context -> Gaussian.
    posterior_map: with `encode`, and (features, context) -> Gaussian.
    observation_map: (z, context, train) -> distribution of the frame.
    latent_size: Z.
    core_sees_frames: whether the core's input starts with the features of
      x_{t-1}; the VRNN's does, the memories' do not.
    store: what the core is given of z_{t-1}. 'sample': the sample itself, as in
      the paper. 'mean': the posterior's mean, so that the context is a function
      of past frames, which eq. 1 allows. 'denoised': the sample, each dimension
      times 1 minus a running average of the posterior's variance, a constant of
      the model (collection `batch_stats`): dimensions that carry nothing are
      noise of variance 1, and vanish.
    summary_size: where it is above 0, the core is given a linear map of what
      `store` says, of so many features, in place of all Z.
  """

  core: nn.Module
  prior_map: nn.Module
  posterior_map: nn.Module
  observation_map: nn.Module
  latent_size: int
  core_sees_frames: bool = False
  store: Store = 'sample'
  summary_size: int = 0

  def setup(self) -> None:
    """Makes the running average of the posterior's variance, [Z].

    Raises:
      ValueError: if `store` is none of its values.
    """
    if self.store not in get_args(Store):
      raise ValueError(
        f'store is {self.store!r}; it must be sample, mean or denoised.'
      )
    if self.store == 'denoised':
      self.posterior_variance = self.variable(
        'batch_stats', 'posterior_variance', contract.zeros, self.latent_size
      )
    if self.summary_size:
      self.summary = nn.Dense(
        self.summary_size, use_bias=False, dot_general=products.dot_general
      )

  def __call__(
    self, state: State | None, frame: Array, condition: Array, noise: Array
  ) -> tuple[State, Step, Bernoulli | DiagonalGaussian]:
    """One whole step on a frame: encode, advance, decode.

    The plain form of `gtmm_jax.model.free_energy`, and what `init` calls.

    Args:
      state: from the step before; None starts a sequence.
      frame: x_t in [0, 1], [..., H, W, C].
      condition: c_t, [..., A].
      noise: standard normal, [..., Z].

    Returns:
      The next state, the step, and the distribution of the frame.
    """
    features = self.encode(frame)
    if state is None:
      state = self.initial_state(features, condition)
    state, step = self.step(state, features, condition, noise)
    return state, step, self.decode(step.z, step.context)

  def encode(self, frames: Array, train: bool = False) -> Array:
    """Frames [..., H, W, C] -> features [..., F], all at once."""
    return self.posterior_map.encode(frames, train)

  def decode(
    self, z: Array, context: Array, train: bool = False
  ) -> Bernoulli | DiagonalGaussian:
    """Latents and contexts -> distribution of frames, all at once."""
    return self.observation_map(z, context, train)

  def initial_state(self, features: Array, condition: Array) -> State:
    """The state before the first frame; only the shapes of its arguments count.

    Args:
      features: of one step, [..., F].
      condition: of one step, [..., A].

    Returns:
      z_0 = 0, features of x_0 = 0 and the core's fresh carry, all in the dtype
      of the features.
    """
    batch = features.shape[:-1]
    features_tm1 = self._seen(jnp.zeros_like(features))
    stored_tm1 = jnp.zeros((*batch, self.latent_size), features.dtype)
    width = (self.summary_size or self.latent_size) + condition.shape[-1]
    if features_tm1 is not None:
      width += features_tm1.shape[-1]
    core = self.core.initialize_carry(jax.random.key(0), (*batch, width))
    core = contract.in_dtype(core, features.dtype)
    return State(core, stored_tm1, features_tm1)

  def step(
    self, state: State, features: Array, condition: Array, noise: Array
  ) -> tuple[State, Step]:
    """Infers z_t from the frame's features, and judges it by the prior.

    Args:
      state: from the step before.
      features: of x_t, [..., F].
      condition: c_t, [..., A].
      noise: standard normal, [..., Z].

    Returns:
      The next state and the step.
    """
    state, inferred = self.infer_latent(state, features, condition, noise)
    return state, self.judge(inferred)

  def infer_latent(
    self, state: State, features: Array, condition: Array, noise: Array
  ) -> tuple[State, Inferred]:
    """The part of `step` that later steps depend on."""
    core, context = self._advance(state, condition)
    posterior = self.posterior_map(features, context)
    z = posterior.sample(noise)
    stored = self._stored(z, posterior)
    inferred = Inferred(z, context, posterior)
    return State(core, stored, self._seen(features)), inferred

  def judge(self, inferred: Inferred) -> Step:
    """The rest of `step`: prior and KL of one step, or of all at once."""
    z, context, posterior = inferred
    prior = self.prior_map(context)
    # The maps keep log-scales within +-4.
    kl = kl_divergence(posterior, prior, bounded=True)
    return Step(z, context, prior, posterior, kl)

  def imagine(
    self,
    state: State,
    condition: Array,
    noise: Array,
    frame_noise: Array | None = None,
  ) -> tuple[State, Imagined]:
    """Draws z_t from the prior: one step of a dream.

    A frame is made only where something has to see it: a core that sees frames,
    or a memory that is given posterior means. It is then encoded again.

    Args:
      state: from the step before.
      condition: c_t, [..., A].
      noise: standard normal, [..., Z].
      frame_noise: what the frame's distribution is sampled with, [..., H, W,
        C]; None takes its mean.

    Returns:
      The next state and what was imagined.
    """
    core, context = self._advance(state, condition)
    z = self.prior_map(context).sample(noise)
    if not (self.core_sees_frames or self.store == 'mean'):
      stored = self._stored(z, None)
      return (
        State(core, stored, state.features_tm1),
        Imagined(z, context, stored, None),
      )
    distribution = self.decode(z, context)
    if frame_noise is None:
      frame = distribution.mean
    else:
      frame = distribution.sample(frame_noise)
    features = self.encode(frame)
    stored = self._stored(z, self.posterior_map(features, context))
    return (
      State(core, stored, self._seen(features)),
      Imagined(z, context, stored, frame),
    )

  def update_statistics(self, posterior: DiagonalGaussian) -> None:
    """Moves the running average of the posterior's variance; training only.

    Args:
      posterior: of whole sequences, [T, B, Z].
    """
    if self.store == 'denoised':
      axes = tuple(range(posterior.log_scale.ndim - 1))
      variance = jnp.exp(2.0 * posterior.log_scale).mean(axes)
      average = self.posterior_variance
      average.value = _VARIANCE_MOMENTUM * average.value + (
        1.0 - _VARIANCE_MOMENTUM
      ) * jax.lax.stop_gradient(variance)

  def _advance(self, state: State, condition: Array) -> tuple[Any, Array]:
    """Calls the core; returns its carry and the context."""
    stored = state.stored_tm1
    if self.summary_size:
      stored = self.summary(stored)
    heard = condition * math.sqrt(stored.shape[-1])
    inputs = [stored, heard]
    if state.features_tm1 is not None:
      inputs.insert(0, state.features_tm1)
    return self.core(state.core, jnp.concatenate(inputs, axis=-1))

  def _stored(self, z: Array, posterior: DiagonalGaussian | None) -> Array:
    """What the memory is given of this step, [..., Z]."""
    if self.store == 'sample':
      return z
    if self.store == 'mean':
      return posterior.mean
    variance = jnp.clip(self.posterior_variance.value, 0.0, 1.0)
    return z * addressing.aligned(1.0 - variance.astype(z.dtype), z)

  def _seen(self, features: Array) -> Array | None:
    """The features that the core will see: all, or none."""
    return features if self.core_sees_frames else None
