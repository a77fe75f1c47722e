"""The NTM's memory against reference numbers, in float64.

The paper's cosine has no epsilon, ours has one. So weights are compared twice:
as they are, within what the epsilon may do, and tightly with keys and slots so
long that no epsilon matters.
"""

import functools

import jax
import numpy as np

from gtmm_jax.memory import addressing, interface
from gtmm_jax.memory.ntm import NTMHead, NTMInterface, NTMState, access, address
from reference_numbers import OTHER_EPSILON, TIGHT, compare_all, in_double, long

LARGE_EPSILON = {'rtol': 0.0, 'atol': 2e-4}
# pytorch-ntm adds 1e-16 to slots, which may be no longer than 2e-6.
BLANK_SLOTS = {'rtol': 0.0, 'atol': 1e-9}
SLOTS = 6


# One head, stage after stage.


def head_of(reference):
  """Returns the head of ntm_addressing, [B, 1, ...]."""
  return NTMHead(
    keys=reference['key'][:, None],
    strengths=reference['beta'][:, None],
    gates=reference['gate'][:, None],
    shifts=reference['shift'][:, None],
    powers=reference['gamma'][:, None],
  )


def stages(memory, weights_tm1, head):
  """Computes each stage on the way to the weights, [B, N]."""
  by_content = addressing.content_weights(head.keys, memory, head.strengths)
  gated = addressing.interpolate(head.gates, by_content, weights_tm1)
  shifted = addressing.shift(gated, head.shifts)
  found = {
    'similarity': addressing.cosine_similarity(head.keys, memory),
    'w_content': by_content,
    'w_gated': gated,
    'w_shifted': shifted,
    'w': address(memory, weights_tm1, head),
  }
  return {name: value[:, 0] for name, value in found.items()}


def test_each_stage_of_addressing(load):
  reference = load('ntm_addressing')
  memory, head = reference['memory'], head_of(reference)
  weights_tm1 = reference['w_prev'][:, None]
  found = in_double(stages, memory, weights_tm1, head)
  grown = head._replace(keys=long(head.keys))
  exact = in_double(stages, long(memory), weights_tm1, grown)
  for name, value in found.items():
    reference.agrees(name, value, OTHER_EPSILON)
    reference.agrees(name, exact[name])
    if name != 'similarity':
      reference.agrees(f'carpedm20_ntm_{name}', value, LARGE_EPSILON)
      reference.agrees(f'pytorch_ntm_{name}', value, OTHER_EPSILON)
      reference.agrees(f'pytorch_ntm_{name}', exact[name])
    if name in ('w', 'w_content'):
      reference.agrees(f'collier_ntm_{name}', value, OTHER_EPSILON)


def test_an_epsilon_of_one_in_a_thousand_only_shrinks_the_cosine(load):
  reference = load('ntm_addressing')
  memory, key = reference['memory'], reference['key'][:, None]
  found = in_double(addressing.cosine_similarity, long(key), long(memory))[:, 0]
  lengths = np.linalg.norm(memory, axis=-1) * np.linalg.norm(key, axis=-1)
  shrunk = found * lengths / (lengths + 1e-3)
  reference.agrees('carpedm20_ntm_similarity', shrunk)
  reference.differs('carpedm20_ntm_similarity', found, by=2e-4)


def later_stages(by_content, weights_tm1, head):
  """Continues from given content weights, [B, 1, N]."""
  gated = addressing.interpolate(head.gates, by_content, weights_tm1)
  shifted = addressing.shift(gated, head.shifts)
  sharpened = addressing.sharpen(shifted, head.powers)
  return {'w_gated': gated, 'w_shifted': shifted, 'w': sharpened}


def test_stages_after_the_content_have_no_epsilon(load):
  reference = load('ntm_addressing')
  head, weights_tm1 = head_of(reference), reference['w_prev'][:, None]
  for prefix in ('', 'pytorch_ntm_', 'collier_ntm_', 'carpedm20_ntm_'):
    program = reference.under(prefix)
    by_content = program['w_content'][:, None]
    found = in_double(later_stages, by_content, weights_tm1, head)
    for name, value in found.items():
      if prefix != 'collier_ntm_' or name == 'w':
        program.agrees(name, value[:, 0])


def mirrored(weights, shifts):
  return addressing.shift(weights, shifts[..., ::-1])


def test_shifts_in_the_opposite_order_point_elsewhere(load):
  reference = load('ntm_addressing')
  gated, shifts = reference['w_gated'][:, None], reference['shift'][:, None]
  found = in_double(mirrored, gated, shifts)[:, 0]
  reference.differs('w_shifted', found)


# Writing and reading.


WRITE = ('memory_prev', 'write_weights', 'erase_vectors', 'add_vectors')


def write_head_after_head(memory, weights, erase, add):
  """Lets every head erase and add before the next one does."""
  for head in range(weights.shape[-2]):
    one = slice(head, head + 1)
    memory = addressing.erase_and_add(
      memory, weights[:, one], erase[:, one], add[:, one]
    )
  return memory


def write_cases(load):
  """References for one and for two write heads, with our memory after it."""
  for heads in (1, 2):
    reference = load('ntm_write_read').under(f'h{heads}_')
    arguments = [reference[name] for name in WRITE]
    yield (
      heads,
      reference,
      arguments,
      in_double(addressing.erase_and_add, *arguments),
    )


def test_all_erases_come_before_all_adds(load):
  for _, reference, _, memory in write_cases(load):
    reference.agrees('memory', memory)
    reference.agrees('memory_carpedm20', memory)


def test_erase_and_add_head_after_head_is_another_write(load):
  for heads, reference, arguments, memory in write_cases(load):
    found = in_double(write_head_after_head, *arguments)
    reference.agrees('memory_sequential', found)
    if heads == 1:
      reference.agrees('memory_sequential', memory)
    else:
      reference.differs('memory_sequential', memory)


def test_reads_before_and_after_a_write(load):
  for _, reference, (before, *_), memory in write_cases(load):
    weights = reference['read_weights']
    read = addressing.read
    reference.agrees('reads_from_prev', in_double(read, before, weights))
    reference.agrees('reads_from_new', in_double(read, memory, weights))


# Whole steps.


RAW = (
  *(
    f'{kind}_{part}'
    for kind in ('read', 'write')
    for part in ('key', 'beta', 'gate', 'shift', 'gamma')
  ),
  'erase',
  'add',
)
# The reference's activation of keys, and who else computed the same.
ACTIVATIONS = {'identity': 'pytorch_ntm_', 'tanh': 'collier_ntm_'}


def raw_head(raw, kind, activation):
  """Activates a head's parts [..., 1, P], [..., 1]."""
  return NTMHead(
    keys=interface.activate(raw[f'{kind}_key'], activation)[..., None, :],
    strengths=interface.strengthen(raw[f'{kind}_beta'], 'softplus'),
    gates=jax.nn.sigmoid(raw[f'{kind}_gate']),
    shifts=jax.nn.softmax(raw[f'{kind}_shift'])[..., None, :],
    powers=addressing.oneplus(raw[f'{kind}_gamma']),
  )


def activate_with(activation, raw):
  return NTMInterface(
    read=raw_head(raw, 'read', activation),
    write=raw_head(raw, 'write', activation),
    erase=jax.nn.sigmoid(raw['erase'])[..., None, :],
    add=interface.activate(raw['add'], activation)[..., None, :],
  )


ACTIVATE = {
  name: functools.partial(activate_with, name) for name in ACTIVATIONS
}


def asked_of(reference, activation):
  """Returns the interface of each step, [T, B, ...]."""
  raw = {name: reference[f'raw_{name}'] for name in RAW}
  return in_double(ACTIVATE[activation], raw)


def state_of(memory, read_weights, write_weights):
  """Makes a state of one head of each kind that last pointed there."""
  weights = read_weights[..., None, :]
  return NTMState(
    controller=(),
    memory=memory,
    read_weights=weights,
    write_weights=write_weights[..., None, :],
    reads=np.zeros((*weights.shape[:-1], memory.shape[-1])),
    read_gates=(),
    write_gates=(),
    tag=(),
    calls=(),
  )


def initial(reference):
  names = ('init_memory', 'init_w_read', 'init_w_write')
  return state_of(*(reference[name] for name in names))


def previous(reference, program):
  """Returns the recorded state before each step, [T, B, ...]."""
  names = ('memory', 'w_read', 'w_write')
  return state_of(
    *(
      np.concatenate([reference[f'init_{name}'][None], program[name][:-1]])
      for name in names
    )
  )


def all_steps(state, asked):
  """Runs all steps from the first state on, each with T in front."""

  def step(state, asked):
    state = access(state, asked)._replace(read_gates=(), write_gates=())
    return state, state

  return jax.lax.scan(step, state, asked)[1]


def compare_step(program, state, tolerance):
  program.agrees('memory', state.memory, tolerance)
  program.agrees('read', state.reads[..., 0, :], tolerance)
  program.agrees('w_read', state.read_weights[..., 0, :], tolerance)
  program.agrees('w_write', state.write_weights[..., 0, :], tolerance)


def step_cases(load):
  """Yields activation, recorded steps, and one program's record of them."""
  reference = load('ntm_step')
  for activation, program in ACTIVATIONS.items():
    for prefix in (f'{activation}_', program):
      yield activation, reference, reference.under(prefix)


def test_each_step_from_the_recorded_state_before_it(load):
  for activation, reference, program in step_cases(load):
    state, asked = previous(reference, program), asked_of(reference, activation)
    compare_step(program, in_double(access, state, asked), OTHER_EPSILON)


def test_all_steps_from_the_first_state(load):
  for activation, reference, program in step_cases(load):
    asked = asked_of(reference, activation)
    found = in_double(all_steps, initial(reference), asked)
    compare_step(program, found, OTHER_EPSILON)


def with_long_vectors(state, asked):
  """Computes read and write weights [..., 1, N] in which no epsilon matters."""
  heads = (asked.read, asked.write)
  read, write = (head._replace(keys=long(head.keys)) for head in heads)
  memory = long(state.memory)
  return (
    in_double(address, memory, state.read_weights, read),
    in_double(address, memory, state.write_weights, write),
  )


def test_the_epsilon_of_the_cosine_is_all_that_steps_differ_by(load):
  for activation, reference, program in step_cases(load):
    if program.prefix == 'collier_ntm_':
      continue  # It has an epsilon of its own.
    state, asked = previous(reference, program), asked_of(reference, activation)
    read_weights, write_weights = with_long_vectors(state, asked)
    program.agrees('w_read', read_weights[..., 0, :])
    program.agrees('w_write', write_weights[..., 0, :])
    found = in_double(addressing.read, state.memory, read_weights)
    program.agrees('read', found[..., 0, :])
    arguments = (state.memory, write_weights, asked.erase, asked.add)
    program.agrees('memory', in_double(addressing.erase_and_add, *arguments))


def test_keys_between_minus_one_and_one_point_elsewhere(load):
  reference = load('ntm_step')
  for activation, other in (('identity', 'tanh_'), ('tanh', 'identity_')):
    program = reference.under(other)
    state, asked = previous(reference, program), asked_of(reference, activation)
    found = in_double(access, state, asked)
    program.differs('w_read', found.read_weights[..., 0, :])
    program.differs('memory', found.memory)


read_after = functools.partial(access, reads='after')


def test_reads_after_the_write_see_the_memory_after_it(load):
  for activation, reference, program in step_cases(load):
    state, asked = previous(reference, program), asked_of(reference, activation)
    found = in_double(read_after, state, asked)
    program.agrees('memory', found.memory, OTHER_EPSILON)
    weights = in_double(address, found.memory, state.read_weights, asked.read)
    np.testing.assert_allclose(found.read_weights, weights, **TIGHT)
    reads = np.einsum('tbrn,tbnw->tbrw', weights, found.memory)
    np.testing.assert_allclose(found.reads, reads, **TIGHT)
    program.differs('read', found.reads[..., 0, :])


# A ring of latents that an NTM's head reads.


def ring_head(reference):
  """Returns the head of gtmm_ring_memory, [T, B, 1, ...]."""
  raw = {
    f'read_{part}': reference[f'raw_{part}']
    for part in ('key', 'beta', 'gate', 'shift', 'gamma')
  }
  return in_double(RING_HEAD, raw)


RING_HEAD = functools.partial(raw_head, kind='read', activation='identity')


def before_each_step(first, recorded):
  first = np.broadcast_to(first, recorded.shape[1:])
  return np.concatenate([first[None], recorded[:-1]])


def ring_state(reference):
  """Returns the recorded memory and read weights before each step."""
  memory = before_each_step(reference['init_memory'], reference['memory'])
  weights = before_each_step(reference['init_w_read'], reference['w_read'])
  return memory, weights[..., None, :]


def test_head_reads_a_ring_once_it_is_full(load):
  reference = load('gtmm_ring_memory')
  memory, weights_tm1 = ring_state(reference)
  head = ring_head(reference)
  weights = in_double(address, memory, weights_tm1, head)
  reads = in_double(addressing.read, memory, weights)
  # At step 0 all slots are the same, from step 6 on all hold latents.
  steps = [0, *range(SLOTS, len(memory))]
  assert steps == [0, 6, 7]
  for name, found in {'w_read': weights, 'read': reads}.items():
    reference.agrees(name, found[..., 0, :], OTHER_EPSILON, at=steps)


def test_slots_that_are_almost_zero_are_like_no_key(load):
  reference = load('gtmm_ring_memory')
  memory, weights_tm1 = ring_state(reference)
  head = ring_head(reference)
  found = in_double(address, memory, weights_tm1, head)[..., 0, :]
  for step in range(1, SLOTS):
    reference.differs('w_read', found, at=step)
  # The epsilon is all that this comes from.
  grown = head._replace(keys=long(head.keys))
  exact = in_double(address, long(memory), weights_tm1, grown)
  reference.agrees('w_read', exact[..., 0, :], BLANK_SLOTS)
  reads = in_double(addressing.read, memory, exact)[..., 0, :]
  reference.agrees('read', reads, BLANK_SLOTS)


def test_one_hot_weights_overwrite_one_slot_of_a_ring(load):
  reference = load('gtmm_ring_memory')
  memory, _ = ring_state(reference)
  latents = reference['latents'][:, :, None]
  slots = np.eye(SLOTS)[reference['write_slot']]
  weights = np.broadcast_to(slots[:, None, None], (*latents.shape[:-1], SLOTS))
  found = in_double(
    addressing.erase_and_add, memory, weights, np.ones_like(latents), latents
  )
  reference.agrees('memory', found)


CHECKS = (
  test_each_stage_of_addressing,
  test_an_epsilon_of_one_in_a_thousand_only_shrinks_the_cosine,
  test_stages_after_the_content_have_no_epsilon,
  test_all_erases_come_before_all_adds,
  test_erase_and_add_head_after_head_is_another_write,
  test_reads_before_and_after_a_write,
  test_each_step_from_the_recorded_state_before_it,
  test_slots_that_are_almost_zero_are_like_no_key,
  test_one_hot_weights_overwrite_one_slot_of_a_ring,
)
# Everything else is compared.
INPUTS = {
  'ntm_addressing': {
    'memory',
    'key',
    'beta',
    'gate',
    'shift',
    'gamma',
    'w_prev',
  },
  'ntm_write_read': {*WRITE, 'read_weights'},
  'ntm_step': {f'raw_{name}' for name in RAW}
  | {'init_memory', 'init_w_read', 'init_w_write'},
  'gtmm_ring_memory': {
    *(f'raw_{part}' for part in ('key', 'beta', 'gate', 'shift', 'gamma')),
    'init_memory',
    'init_w_read',
    'latents',
    'write_slot',
  },
}


def test_every_reference_array_is_compared(load, golden_files):
  paths = golden_files('ntm_*.npz') + golden_files('gtmm_*.npz')
  compare_all(CHECKS, load, paths, INPUTS, ('h1_', 'h2_'))
