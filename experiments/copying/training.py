"""The copy task: episodes, a memory core that learns it, and its error.

Graves et al. 2014, section 4.1. Pure functions of one core and one seed; errors
are in bits for each bit that is to be recalled, so that guessing costs 1.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from gtmm_jax import folds, replicas
from gtmm_jax.memory import derivatives
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.runs import room

Array = jax.Array

CORES = ('ntm', 'lru', 'dnc', 'introspective', 'lstm')

_GRADIENT_NORM = 0.1
# With the usual 0.999, a large gradient among small ones is a leap: an
# introspection network went from 0.01 to 0.18 bits at once, and stayed there.
_SECOND_MOMENT = 0.99


class Episode(NamedTuple):
  """Sequences to be copied; batches have their axes between T and the rest.

  Attributes:
    inputs: B bits, then the delimiter's channel, in {0, 1}, [T, B + 1].
    targets: what is to be recalled, in {0, 1}, zero where nothing is, [T, B].
    recalled: which steps recall, bool, [T].
  """

  inputs: Array
  targets: Array
  recalled: Array


@dataclasses.dataclass(frozen=True)
class CopyTask:
  """Random vectors, a delimiter, then blank steps in which to recall them.

  n vectors take 2 n + 1 steps; what follows up to T = 2 `longest` + 1 is blank
  and asks for nothing.

  Attributes:
    bits: B of each vector, >= 1.
    longest: the greatest n, >= 1.
  """

  bits: int
  longest: int

  def episode(self, key: Array, length: Array | int) -> Episode:
    """Draws a sequence of `length` random vectors, 1 to `longest`."""
    half = jnp.float32(0.5)
    vectors = jax.random.bernoulli(key, half, (self.longest, self.bits))
    step = jnp.arange(2 * self.longest + 1, dtype=jnp.int32)
    recalled = (step > length) & (step <= 2 * length)
    # What is shown at a step, or recalled there.
    source = jnp.where(recalled, step - length - 1, step)
    vector = vectors[jnp.minimum(source, self.longest - 1)]
    shown = vector & (step < length)[:, None]
    delimiter = (step == length)[:, None]
    return Episode(
      jnp.concatenate([shown, delimiter], axis=-1).astype(jnp.float32),
      (vector & recalled[:, None]).astype(jnp.float32),
      recalled,
    )

  def sample(self, key: Array) -> Episode:
    """Draws a sequence whose length is uniform on 1 to `longest`."""
    length_key, key = jax.random.split(key)
    most = self.longest + 1
    length = jax.random.randint(length_key, (), 1, most, jnp.int32)
    return self.episode(key, length)


class Copier(nn.Module):
  """A memory core, and a dense layer from its context to the bits.

  Attributes:
    core: the core.
    bits: B.
  """

  core: nn.RNNCellBase
  bits: int

  @nn.compact
  def __call__(self, inputs: Array) -> Array:
    """Maps inputs [T, ..., B + 1] to logits of the bits, [T, ..., B]."""
    contexts = nn.RNN(self.core, time_major=True)(inputs)
    return nn.Dense(self.bits, name='bits')(contexts)


@dataclasses.dataclass(frozen=True)
class Problem:
  """A core, its task, and how it is trained.

  Attributes:
    copier: the core and its dense layer.
    task: the copy task.
    batch_size: sequences in a batch.
    steps: updates in all.
    learning_rate: Adam's, until it falls to zero over the last third of the
      steps.
  """

  copier: Copier
  task: CopyTask
  batch_size: int
  steps: int
  learning_rate: float

  @property
  def optimizer(self) -> optax.GradientTransformation:
    """Returns Adam on clipped gradients; its rate falls at the end."""
    fall = 2 * self.steps // 3
    rate = optax.linear_schedule(
      self.learning_rate, 0.0, self.steps - fall, transition_begin=fall
    )
    return optax.chain(
      optax.clip_by_global_norm(_GRADIENT_NORM),
      optax.adam(rate, b2=_SECOND_MOMENT),
    )


class State(NamedTuple):
  """The state of training.

  Attributes:
    step: updates made, int32.
    variables: of the copier.
    optimizer: state of the optimizer.
  """

  step: Array
  variables: Any
  optimizer: Any


def build_core(
  name: str, *, bits: int, slots: int, word_size: int, controller_size: int
) -> nn.RNNCellBase:
  """Builds a core as its own paper has it: no latents in words.

  The introspection network stores its inputs themselves, the delimiter's
  channel included, by order of arrival: what was shown first is then to be read
  from the first slot, however many follow.

  Args:
    name: one of `CORES`.
    bits: B of the task.
    slots: N; the LSTM has none.
    word_size: W of the cores that write words.
    controller_size: units of the LSTM.

  Returns:
    The core.
  """
  if name == 'lstm':
    return LSTM(controller_size)
  shared = {'slots': slots, 'controller_size': controller_size}
  if name == 'introspective':
    return Introspective(
      latent_size=bits + 1, order='arrival', stores_first_input=True, **shared
    )
  core = {'ntm': NTM, 'lru': LRU, 'dnc': DNC}[name]
  return core(word_size=word_size, **shared)


def bits_per_bit(logits: Array, episode: Episode) -> Array:
  """Returns the mean cross-entropy of the recalled bits, in bits.

  Args:
    logits: of each bit to be one, [T, ..., B].
    episode: with the same axes.

  Returns:
    A scalar, >= 0; 1 is what guessing costs.
  """
  nats = optax.sigmoid_binary_cross_entropy(logits, episode.targets)
  recalled = episode.recalled[..., None]
  count = recalled.sum(dtype=jnp.float32) * logits.shape[-1]
  two = jnp.log(jnp.float32(2.0))
  return jnp.where(recalled, nats, 0.0).sum() / (count * two)


def require_room(problem: Problem, longest: int) -> None:
  """Raises `ValueError` for impossible sizes, or ones beyond the memory.

  Args:
    problem: what is trained.
    longest: most vectors of a sequence in the evaluation.
  """
  core, width = problem.copier.core, problem.task.bits + 1

  def begin(key):
    carry = core.initialize_carry(key, (problem.batch_size, width))
    return initial_state(problem, key), carry

  room.require_for_training(
    replicas.plan(1, convolutional=False),
    problem.batch_size,
    2 * longest + 1,
    (width,),
    carry=jax.eval_shape(begin, jax.random.key(0)),
  )


@functools.partial(jax.jit, static_argnums=0)
def initial_state(problem: Problem, key: Array) -> State:
  """Returns a fresh state; its parameters depend on the key alone."""
  inputs = problem.task.sample(key).inputs
  variables = problem.copier.init(jax.random.fold_in(key, folds.INIT), inputs)
  return State(jnp.int32(0), variables, problem.optimizer.init(variables))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def train(
  problem: Problem, state: State, key: Array, steps: Array | int
) -> tuple[State, Array]:
  """Makes `steps` updates, each on fresh sequences, in one program.

  Args:
    problem: what is trained.
    state: before; its buffers are given away.
    key: of the run; step s uses `fold_in(key, s)`, s >= 1.
    steps: how many, >= 1. It is not compiled in: one program serves portions of
      every size.

  Returns:
    The state after the last step, and the mean of `bits_per_bit` over them.
  """

  def loss(variables, episode):
    with derivatives.written_out():
      logits = problem.copier.apply(variables, episode.inputs)
    return bits_per_bit(logits, episode)

  def advance(_, carry):
    state, total = carry
    step = state.step + 1
    keys = jax.random.split(jax.random.fold_in(key, step), problem.batch_size)
    episode = jax.vmap(problem.task.sample, out_axes=1)(keys)
    bits, gradients = jax.value_and_grad(loss)(state.variables, episode)
    # optax multiplies whole numbers by rates, which strict promotion forbids.
    with jax.numpy_dtype_promotion('standard'):
      updates, optimizer = problem.optimizer.update(gradients, state.optimizer)
    variables = optax.apply_updates(state.variables, updates)
    return State(step, variables, optimizer), total + bits

  begin = state, jnp.float32(0.0)
  state, total = jax.lax.fori_loop(0, steps, advance, begin)
  return state, total / jnp.asarray(steps, jnp.float32)


@functools.partial(jax.jit, static_argnums=(0, 2, 4))
def evaluate(
  copier: Copier, variables: Any, task: CopyTask, key: Array, episodes: int
) -> Array:
  """Returns `bits_per_bit` of fresh sequences of each length.

  Args:
    copier: a core and its dense layer.
    variables: theirs.
    task: its `longest` may be above what was trained.
    key: random key, not one that was trained with.
    episodes: sequences of each length.

  Returns:
    Bits for each bit, [longest]: of sequences of 1, 2, ... vectors.
  """

  def of_length(length):
    keys = jax.random.split(jax.random.fold_in(key, length), episodes)
    episode = jax.vmap(task.episode, (0, None), 1)(keys, length)
    return bits_per_bit(copier.apply(variables, episode.inputs), episode)

  lengths = jnp.arange(1, task.longest + 1, dtype=jnp.int32)
  return jax.lax.map(of_length, lengths)
