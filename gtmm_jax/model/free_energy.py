"""The per-step free energy of whole sequences, under `jax.lax.scan`.

Gemici et al. 2017, eqs. 6 and 7. Images do not enter the scan: all frames are
encoded before it and decoded after it.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from gtmm_jax.memory import products
from gtmm_jax.model.distributions import frame_sum
from gtmm_jax.model.steps import Inferred, State, Step
from gtmm_jax.model.temporal_vae import TemporalVAE

Array = jax.Array
Variables = Mapping[str, Any]
Recompute = Literal['nothing', 'steps', 'everything']


class Terms(NamedTuple):
  """The terms of the bound for every step and sequence; never their sum.

  Attributes:
    log_likelihood: log p(x_t | z_<=t, x_<t) in nats, [T, B].
    kl: KL[q(z_t) || p(z_t)] in nats, [T, B].
  """

  log_likelihood: Array
  kl: Array


class Inference(NamedTuple):
  """All that one pass over sequences makes.

  Attributes:
    terms: the bound's terms.
    steps: latents, contexts, priors and posteriors, each [T, B, ...].
    frames: mean of the reconstruction, [T, B, H, W, C] in [0, 1].
    batch_stats: the running averages after the pass; as they were unless
      training.
  """

  terms: Terms
  steps: Step
  frames: Array
  batch_stats: Any


def infer(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  noise: Array,
  *,
  train: bool = False,
  recompute: Recompute = 'nothing',
) -> Inference:
  """Runs the posterior over whole sequences.

  Args:
    model: the temporal VAE.
    variables: its `params` and, where it has them, `batch_stats`.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A]; A = 0 where there is none.
    noise: standard normal, [T, B, Z]; all that is random.
    train: whether batch normalisation uses this batch's statistics, and moves
      the running averages.
    recompute: what gradients compute again, and so need not keep: 'nothing';
      'steps', the inside of each time step; 'everything', the inside of the
      networks of frames, too, and the state after most steps: of T about
      2 sqrt(T) are kept. Values do not change.

  Returns:
    The bound's terms and everything that led to them.

  Raises:
    ValueError: if `recompute` is none of these.
  """
  if recompute not in get_args(Recompute):
    raise ValueError(
      f'recompute is {recompute!r}; it must be one of '
      f'{", ".join(get_args(Recompute))}.'
    )

  def apply(variables, method, *args):
    if not train:
      return model.apply(variables, *args, method=method), variables
    out, moved = model.apply(
      variables, *args, method=method, mutable=['batch_stats']
    )
    return out, {**variables, **moved}

  def encode(variables, frames):
    return apply(variables, 'encode', frames, train)

  def decode(variables, z, context, frames):
    distribution, moved = apply(variables, 'decode', z, context, train)
    log_likelihood = frame_sum(distribution.log_likelihood(frames))
    return (log_likelihood, distribution.mean), moved

  if recompute == 'everything':
    encode, decode = jax.checkpoint(encode), jax.checkpoint(decode)
  features, variables = encode(variables, frames)
  _, steps = scan_steps(
    model,
    variables,
    None,
    features,
    condition,
    noise,
    recompute=recompute,
  )
  (log_likelihood, mean), variables = decode(
    variables, steps.z, steps.context, frames
  )
  if train:
    _, variables = apply(variables, 'update_statistics', steps.posterior)
  return Inference(
    Terms(log_likelihood, steps.kl),
    steps,
    mean,
    variables.get('batch_stats', {}),
  )


def scan_steps(
  model: TemporalVAE,
  variables: Variables,
  state: State | None,
  features: Array,
  condition: Array,
  noise: Array,
  *,
  recompute: Recompute = 'nothing',
) -> tuple[State, Step]:
  """Scans the model's steps over encoded frames.

  Args:
    model: the temporal VAE.
    variables: its variables.
    state: where to go on from; None starts sequences.
    features: [T, B, F].
    condition: [T, B, A].
    noise: standard normal, [T, B, Z].
    recompute: as of `infer`.

  Returns:
    The state after the last step, and the steps, each [T, B, ...].
  """
  state, inferred = _scan(
    model,
    variables,
    state,
    features,
    condition,
    noise,
    lambda _, made: made,
    recompute,
  )
  # Nothing in the scan waits for priors: they are made in a few large products.
  return state, model.apply(variables, inferred, method='judge')


def watch(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Any:
  """What the memory core held, read and wrote at every step of `infer`.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A].
    noise: standard normal, [T, B, Z].

  Returns:
    The core's carries after each step, leaves [T, B, ...]: that of step t gave
    the context of frame t, and was last given z_{t-1}.
  """
  features = model.apply(variables, frames, method='encode')
  _, cores = _scan(
    model,
    variables,
    None,
    features,
    condition,
    noise,
    lambda state, _: state.core,
  )
  return cores


def _scan(
  model: TemporalVAE,
  variables: Variables,
  state: State | None,
  features: Array,
  condition: Array,
  noise: Array,
  kept: Callable[[State, Inferred], Any],
  recompute: Recompute = 'nothing',
) -> tuple[State, Any]:
  """The scan over time; `kept` chooses what is stacked."""
  if state is None:
    state = model.apply(
      variables, features[0], condition[0], method='initial_state'
    )

  def step(variables, carry, inputs):
    state, inferred = model.apply(
      variables, carry, *inputs, method='infer_latent'
    )
    return state, kept(state, inferred)

  inputs = features, condition, noise
  if recompute == 'nothing':
    return products.scan(step, variables, state, inputs)
  # Nothing hides what is done again from XLA: in a scan it cannot be merged.
  body = jax.checkpoint(functools.partial(step, variables), prevent_cse=False)
  if recompute == 'steps':
    return jax.lax.scan(body, state, inputs)
  return _scan_in_segments(body, state, inputs)


def _scan_in_segments(
  body: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: Any
) -> tuple[Any, Any]:
  """`jax.lax.scan` that keeps the state after about sqrt(T) of T steps.

  Going back, the states inside one segment after the other are made again.
  """
  length = jax.tree.leaves(inputs)[0].shape[0]
  size = math.isqrt(length)
  whole = length - length % size
  scan = functools.partial(jax.lax.scan, body)
  segment = jax.checkpoint(scan, prevent_cse=False)
  cut = jax.tree.map(
    lambda x: x[:whole].reshape(whole // size, size, *x.shape[1:]), inputs
  )
  state, made = jax.lax.scan(segment, state, cut)
  made = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), made)
  rest = jax.tree.map(lambda x: x[whole:], inputs)
  state, last = scan(state, rest)
  return state, jax.tree.map(
    lambda one, other: jnp.concatenate([one, other]), made, last
  )


def negative_bound(terms: Terms) -> Array:
  """sum_t kl_t - log_likelihood_t: the objective, nats a sequence, [B]."""
  return (terms.kl - terms.log_likelihood).sum(axis=0)
