"""The free energy of whole sequences, for every time step.

Gemici et al. 2017, eqs. 6 and 7 (https://arxiv.org/abs/1702.04649):

  F   = sum_t E_q(z_<t)[F_t]
  F_t = E_q(z_t)[log p(x_t | z_<=t, x_<t)] - KL[q(z_t) || p(z_t | z_<t, x_<t)]

with the expectations estimated by one sample of q, reparameterised; the KL to a
mixture is replaced by an upper bound, so that F remains a lower bound. `Terms`
holds the two terms of F_t, `infer` computes them, and `negative_bound` is -F.
The factors p and q are in `temporal_vae.py`, their distributions in
`distributions.py`.

`jax.lax.scan` runs over time steps. All frames are encoded before the scan;
priors, KL and likelihoods are computed after it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import scan
from gtmm_jax.model.distributions import (
  DiagonalGaussian,
  Mixture,
  frame_sum,
  kl_bound,
)
from gtmm_jax.model.temporal_vae import State, Step, TemporalVAE

Array = jax.Array
Variables = Mapping[str, Any]


class Terms(NamedTuple):
  """The two terms of the bound for every step and sequence.

  Attributes:
    log_likelihood: log p(x_t | z_<=t, x_<t) in nats, [T, B]; 0 where masked.
    kl: KL[q(z_t) || p(z_t)] in nats, [T, B]; an upper bound of it where the
      prior is a mixture (`kl_bound`); 0 where masked.
  """

  log_likelihood: Array
  kl: Array


class Inference(NamedTuple):
  """Inference of whole sequences.

  Attributes:
    terms: the bound's terms.
    steps: latents, contexts and posteriors, each [T, B, ...].
    prior: priors of the latents, over [T, B, Z].
    frames: mean of the reconstruction, [T, B, H, W, C] in [0, 1].
    state: the model's state after the last frame, leaves [B, ...].
    batch_stats: the running averages after the pass, unchanged unless training.
  """

  terms: Terms
  steps: Step
  prior: DiagonalGaussian | Mixture
  frames: Array
  state: State
  batch_stats: Any


class Watched(NamedTuple):
  """The memory at every step of whole sequences, as `watch` returns it.

  Attributes:
    core: the core's carries, leaves [T, B, ...]: that of step t gave the
      context of frame t, and was last given z_{t-1}.
    context: Psi_{t-1}, which was read from it, [T, B, P].
    stored: z_t as the core is given it in the next step, [T, B, Z].
  """

  core: Any
  context: Array
  stored: Array


def negative_bound(terms: Terms) -> Array:
  """Returns -F = sum_t kl_t - log_likelihood_t, nats a sequence, [B]."""
  return (terms.kl - terms.log_likelihood).sum(axis=0)


def infer(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  noise: Array,
  mask: Array | None = None,
  *,
  train: bool = False,
  recompute: scan.Recompute = 'nothing',
) -> Inference:
  """Infers the latents of whole sequences, and computes the bound's terms.

  Args:
    model: the temporal VAE.
    variables: its `params` and, where it has them, `batch_stats`.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A]; A = 0 where there is none.
    noise: standard normal, [T, B, noise_size]; the only source of randomness.
    mask: bool [T, B], false for padding after the last frame of a sequence,
      which changes no term, gradient or running average; None for no padding.
    train: whether batch normalisation uses this batch's statistics, and moves
      the running averages.
    recompute: what the backward pass rematerialises, as `scan.scan` has it;
      'everything' includes the networks of frames. Values do not change.

  Returns:
    The bound's terms, and the latents and distributions that they come from.

  Raises:
    ValueError: `recompute` is none of these.
  """

  def apply(variables, method, *args):
    if not train:
      return model.apply(variables, *args, method=method), variables
    result, updated = model.apply(
      variables, *args, method=method, mutable=['batch_stats']
    )
    return result, {**variables, **updated}

  def encode(variables, frames):
    return apply(variables, 'encode', frames, train, mask)

  def decode(variables, z, context, frames):
    distribution, variables = apply(
      variables, 'decode', z, context, train, mask
    )
    log_likelihood = frame_sum(distribution.log_likelihood(frames))
    return (log_likelihood, distribution.mean), variables

  if recompute == 'everything':
    encode, decode = jax.checkpoint(encode), jax.checkpoint(decode)
  features, variables = encode(variables, frames)
  state, steps = scan_steps(
    model, variables, None, features, condition, noise, recompute=recompute
  )
  prior = model.apply(variables, steps.context, method='prior')
  # The maps keep log-scales within +-4.
  kl = kl_bound(steps.posterior, prior, bounded=True)
  (log_likelihood, mean), variables = decode(
    variables, steps.z, steps.context, frames
  )
  terms = Terms(log_likelihood, kl)
  if mask is not None:
    terms = Terms(*(jnp.where(mask, each, 0.0) for each in terms))
  if train:
    _, variables = apply(variables, 'update_statistics', steps.posterior, mask)
  averages = variables.get('batch_stats', {})
  return Inference(terms, steps, prior, mean, state, averages)


def scan_steps(
  model: TemporalVAE,
  variables: Variables,
  state: State | None,
  features: Array,
  condition: Array,
  noise: Array,
  *,
  output: Callable[[State, Step], Any] = lambda _, step: step,
  recompute: scan.Recompute = 'nothing',
) -> tuple[State, Any]:
  """Scans `TemporalVAE.observe` over encoded frames.

  Args:
    model: the temporal VAE.
    variables: its variables.
    state: where to go on from; None starts sequences.
    features: [T, B, F].
    condition: [T, B, A].
    noise: standard normal, [T, B, noise_size].
    output: (state after a step, step) -> what is stacked over time.
    recompute: as of `infer`.

  Returns:
    The state after the last step, and the outputs, leaves [T, B, ...].
  """
  if state is None:
    state = model.apply(
      variables, features[0], condition[0], method='initial_state'
    )

  def step(variables, state, inputs):
    state, step = model.apply(variables, state, *inputs, method='observe')
    return state, output(state, step)

  inputs = features, condition, noise
  return scan.scan(step, variables, state, inputs, recompute)


def watch(
  model: TemporalVAE,
  variables: Variables,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Watched:
  """Returns the memory, and what is read from it, at every step of `infer`.

  Args:
    model: the temporal VAE.
    variables: its variables; running averages are used.
    frames: x in [0, 1], [T, B, H, W, C].
    condition: c, [T, B, A].
    noise: standard normal, [T, B, noise_size].
  """
  features = model.apply(variables, frames, method='encode')
  return scan_steps(
    model,
    variables,
    None,
    features,
    condition,
    noise,
    output=lambda state, step: Watched(
      state.core, step.context, state.stored_tm1
    ),
  )[1]
