"""The DNC's memory against reference numbers, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.memory import addressing, allocation, interface
from gtmm_jax.memory.dnc import (
  DNCGates,
  DNCInterface,
  DNCState,
  access,
)
from reference_numbers import OTHER_EPSILON, TIGHT, compare_all, in_double

HEADS = (1, 2)
# Of files whose keys begin with the number of write heads.
STATES = ('dnc_access', 'dnc_access_zero_state')


def heads_of(load, name):
  """Yields the reference arrays for one and for two write heads."""
  reference = load(name)
  return [(heads, reference.under(f'w{heads}_')) for heads in HEADS]


# Content.


def content(memory, keys, raw, cotangent):
  def weigh(memory, keys, raw):
    strengths = interface.strengthen(raw, 'softplus')
    return addressing.content_weights(keys, memory, strengths)

  weights, pull = jax.vjp(weigh, memory, keys, raw)
  grad_memory, grad_keys, grad_raw = pull(cotangent)
  oneplus = interface.strengthen(raw, 'oneplus')
  return {
    'similarity': addressing.cosine_similarity(keys, memory),
    'weights_softplus': weights,
    'weights_oneplus': addressing.content_weights(keys, memory, oneplus),
    'weights_identity': addressing.content_weights(keys, memory, raw),
    'grad_memory': grad_memory,
    'grad_keys': grad_keys,
    'grad_strengths_raw': grad_raw,
  }


def test_content_weights_and_their_gradients(load):
  reference = load('dnc_cosine')
  names = ('memory', 'keys', 'strengths_raw', 'cotangent')
  found = in_double(content, *(reference[name] for name in names))
  for name, value in found.items():
    reference.agrees(name, value)


# Usage.


def used(usage, write, free, read, cotangent):
  def update(usage, write, free, read):
    return allocation.update_usage(usage, write, free, read)

  value, pull = jax.vjp(update, usage, write, free, read)
  by_usage, by_write, by_free, by_read = pull(cotangent)
  nothing = jnp.zeros_like
  return {
    'usage': value,
    'usage_after_write': update(usage, write, nothing(free), read),
    'retention': update(jnp.ones_like(usage), nothing(write), free, read),
    'grad_prev_usage': by_usage,
    'grad_free_gate': by_free,
    'grad_read_weights': by_read,
  }, by_write


def through_access(usage_gradient):
  """Returns the gradient of a step's usage by the write weights before it."""

  def gradient(usage, write, free, read, cotangent):
    state = blank(usage, write, read)
    asked = ask_nothing(free, write.shape[-2])

    def total(write):
      state_t = access(
        state._replace(write_weights=write),
        asked,
        usage_gradient=usage_gradient,
      )
      return (state_t.usage * cotangent).sum()

    return jax.grad(total)(write)

  return gradient


stopped, flowing = through_access(False), through_access(True)


def blank(usage, write, read):
  """Makes a state of slots of two words in which nothing is stored."""
  *batch, heads, slots = write.shape
  return DNCState(
    controller=(),
    memory=jnp.zeros((*batch, slots, 2)),
    usage=usage,
    link=jnp.zeros((*batch, heads, slots, slots)),
    precedence=jnp.zeros((*batch, heads, slots)),
    read_weights=read,
    write_weights=write,
    reads=jnp.zeros((*read.shape[:-1], 2)),
    gates=(),
    tag=(),
    calls=(),
  )


def ask_nothing(free, heads):
  """Makes an interface that frees slots and does nothing else."""
  batch, readers = free.shape[:-1], free.shape[-1]
  words = jnp.zeros((*batch, heads, 2))
  return DNCInterface(
    read_keys=jnp.zeros((*batch, readers, 2)),
    read_strengths=jnp.ones_like(free),
    write_keys=words,
    write_strengths=words[..., 0],
    erase=words,
    write_vectors=words,
    gates=DNCGates(
      free=free,
      allocation=words[..., 0],
      write=words[..., 0],
      read_modes=jnp.zeros((*batch, readers, 2 * heads + 1)),
    ),
  )


USAGE = (
  'prev_usage',
  'write_weights',
  'free_gate',
  'read_weights',
  'cotangent',
)


def test_usage_and_its_gradients(load):
  for _, reference in heads_of(load, 'dnc_freeness'):
    found, _ = in_double(used, *(reference[name] for name in USAGE))
    for name, value in found.items():
      reference.agrees(name, value)


def test_usage_gradient_stops_at_write_weights_only_where_asked(load):
  for _, reference in heads_of(load, 'dnc_freeness'):
    arguments = [reference[name] for name in USAGE]
    np.testing.assert_array_equal(in_double(stopped, *arguments), 0.0)
    _, by_write = in_double(used, *arguments)
    np.testing.assert_allclose(
      in_double(flowing, *arguments), by_write, **TIGHT
    )
    assert np.abs(by_write).max() > 1e-2


# Allocation.


def allocate(usage, cotangent):
  weights, pull = jax.vjp(allocation.allocation_weights, usage)
  jacobian = jax.vmap(jax.jacrev(allocation.allocation_weights))(usage)
  return weights, *pull(cotangent), jacobian


def test_allocation_weights_and_their_gradient(load):
  reference = load('dnc_allocation')
  weights, gradient, jacobian = in_double(
    allocate, reference['usage'], reference['cotangent']
  )
  reference.agrees('allocation', weights)
  reference.agrees('grad_usage', gradient)
  # A slot depends on itself and on those that are freer: on 1, 2, .. slots.
  freer = (jacobian != 0).sum(-1)
  np.testing.assert_array_equal(np.sort(freer), [[1, 2, 3, 4, 5, 6]] * 3)
  reference.agrees('free_list', np.argsort(freer, axis=-1))


def test_allocation_keeps_usage_above_zero_as_the_paper_does_not(load):
  reference = load('dnc_allocation')
  found = in_double(allocation.allocation_weights, reference['usage'])
  reference.agrees('allocation_paper_noeps', found, OTHER_EPSILON)
  reference.differs('allocation_paper_noeps', found, by=1e-8)


def test_allocation_of_several_write_heads(load):
  reference = load('dnc_allocation')
  for heads in HEADS:
    found = in_double(
      allocation.write_allocation_weights,
      reference['usage'],
      reference[f'w{heads}_write_gates'],
    )
    reference.agrees(f'w{heads}_write_allocation_weights', found)


# Links, and writing.


def link_all(write_weights, read_weights):
  """Returns all steps of links from none, time in front."""

  def step(carry, weights):
    link, precedence = carry
    write, read = weights
    link = allocation.update_link(link, write, precedence)
    precedence = allocation.update_precedence(precedence, write)
    forward, backward = allocation.follow_links(link, read)
    return (link, precedence), {
      'link': link,
      'precedence': precedence,
      'forward': forward,
      'backward': backward,
    }

  slots = write_weights.shape[-1]
  precedence = jnp.zeros(write_weights.shape[1:])
  link = jnp.zeros((*precedence.shape, slots))
  weights = (write_weights, read_weights)
  return jax.lax.scan(step, (link, precedence), weights)[1]


def test_links_and_precedence_over_time(load):
  for _, reference in heads_of(load, 'dnc_linkage'):
    found = in_double(
      link_all, reference['write_weights'], reference['read_weights']
    )
    for name, value in found.items():
      reference.agrees(name, value)


WRITE = ('memory_prev', 'write_weights', 'erase_vectors', 'write_vectors')


def test_all_erases_come_before_all_adds(load):
  for _, reference in heads_of(load, 'dnc_erase_write'):
    found = in_double(
      addressing.erase_and_add, *(reference[name] for name in WRITE)
    )
    reference.agrees('memory', found)


# Whole steps.


# Our state -> the reference's.
STATE = {
  'memory': 'memory',
  'usage': 'usage',
  'link': 'link',
  'precedence': 'precedence',
  'read_weights': 'read_weights',
  'write_weights': 'write_weights',
}
# What a step leaves behind that is compared: the state, and what it read.
STEP = {**STATE, 'reads': 'read_words'}


def initial(reference):
  """Makes the state before step 0, [B, ...]."""
  known = {name: reference[f'init_{key}'] for name, key in STATE.items()}
  reads = np.zeros_like(reference['read_words'][0])
  return DNCState(
    controller=(), reads=reads, gates=(), tag=(), calls=(), **known
  )


def previous(reference):
  """Returns the recorded state before each step, [T, B, ...]."""
  first = initial(reference)

  def before(name, key):
    return np.concatenate([getattr(first, name)[None], reference[key][:-1]])

  return first._replace(**{n: before(n, k) for n, k in STEP.items()})


RAW = (
  'read_keys',
  'read_strengths',
  'write_keys',
  'write_strengths',
  'erase_vectors',
  'write_vectors',
  'free_gate',
  'allocation_gate',
  'write_gate',
  'read_mode',
)


def raw_of(reference, heads):
  """Returns the outputs of the controller's linear layers, heads apart."""
  raw = {name: reference[f'raw_{name}'] for name in RAW}
  readers = raw['free_gate'].shape[-1]
  counts = {'read_keys': readers, 'read_mode': readers, 'write_keys': heads}
  counts |= {'erase_vectors': heads, 'write_vectors': heads}
  for name, count in counts.items():
    raw[name] = raw[name].reshape(*raw[name].shape[:-1], count, -1)
  return raw


def activated(raw):
  """Makes the interface; recorded modes are backward, forward, content."""
  heads = raw['write_gate'].shape[-1]
  modes = jax.nn.softmax(raw['read_mode'])
  backward, forward, by_content = jnp.split(modes, [heads, 2 * heads], axis=-1)
  return DNCInterface(
    read_keys=interface.activate(raw['read_keys'], 'identity'),
    read_strengths=interface.strengthen(raw['read_strengths'], 'softplus'),
    write_keys=interface.activate(raw['write_keys'], 'identity'),
    write_strengths=interface.strengthen(raw['write_strengths'], 'softplus'),
    erase=jax.nn.sigmoid(raw['erase_vectors']),
    write_vectors=interface.activate(raw['write_vectors'], 'identity'),
    gates=DNCGates(
      free=jax.nn.sigmoid(raw['free_gate']),
      allocation=jax.nn.sigmoid(raw['allocation_gate']),
      write=jax.nn.sigmoid(raw['write_gate']),
      read_modes=jnp.concatenate([backward, by_content, forward], axis=-1),
    ),
  )


read_first = functools.partial(access, reads='before')


def all_steps(state, asked):
  """Runs all steps from the first state on, each with T in front."""

  def step(state, asked):
    state = access(state, asked)._replace(gates=())
    return state, state

  return jax.lax.scan(step, state, asked)[1]


def pieces(state, asked, usage, link, memory):
  """Returns a step's arguments from its record."""
  gates = asked.gates
  forward, backward = allocation.follow_links(link, state.read_weights)
  return {
    'write_content_weights': addressing.content_weights(
      asked.write_keys, state.memory, asked.write_strengths
    ),
    'write_allocation_weights': allocation.write_allocation_weights(
      usage, gates.allocation * gates.write
    ),
    'read_content_weights': addressing.content_weights(
      asked.read_keys, memory, asked.read_strengths
    ),
    'forward_weights': forward,
    'backward_weights': backward,
  }


def asked_of(reference, heads):
  """Returns the interface of each step, [T, B, ...]."""
  return in_double(activated, raw_of(reference, heads))


def each_case(load):
  """Yields number of write heads and reference of all recorded sequences."""
  return [case for name in STATES for case in heads_of(load, name)]


def test_each_step_from_the_recorded_state_before_it(load):
  for heads, reference in each_case(load):
    state, asked = previous(reference), asked_of(reference, heads)
    found = in_double(access, state, asked)
    for name, key in STEP.items():
      reference.agrees(key, getattr(found, name))
    gap = np.diff(np.sort(found.usage), axis=-1).min(-1)
    reference.agrees('usage_gap', gap)
    now = (reference[key] for key in ('usage', 'link', 'memory'))
    for key, value in in_double(pieces, state, asked, *now).items():
      reference.agrees(key, value)


def test_all_steps_from_the_first_state(load):
  safe_steps = 0
  for heads, reference in each_case(load):
    found = in_double(all_steps, initial(reference), asked_of(reference, heads))
    safe = reference['free_run_safe']
    safe_steps += safe.sum()
    for name, key in STEP.items():
      np.testing.assert_allclose(
        getattr(found, name)[safe],
        reference[key][safe],
        err_msg=key,
        **TIGHT,
      )
      # The first step is safe whatever the ties.
      np.testing.assert_allclose(
        getattr(found, name)[0], reference[key][0], err_msg=key, **TIGHT
      )
  assert safe_steps > 18


def test_activations_of_the_interface(load):
  for heads, reference in each_case(load):
    raw = raw_of(reference, heads)
    asked = in_double(activated, raw)
    for key, value in {
      'read_content_keys': asked.read_keys,
      'write_content_keys': asked.write_keys,
      'erase_vectors': asked.erase,
      'write_vectors': asked.write_vectors,
      'free_gate': asked.gates.free,
      'allocation_gate': asked.gates.allocation,
      'write_gate': asked.gates.write,
      'read_mode': np.concatenate(
        [
          asked.gates.read_modes[..., :heads],
          asked.gates.read_modes[..., heads + 1 :],
          asked.gates.read_modes[..., heads : heads + 1],
        ],
        axis=-1,
      ),
      # There the strengths are made positive later on.
      'read_content_strengths': raw['read_strengths'],
      'write_content_strengths': raw['write_strengths'],
    }.items():
      reference.agrees(f'act_{key}', value)


def test_modes_in_the_order_backward_forward_content_read_elsewhere(load):
  for heads, reference in heads_of(load, 'dnc_access'):
    asked = asked_of(reference, heads)
    gates = asked.gates._replace(read_modes=reference['act_read_mode'])
    found = in_double(access, previous(reference), asked._replace(gates=gates))
    reference.agrees('write_weights', found.write_weights)
    reference.differs('read_weights', found.read_weights)
    reference.differs('read_words', found.reads)


def oneplus_strengths(raw):
  """Returns the paper's strengths; the reference's are one less."""
  return {
    name: interface.strengthen(raw[name], 'oneplus')
    for name in ('read_strengths', 'write_strengths')
  }


def test_strengths_of_at_least_one_point_elsewhere(load):
  for heads, reference in heads_of(load, 'dnc_access'):
    strengths = in_double(oneplus_strengths, raw_of(reference, heads))
    asked = asked_of(reference, heads)
    found = in_double(access, previous(reference), asked._replace(**strengths))
    reference.agrees('usage', found.usage)
    reference.differs('write_weights', found.write_weights)
    reference.differs('read_weights', found.read_weights)


def weights_before(asked, parts):
  """Computes read weights before the write, mode after mode."""
  heads = asked.gates.write.shape[-1]
  modes = asked.gates.read_modes
  weights = modes[..., heads, None] * parts['read_content_weights']
  for head in range(heads):
    backward = parts['backward_weights'][..., head, :]
    forward = parts['forward_weights'][..., head, :]
    weights = weights + modes[..., head, None] * backward
    weights = weights + modes[..., heads + 1 + head, None] * forward
  return weights


def test_reads_before_the_write_see_the_memory_before_it(load):
  for heads, reference in each_case(load):
    state, asked = previous(reference), asked_of(reference, heads)
    found = in_double(read_first, state, asked)
    now = (state.usage, state.link, state.memory)
    parts = in_double(pieces, state, asked, *now)
    weights = weights_before(asked, parts)
    reads = (weights[..., None] * state.memory[..., None, :, :]).sum(-2)
    np.testing.assert_allclose(found.read_weights, weights, **TIGHT)
    np.testing.assert_allclose(found.reads, reads, **TIGHT)
    reference.differs('read_words', found.reads)
    for name in ('memory', 'usage', 'link', 'precedence', 'write_weights'):
      reference.agrees(name, getattr(found, name))


CHECKS = (
  test_content_weights_and_their_gradients,
  test_usage_and_its_gradients,
  test_allocation_weights_and_their_gradient,
  test_allocation_keeps_usage_above_zero_as_the_paper_does_not,
  test_allocation_of_several_write_heads,
  test_links_and_precedence_over_time,
  test_all_erases_come_before_all_adds,
  test_each_step_from_the_recorded_state_before_it,
  test_all_steps_from_the_first_state,
  test_activations_of_the_interface,
)


# Everything else is compared.
INPUTS = {
  'dnc_cosine': {'memory', 'keys', 'strengths_raw', 'cotangent'},
  'dnc_freeness': set(USAGE),
  'dnc_allocation': {'usage', 'cotangent', 'write_gates'},
  'dnc_linkage': {'write_weights', 'read_weights'},
  'dnc_erase_write': set(WRITE),
  **dict.fromkeys(
    STATES,
    {f'raw_{name}' for name in RAW}
    | {f'init_{name}' for name in STATE}
    # Where rounding decides no tie.
    | {'free_run_safe'},
  ),
}


def test_every_reference_array_is_compared(load, golden_files):
  paths = golden_files('dnc_*.npz')
  compare_all(CHECKS, load, paths, INPUTS, ('w1_', 'w2_'))
