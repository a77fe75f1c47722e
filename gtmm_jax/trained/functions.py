"""The pure functions of one replica of a trained model.

Axes B of several episodes may be left out of all arguments and results.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from gtmm_jax.model import free_energy, generate
from gtmm_jax.model.free_energy import Terms, Variables, Watched
from gtmm_jax.model.generate import Dream
from gtmm_jax.model.temporal_vae import State, TemporalVAE
from gtmm_jax.trained import bounds

Array = jax.Array
Bound = Literal['elbo', bounds.Tighter]


def observe(
  model: TemporalVAE,
  variables: Variables,
  key: Array,
  frames: Array,
  condition: Array,
) -> tuple[State, Terms]:
  """Infers the latents of frames.

  Args:
    model: the temporal VAE.
    variables: its variables.
    key: of the noise, `jax.random.normal(key, [T, B, noise_size])`.
    frames: [T, B, H, W, C].
    condition: [T, B, A].

  Returns:
    The state after the last frame, and the terms of the bound.
  """
  noise = _noise(model, key, condition)
  inference = free_energy.infer(model, variables, frames, condition, noise)
  return inference.state, inference.terms


def dream(
  model: TemporalVAE,
  variables: Variables,
  state: State | None,
  key: Array,
  condition: Array,
  *,
  samples: int,
  frame_shape: tuple[int, int, int],
  binarize: bool,
) -> Dream:
  """Draws S dreams that go on from the same state.

  Args:
    model: the temporal VAE.
    variables: its variables.
    state: leaves [B, ...]; None for the one before the first frame.
    key: is split into one for each sample, and each of these into the keys of
      the latents' noise and of the frames'.
    condition: [L, B, A].
    samples: S.
    frame_shape: (H, W, C).
    binarize: whether pixels of frames that are encoded again are drawn.

  Returns:
    Dreams, leaves [S, L, B, ...], and the states after them, [S, B, ...].
  """
  axes = condition.shape[:-1]
  if state is None:
    blank = jnp.zeros((*axes[1:], *frame_shape), jnp.float32)
    features = model.apply(variables, blank, method='encode')
    state = model.apply(
      variables, features, condition[0], method='initial_state'
    )

  def sample(key: Array) -> Dream:
    noise_key, frame_key = jax.random.split(key)
    frame_noise = None
    if binarize:
      frame_noise = jax.random.uniform(
        frame_key, (*axes, *frame_shape), jnp.float32
      )
    noise = _noise(model, noise_key, condition)
    return generate.dream(
      model, variables, state, condition, noise, frame_noise
    )

  return jax.vmap(sample)(jax.random.split(key, samples))


def log_likelihood(
  model: TemporalVAE,
  variables: Variables,
  key: Array,
  frames: Array,
  condition: Array,
  *,
  bound: Bound,
  samples: int,
) -> Array:
  """Computes a lower bound of the log-likelihood of episodes, nats, [B].

  Args:
    model: the temporal VAE.
    variables: its variables.
    key: random key.
    frames: [T, B, H, W, C].
    condition: [T, B, A].
    bound: 'elbo', the mean of S estimates of the bound that is trained; 'iwae'
      and 'particle', tighter ones from S samples (`evaluation.importance`).
    samples: S.
  """
  if bound != 'elbo':
    is_one = frames.ndim == 4
    if is_one:
      frames, condition = frames[:, None], condition[:, None]
    estimate = bounds.ESTIMATES[bound]
    values = estimate(model, variables, frames, condition, key, samples)
    return values[0] if is_one else values

  def draw(key: Array) -> Array:
    _, terms = observe(model, variables, key, frames, condition)
    return -free_energy.negative_bound(terms)

  # One after the other, so that many samples need no more memory than one.
  estimates = jax.lax.map(draw, jax.random.split(key, samples))
  return estimates.mean(axis=0)


def watch(
  model: TemporalVAE,
  variables: Variables,
  key: Array | None,
  frames: Array,
  condition: Array,
) -> Watched:
  """Returns the memory, and what is read from it, with every frame.

  Args:
    model: the temporal VAE.
    variables: its variables.
    key: as of `observe`; None takes the means of the posteriors.
    frames: [T, B, H, W, C].
    condition: [T, B, A].
  """
  if key is None:
    noise = jnp.zeros((*condition.shape[:-1], model.noise_size), jnp.float32)
  else:
    noise = _noise(model, key, condition)
  return free_energy.watch(model, variables, frames, condition, noise)


def _noise(model: TemporalVAE, key: Array, condition: Array) -> Array:
  """Draws the noise of as many steps as there are conditions."""
  shape = *condition.shape[:-1], model.noise_size
  return jax.random.normal(key, shape, jnp.float32)
