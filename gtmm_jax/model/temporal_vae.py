"""One time step of the temporal VAE.

Gemici et al. 2017, sections 2 and 3 (https://arxiv.org/abs/1702.04649). All
that depends on the past goes through the memory's context Psi_{t-1}, which the
core reads from what it was given up to z_{t-1} and c_t. The factors of the
joint distribution (eq. 1) and of the posterior, each beside the method that
computes it, are

  p(z_t | z_<t, x_<t)  = N(f_z(Psi_{t-1}))            `TemporalVAE.prior`
  p(x_t | z_<=t, x_<t) = p(x_t | f_x(z_t, Psi_{t-1})) `TemporalVAE.decode`
  q(z_t | z_<t, x_<=t) = N(f_q(x_t, Psi_{t-1}))       `TemporalVAE.posterior`

The VRNN's core is also given the features of x_{t-1}. z_0 and the features of
x_0 are zero.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, scan
from gtmm_jax.model.distributions import Bernoulli, DiagonalGaussian, Mixture

Array = jax.Array
Store = Literal['sample', 'mean', 'denoised']

# A training step moves the average of the posterior's variance by 1%.
_VARIANCE_MOMENTUM = 0.99


class State(NamedTuple):
  """State that one time step hands to the next.

  Attributes:
    core: the memory core's carry.
    stored_tm1: z_{t-1} as the core will be given it (see `TemporalVAE.store`),
      [..., Z].
    features_tm1: features of x_{t-1}, [..., F]; None where the core sees no
      frames.
  """

  core: Any
  stored_tm1: Array
  features_tm1: Array | None


class Step(NamedTuple):
  """Inference of one time step, or of many stacked in front.

  Attributes:
    z: latent sample, [..., Z].
    context: Psi_{t-1}, [..., P].
    posterior: q(z_t | z_<t, x_<=t), over [..., Z].
  """

  z: Array
  context: Array
  posterior: DiagonalGaussian


class Imagined(NamedTuple):
  """Generation of one time step.

  Attributes:
    z: latent drawn from the prior, [..., Z].
    context: Psi_{t-1}, [..., P].
    stored: z as the core will be given it, [..., Z].
    frame: [..., H, W, C], where the next steps depend on it; else None.
  """

  z: Array
  context: Array
  stored: Array
  frame: Array | None


class TemporalVAE(nn.Module):
  """One time step of the generative model and of its posterior.

  Attributes:
    core: memory core (see `gtmm_jax.memory.contract`).
    prior_map: f_z, from a context to a Gaussian over z, or to a mixture of
      them.
    posterior_map: f_q, with `encode`, from (features, context) to a Gaussian
      over z.
    observation_map: f_x, from (z, context, train) to a distribution of frames.
    latent_size: Z.
    core_sees_frames: whether the core's input starts with the features of
      x_{t-1}; the VRNN's does, the memories' do not.
    store: form in which the core is given z_{t-1}. 'sample': the sample, as in
      the paper. 'mean': the posterior's mean, so that the context is a function
      of past frames, which eq. 1 allows. 'denoised': the sample, each dimension
      times 1 minus a running average of the posterior's variance (collection
      `batch_stats`), so that dimensions of noise alone, variance 1, vanish.
    summary_size: if above 0, the core is given a linear map of the stored
      latent to this many features, instead of all Z.
    condition_scale: the core is given c_t times this number.
    posterior_sees_prior: whether f_q is given the prior of z_t, too.
  """

  core: nn.Module
  prior_map: nn.Module
  posterior_map: nn.Module
  observation_map: nn.Module
  latent_size: int
  core_sees_frames: bool = False
  store: Store = 'sample'
  summary_size: int = 0
  condition_scale: float = 1.0
  posterior_sees_prior: bool = False

  def setup(self) -> None:
    """Makes the running average of the posterior's variance, [Z].

    Raises:
      ValueError: `store` is none of its values.
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
      self.summary = scan.dense(self.summary_size, use_bias=False)

  def __call__(
    self, state: State | None, frame: Array, condition: Array, noise: Array
  ) -> tuple[
    State, Step, DiagonalGaussian | Mixture, Bernoulli | DiagonalGaussian
  ]:
    """Infers one time step and returns all factors of eq. 1 at it.

    The plain form of `gtmm_jax.model.free_energy`; `init` calls it.

    Args:
      state: from the step before; None starts a sequence.
      frame: x_t in [0, 1], [..., H, W, C].
      condition: c_t, [..., A].
      noise: standard normal, [..., noise_size].

    Returns:
      The next state, the step with its posterior, the prior of z_t, and the
      distribution of x_t.
    """
    features = self.encode(frame)
    if state is None:
      state = self.initial_state(features, condition)
    state, step = self.observe(state, features, condition, noise)
    prior = self.prior(step.context)
    return state, step, prior, self.decode(step.z, step.context)

  @property
  def noise_size(self) -> int:
    """Returns the normal numbers of a step: Z; one more chooses a component."""
    return self.latent_size + (self.prior_map.components > 1)

  def prior(self, context: Array) -> DiagonalGaussian | Mixture:
    """Returns N(f_z(Psi_{t-1})), or a mixture of Gaussians, over [..., Z]."""
    return self.prior_map(context)

  def encode(
    self, frames: Array, train: bool = False, mask: Array | None = None
  ) -> Array:
    """Returns the features [..., F] of frames [..., H, W, C]; mask [...]."""
    return self.posterior_map.encode(frames, train, mask)

  def posterior(self, features: Array, context: Array) -> DiagonalGaussian:
    """Returns q(z_t | z_<t, x_<=t) = N(f_q(x_t, Psi_{t-1})), over [..., Z]."""
    prior = [self.prior(context)] if self.posterior_sees_prior else []
    return self.posterior_map(features, context, *prior)

  def decode(
    self,
    z: Array,
    context: Array,
    train: bool = False,
    mask: Array | None = None,
  ) -> Bernoulli | DiagonalGaussian:
    """Returns p(x_t | f_x(z_t, Psi_{t-1})), over [..., H, W, C]."""
    return self.observation_map(z, context, train, mask)

  def initial_state(self, features: Array, condition: Array) -> State:
    """Returns the state before the first frame.

    z_0 and features of x_0 are 0, the core's carry is fresh. Of the arguments,
    [..., F] and [..., A] of one step, only shapes and dtype count.
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

  def observe(
    self, state: State, features: Array, condition: Array, noise: Array
  ) -> tuple[State, Step]:
    """Infers z_t from a frame and the past.

    Args:
      state: from the step before.
      features: of x_t, [..., F].
      condition: c_t, [..., A].
      noise: standard normal, [..., noise_size].

    Returns:
      The next state and the step.
    """
    core, context = self._read(state, condition)
    posterior = self.posterior(features, context)
    z = posterior.sample(noise[..., : self.latent_size])
    state = State(core, self.stored(z, posterior), self._seen(features))
    return state, Step(z, context, posterior)

  def imagine(
    self,
    state: State,
    condition: Array,
    noise: Array,
    frame_noise: Array | None = None,
  ) -> tuple[State, Imagined]:
    """Draws z_t from the prior.

    Where the next steps depend on the frame, because the core sees frames or is
    given posterior means, the frame is generated and encoded again.

    Args:
      state: from the step before.
      condition: c_t, [..., A].
      noise: standard normal, [..., noise_size].
      frame_noise: noise to sample the frame with, [..., H, W, C]; None takes
        the frame's mean.

    Returns:
      The next state and the generated step.
    """
    core, context = self._read(state, condition)
    z = self.prior(context).sample(noise)
    frame = features = posterior = None
    if self.core_sees_frames or self.store == 'mean':
      distribution = self.decode(z, context)
      frame = distribution.mean
      if frame_noise is not None:
        frame = distribution.sample(frame_noise)
      features = self.encode(frame)
      posterior = self.posterior(features, context)
    stored = self.stored(z, posterior)
    state = State(core, stored, self._seen(features))
    return state, Imagined(z, context, stored, frame)

  def stored(self, z: Array, posterior: DiagonalGaussian | None) -> Array:
    """Returns z_t [..., Z] as the core gets it; 'mean' uses the posterior."""
    if self.store == 'sample':
      return z
    if self.store == 'mean':
      return posterior.mean
    variance = jnp.clip(self.posterior_variance.value, 0.0, 1.0)
    return z * addressing.aligned(1.0 - variance.astype(z.dtype), z)

  def update_statistics(
    self, posterior: DiagonalGaussian, mask: Array | None = None
  ) -> None:
    """Moves the running average of the posterior's variance; training only.

    The posterior is of whole sequences, [T, B, Z], of which frames count where
    the mask [T, B] is true.
    """
    if self.store != 'denoised':
      return
    axes = tuple(range(posterior.log_scale.ndim - 1))
    where = None if mask is None else mask[..., None]
    variance = jnp.exp(2.0 * posterior.log_scale).mean(axes, where=where)
    average = self.posterior_variance
    average.value = _VARIANCE_MOMENTUM * average.value + (
      1.0 - _VARIANCE_MOMENTUM
    ) * jax.lax.stop_gradient(variance)

  def _read(self, state: State, condition: Array) -> tuple[Any, Array]:
    """Calls the core on z_{t-1} and c_t; returns its carry and Psi_{t-1}."""
    stored = state.stored_tm1
    if self.summary_size:
      stored = self.summary(stored)
    inputs = [stored, self.condition_scale * condition]
    if state.features_tm1 is not None:
      inputs.insert(0, state.features_tm1)
    return self.core(state.core, jnp.concatenate(inputs, axis=-1))

  def _seen(self, features: Array | None) -> Array | None:
    """Returns the features if the core sees frames, else None."""
    return features if self.core_sees_frames else None
