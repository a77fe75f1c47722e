"""Particles: weighted samples of a sequence's latents, and their resampling.

At every step, each particle draws z_t from the posterior, and its weight is
multiplied by exp(a_t) (Gemici et al. 2017, https://arxiv.org/abs/1702.04649),

  a_t = log p(x_t | z_<=t, x_<t) + log p(z_t | z_<t, x_<t)
        - log q(z_t | z_<t, x_<=t)

whose expectation is the free energy F_t of eq. 7. `importance.py` computes
bounds of log p(x) from them.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.model.distributions import frame_sum
from gtmm_jax.model.free_energy import Variables
from gtmm_jax.model.temporal_vae import State, TemporalVAE

Array = jax.Array


class Particles(NamedTuple):
  """N weighted samples of the latents of one sequence, up to a step.

  Attributes:
    state: the temporal VAE's, leaves [N, ...].
    log_weights: logarithms of the weights, [N]. They sum to one; before the
      first step, to the share of these particles in all.
    log_likelihood: the estimate of log p(x_<=t), nats, [].
  """

  state: State
  log_weights: Array
  log_likelihood: Array


class Observed(NamedTuple):
  """One step of a sequence, or all steps stacked in front.

  Attributes:
    frame: x_t in [0, 1], [..., H, W, C].
    features: of x_t, [..., F].
    condition: c_t, [..., A].
    mask: false for padding after the sequence, which changes no weight, bool
      [...]; None for no padding.
  """

  frame: Array
  features: Array
  condition: Array
  mask: Array | None = None


def run(
  model: TemporalVAE,
  variables: Variables,
  observed: Observed,
  key: Array,
  numbers: Array,
  samples: int,
  threshold: float | None,
) -> Array:
  """Runs particles of one sequence through all its steps.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    observed: the sequence, leaves [T, ...].
    key: random key of the sequence.
    numbers: int32 [N], which of the sequence's particles these are: each has
      noise of its own. Numbers from `samples` on have weight zero.
    samples: K, particles of the sequence in all.
    threshold: as of `resample`, where all K are run together; None never
      resamples.

  Returns:
    The estimate of log p(x), nats, []. If these are some of K particles, the
    exponentials of all such estimates add up to that of p(x).
  """
  dtype = observed.features.dtype
  noise_key, resampling_key = jax.random.split(key)
  length, count = len(observed.frame), len(numbers)

  def draw(number):
    sample_key = jax.random.fold_in(noise_key, number)
    return jax.random.normal(sample_key, (length, model.latent_size), dtype)

  noise = jax.vmap(draw, out_axes=1)(numbers)
  offsets = jax.random.uniform(resampling_key, (length,), dtype)
  first = (
    _repeat(x[0], count) for x in (observed.features, observed.condition)
  )
  state = model.apply(variables, *first, method='initial_state')
  log_weights = jnp.where(numbers < samples, -math.log(samples), -jnp.inf)
  particles = Particles(state, log_weights.astype(dtype), jnp.zeros((), dtype))

  def step(particles, inputs):
    observed_t, noise_t, offset = inputs
    if threshold is not None:
      particles = resample(particles, offset, threshold)
    return advance(model, variables, particles, observed_t, noise_t), None

  particles, _ = jax.lax.scan(step, particles, (observed, noise, offsets))
  return particles.log_likelihood


def advance(
  model: TemporalVAE,
  variables: Variables,
  particles: Particles,
  observed: Observed,
  noise: Array,
) -> Particles:
  """Draws the latents of one step, and weighs the particles anew.

  Args:
    model: the temporal VAE.
    variables: its variables.
    particles: after the step before.
    observed: the frame of this step.
    noise: standard normal, [N, Z].

  Returns:
    The particles after this step.
  """

  def apply(method, *args):
    return model.apply(variables, *args, method=method)

  count = len(noise)
  features = _repeat(observed.features, count)
  condition = _repeat(observed.condition, count)
  state, step = apply('observe', particles.state, features, condition, noise)
  likelihood = apply('decode', step.z, step.context)
  log_factors = (
    frame_sum(likelihood.log_likelihood(observed.frame))
    + apply('prior', step.context).log_density(step.z)
    - step.posterior.log_density(step.z)
  )
  if observed.mask is not None:
    log_factors = jnp.where(observed.mask, log_factors, 0.0)
  log_weights = particles.log_weights + log_factors
  total = jax.nn.logsumexp(log_weights)
  # The estimate stays minus infinity; the weights would become NaN.
  are_dead = total == -jnp.inf
  log_weights = jnp.where(are_dead, particles.log_weights, log_weights - total)
  return Particles(state, log_weights, particles.log_likelihood + total)


def resample(
  particles: Particles, offset: Array, threshold: float
) -> Particles:
  """Resamples particles if their effective sample size is too small.

  The size is 1 / sum_n (w^n)^2: N where the weights are equal, 1 where one
  particle has all the weight. The whole state of a particle goes with it, all
  that its memory holds included.

  Args:
    particles: N of them; the weights sum to one.
    offset: uniform in [0, 1), [].
    threshold: the share of N that the effective sample size must reach.

  Returns:
    Particles of equal weights, or the same as before.
  """
  count = len(particles.log_weights)
  weights = jnp.exp(particles.log_weights)
  is_small = 1.0 / jnp.square(weights).sum() < threshold * count
  ancestors = jnp.where(
    is_small, systematic(weights, offset), jnp.arange(count)
  )
  return particles._replace(
    state=jax.tree.map(lambda leaf: leaf[ancestors], particles.state),
    log_weights=jnp.where(is_small, -math.log(count), particles.log_weights),
  )


def systematic(weights: Array, offset: Array) -> Array:
  """Draws N ancestors by systematic resampling, in ascending order.

  Ancestor n, from 0 on, is the first particle whose cumulative weight exceeds
  (n + offset) / N. Particle n is drawn floor(N w^n) or ceil(N w^n) times, N w^n
  in expectation.

  Args:
    weights: in proportion to the probabilities, [N], not all zero.
    offset: uniform in [0, 1), [].

  Returns:
    Indices of particles, [N]; none has weight zero.
  """
  count = len(weights)
  # A sum in parallel is not quite monotonic: a weight of zero may change it.
  cumulative = jnp.where(weights > 0, jnp.cumsum(weights), -jnp.inf)
  cumulative = jax.lax.cummax(cumulative)
  below_one = 1 - jnp.finfo(weights.dtype).eps
  positions = (jnp.arange(count) + offset) / count * below_one
  return jnp.searchsorted(cumulative, positions * cumulative[-1], side='right')


def _repeat(x: Array, count: int) -> Array:
  """Repeats an array [...] for every particle, [N, ...]."""
  return jnp.broadcast_to(x, (count, *x.shape))
