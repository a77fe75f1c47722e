"""Counts the arithmetic of a training step, as XLA counts it.

XLA counts the body of a loop once. Here the time steps are therefore written
one after the other, two of them and then three; what the third adds, every
further step adds, too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from gtmm_jax.memory import derivatives
from gtmm_jax.model import build
from gtmm_jax.model.distributions import kl_bound
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.recipe import Recipe, make_optimizer

Array = jax.Array

_FEW, _MORE = 2, 3


def training_step(
  model: TemporalVAE,
  frame_shape: tuple[int, int, int],
  frames: int,
  batch_size: int,
  condition_size: int = 0,
) -> float:
  """Returns the floating-point operations of one training step of one replica.

  A multiplication and an addition are two. Counted are the negative bound, its
  gradient and Adam's update, but not the drawing of episodes, nor what
  `Problem.recompute` computes again.

  Args:
    model: from `build.temporal_vae`; its memory may have any number of slots.
    frame_shape: (H, W, C).
    frames: T of the episodes, >= 1.
    batch_size: B.
    condition_size: A, of the paper's c_t.

  Returns:
    The number of operations, extrapolated from T 2 and 3. They are those of the
    program for CPUs, whatever device the step runs on.
  """
  few, more = (
    compiled_step(model, frame_shape, count, batch_size, condition_size)
    for count in (_FEW, _MORE)
  )
  return few + (frames - _FEW) * (more - few)


def compiled_step(
  model: TemporalVAE,
  frame_shape: tuple[int, int, int],
  frames: int,
  batch_size: int,
  condition_size: int = 0,
) -> float:
  """Compiles a training step without loops and returns its operations.

  The sequence is taken from its middle, so that all time steps are alike: it
  starts from a state that is given, and the gradient of that is taken, too;
  what the last step leaves in the memory counts in the objective.

  Args:
    model: as in `training_step`.
    frame_shape: (H, W, C).
    frames: T; the program has as many copies of a time step.
    batch_size: B.
    condition_size: A.

  Returns:
    XLA's count for the compiled program.
  """
  shapes = frame_shape, (condition_size,), (model.noise_size,)
  episode = [
    jax.ShapeDtypeStruct((frames, batch_size, *shape), jnp.float32)
    for shape in shapes
  ]

  def begin(variables, frames, condition):
    features = model.apply(variables, frames[0], method='encode')
    return model.apply(
      variables, features, condition[0], method='initial_state'
    )

  variables = build.variable_shapes(model, frame_shape, condition_size)
  state = jax.eval_shape(begin, variables, *episode[:2])
  params = variables.pop('params')
  optimizer = make_optimizer(Recipe(learning_rate=1e-3))
  moments = jax.eval_shape(optimizer.init, params)

  def update(params, moments, state, others, *episode):
    gradient = jax.value_and_grad(_objective, argnums=(1, 2), allow_int=True)
    loss, (gradients, of_state) = gradient(
      model, params, state, others, *episode
    )
    updates, moments = optimizer.update(gradients, moments, params)
    return optax.apply_updates(params, updates), moments, loss, of_state

  device = _counting_device()
  with jax.default_device(device), derivatives.written_out():
    lowered = jax.jit(update).lower(params, moments, state, variables, *episode)
  return compile_soon(lowered, device.platform).cost_analysis()['flops']


def compile_soon(
  lowered: jax.stages.Lowered, platform: str
) -> jax.stages.Compiled:
  """Compiles a program that is not run: slow, with the same operations."""
  options = {'xla_backend_optimization_level': 0}
  return lowered.compile(options if platform == 'cpu' else None)


def _counting_device() -> jax.Device:
  """Returns the CPU, or the default device where jax is kept from the CPU.

  On accelerators XLA does not see into libraries that multiply and convolve.
  """
  try:
    return jax.devices('cpu')[0]
  except RuntimeError:
    return jax.devices()[0]


def _objective(
  model: TemporalVAE,
  params: Any,
  state: Any,
  others: Any,
  frames: Array,
  condition: Array,
  noise: Array,
) -> Array:
  """Returns the negative bound plus the squares of the last state."""
  variables = {'params': params, **others}

  def apply(method, *args):
    outputs, _ = model.apply(
      variables, *args, True, method=method, mutable=['batch_stats']
    )
    return outputs

  features = apply('encode', frames)
  steps = []
  for inputs in zip(features, condition, noise, strict=True):
    state, step = model.apply(variables, state, *inputs, method='observe')
    steps.append(step)
  z, context, posterior = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *steps
  )
  prior = model.apply(variables, context, method='prior')
  kl = kl_bound(posterior, prior, bounded=True)
  likelihood = apply('decode', z, context).log_likelihood(frames)
  squares = [
    jnp.sum(jnp.square(leaf))
    for leaf in jax.tree.leaves(state)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  ]
  return kl.sum() - likelihood.sum() + sum(squares)
