"""What XLA says that the forward and backward pass of a training step costs.

XLA counts the body of a loop once. Time steps are therefore written one after
the other here, as few as two or three.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import derivatives
from gtmm_jax.model import build
from gtmm_jax.model.temporal_vae import TemporalVAE

Array = jax.Array

# Nothing is run: code that is slow comes sooner, and counts the same.
_SOON = {'xla_backend_optimization_level': 0}


class Cost(NamedTuple):
  """XLA's own analysis of a compiled program.

  Attributes:
    operations: additions, multiplications, comparisons and the like.
    transcendentals: exponentials, logarithms, roots and the like.
  """

  operations: float
  transcendentals: float


def compiled_cost(
  model: TemporalVAE,
  frame_shape: tuple[int, int, int],
  frames: int,
  batch_size: int,
  condition_size: int = 0,
) -> Cost:
  """Compiles the negative bound and its gradient, and asks what they cost.

  The sequence is taken from its middle, so that all of its steps are alike: it
  starts from a state that is given, and the gradient of that is taken, too;
  what the last step leaves in the memory counts in the objective.

  Beside what `arithmetic` counts, XLA counts activations, softmax, gates,
  batch normalisation, samples and their divergences, sums of gradients of what
  is used twice or at every step, what is computed again on the way back, the
  zeros with which the digit encoder's first streams are padded to one size, and
  of the LRU a product for each head, all with the same word. It does not count
  Adam, which is not in this program.

  Args:
    model: from `gtmm_jax.build.temporal_vae`.
    frame_shape: (H, W, C).
    frames: T; the program has as many copies of a time step.
    batch_size: B.
    condition_size: A, of the paper's c_t.

  Returns:
    The cost of one pass forward and backward on the default device. Not every
    backend's analysis sees into its own libraries.
  """
  episode = (
    jnp.zeros((frames, batch_size, *frame_shape)),
    jnp.zeros((frames, batch_size, condition_size)),
    jnp.zeros((frames, batch_size, model.latent_size)),
  )

  def begin(variables):
    features = model.apply(variables, episode[0][0], method='encode')
    return model.apply(
      variables, features, episode[1][0], method='initial_state'
    )

  variables = build.variable_shapes(model, frame_shape, condition_size)
  state = jax.eval_shape(begin, variables)
  params = variables.pop('params')
  gradient = jax.value_and_grad(_objective, argnums=(1, 2), allow_int=True)
  with derivatives.written_out():
    lowered = jax.jit(gradient, static_argnums=0).lower(
      model, params, state, variables, *episode
    )
  cost = lowered.compile(_SOON).cost_analysis()
  return Cost(cost['flops'], cost.get('transcendentals', 0.0))


def _objective(
  model: TemporalVAE,
  params: Any,
  state: Any,
  others: Any,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Array:
  """The negative bound, and something of what the last step leaves behind."""
  variables = {'params': params, **others}

  def train(method, *args):
    made, _ = model.apply(
      variables, *args, True, method=method, mutable=['batch_stats']
    )
    return made

  features = train('encode', frames)
  steps = []
  for inputs in zip(features, condition, noise, strict=True):
    state, step = model.apply(variables, state, *inputs, method='step')
    steps.append(step)
  z, context, kl = (
    jnp.stack([getattr(step, name) for step in steps])
    for name in ('z', 'context', 'kl')
  )
  likelihood = train('decode', z, context).log_likelihood(frames)
  left = [
    jnp.sum(jnp.square(leaf))
    for leaf in jax.tree.leaves(state)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  return kl.sum() - likelihood.sum() + sum(left)
