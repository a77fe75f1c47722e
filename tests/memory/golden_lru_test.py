"""The memory with least-recently-used access against reference numbers.

All in float64. The paper's cosine has no epsilon, ours has one. So weights are
compared twice: as they are, within what the epsilon may do, and tightly with
keys and slots so long that no epsilon matters.
"""

import functools

import jax
import numpy as np

from gtmm_jax.memory import addressing, allocation
from gtmm_jax.memory.lru import LRUInterface, LRUState, access
from reference_numbers import OTHER_EPSILON, TIGHT, compare_all, in_double, long

LARGE_EPSILON = {'rtol': 0.0, 'atol': 5e-6}
DECAY = 0.95
PAPER = ('lru_paper_write_first', 'lru_paper_read_first')
# When a reference reads.
READS = {'lru_paper_write_first': 'after', 'lru_paper_read_first': 'before'}
PROGRAMS = {'mann_cell_': 'before', 'mann_cell_2_': 'after'}


def heads_of(load, name):
  """Yields each number of heads with its reference."""
  reference = load(name)
  assert reference['h1_gamma'] == reference['h2_gamma'] == DECAY
  return [(heads, reference.under(f'h{heads}_')) for heads in (1, 2)]


# Ours, in the shape of the reference.

STEP = {
  'w_write': 'write_weights',
  'memory': 'memory',
  'w_read': 'read_weights',
  'reads': 'reads',
  'usage': 'usage',
}


def state_of(memory, read_weights, usage):
  """Makes a state that last read there."""
  return LRUState(
    controller=(),
    memory=memory,
    usage=usage,
    read_weights=read_weights,
    write_weights=np.zeros_like(read_weights),
    reads=np.zeros((*read_weights.shape[:-1], memory.shape[-1])),
    gates=(),
    tag=(),
    calls=(),
  )


def initial(reference):
  names = ('init_memory', 'init_w_read', 'init_usage')
  return state_of(*(reference[name] for name in names))


def previous(reference, record):
  """Returns the recorded state before each step, [T, B, ...]."""
  names = ('memory', 'w_read', 'usage')
  return state_of(
    *(
      np.concatenate([reference[f'init_{name}'][None], record[name][:-1]])
      for name in names
    )
  )


def asked_of(reference, write_vectors='keys'):
  """Returns the interface of each step, [T, B, ...]."""
  keys = reference['keys']
  if write_vectors == 'keys':
    gates = in_double(jax.nn.sigmoid, reference['alpha_raw'])
  else:
    gates = reference['sigma']
  return LRUInterface(
    keys=keys,
    strengths=np.ones(keys.shape[:-1]),
    write_vectors=reference[write_vectors],
    gates=gates,
  )


ACCESS = {
  reads: functools.partial(access, reads=reads) for reads in ('before', 'after')
}


def steps_from(reads):
  def all_steps(state, asked):
    """Runs all steps from the first state on, each with T in front."""

    def step(state, asked):
      state = access(state, asked, reads=reads)._replace(gates=())
      return state, state

    return jax.lax.scan(step, state, asked)[1]

  return all_steps


ALL_STEPS = {reads: steps_from(reads) for reads in ('before', 'after')}


def mark(usage, count):
  """Returns the least used slot [..., N], and all `count` of them [..., N]."""
  slots = allocation.least_used(usage, count)
  return slots[..., 0, :], slots.sum(-2)


MARK = {count: functools.partial(mark, count=count) for count in range(1, 6)}


def weigh(keys, memory):
  """Computes the paper's read weights [..., n, N], of strength one."""
  strengths = np.ones(keys.shape[:-1])
  return in_double(addressing.content_weights, keys, memory, strengths)


update_usage = functools.partial(allocation.decayed_usage, decay=DECAY)


def shrinks(keys, memory, inside=1e-6, beside=1e-6):
  """Computes the cosine with epsilons inside the norms and beside them."""
  keys, slots = (np.square(x).sum(-1) for x in (keys, memory))
  keys, slots = keys[..., :, None], slots[..., None, :]
  norms = np.sqrt(keys + inside) * np.sqrt(slots + inside)
  return np.sqrt(keys * slots) / (norms + beside)


# The paper's equations.


def paper_cases(load, ties):
  """Yields when it reads, number of heads, reference, and record."""
  for name in PAPER:
    full = f'{name}_initial_state_ties' if ties else name
    for heads, reference in heads_of(load, full):
      record = reference.under('exactn_') if ties else reference
      yield READS[name], heads, reference, record


def test_each_step_of_the_paper_from_the_recorded_state_before_it(load):
  for reads, _, reference, record in paper_cases(load, ties=False):
    state, asked = previous(reference, record), asked_of(reference)
    found = in_double(ACCESS[reads], state, asked)
    # What is written depends on no cosine of its step.
    for key in ('w_write', 'memory'):
      record.agrees(key, getattr(found, STEP[key]))
    for key in ('w_read', 'reads', 'usage'):
      record.agrees(key, getattr(found, STEP[key]), OTHER_EPSILON)
    source = record['memory'] if reads == 'after' else state.memory
    similarity = in_double(addressing.cosine_similarity, asked.keys, source)
    np.testing.assert_allclose(
      similarity, record['similarity'] * shrinks(asked.keys, source), **TIGHT
    )


def test_all_steps_of_the_paper_from_the_first_state(load):
  for reads, _, reference, record in paper_cases(load, ties=False):
    found = in_double(ALL_STEPS[reads], initial(reference), asked_of(reference))
    assert record['free_run_safe'].all()
    for key, name in STEP.items():
      record.agrees(key, getattr(found, name), OTHER_EPSILON)


def compare_least_used(record, state, asked, reads, heads):
  """Compares the parts of a step that find and clear slots, tightly."""
  first, all_of_them = in_double(MARK[heads], state.usage)
  record.agrees('w_least_used', all_of_them)
  record.agrees('lu_index', first.argmax(-1))
  nothing = asked._replace(write_vectors=np.zeros_like(asked.write_vectors))
  cleared = in_double(ACCESS[reads], state, nothing)
  record.agrees('memory_zeroed', cleared.memory)


def compare_reading(record, state, asked, reads):
  """Compares the parts of a step that read, tightly: no epsilon, no ties."""
  source = record['memory'] if reads == 'after' else state.memory
  keys, slots = long(asked.keys), long(source)
  record.agrees(
    'similarity', in_double(addressing.cosine_similarity, keys, slots)
  )
  record.agrees('w_read', weigh(keys, slots))
  weights = (record['w_read'], record['w_write'])
  record.agrees('reads', in_double(addressing.read, source, weights[0]))
  record.agrees('usage', in_double(update_usage, state.usage, *weights))


def test_every_part_of_a_step_of_the_paper(load):
  for reads, heads, reference, record in paper_cases(load, ties=False):
    state, asked = previous(reference, record), asked_of(reference)
    compare_least_used(record, state, asked, reads, heads)
    compare_reading(record, state, asked, reads)


def test_ties_go_to_the_lowest_index(load):
  for reads, heads, reference, record in paper_cases(load, ties=True):
    state, asked = previous(reference, record), asked_of(reference)
    compare_least_used(record, state, asked, reads, heads)
    compare_reading(record, state, asked, reads)
    found = in_double(ACCESS[reads], state, asked)
    for key in ('w_write', 'memory'):
      record.agrees(key, getattr(found, STEP[key]))


def test_all_steps_through_ties_mark_the_recorded_slots_while_safe(load):
  for reads, _, reference, record in paper_cases(load, ties=True):
    found = in_double(ALL_STEPS[reads], initial(reference), asked_of(reference))
    safe = record['free_run_safe']
    assert safe[0].all()
    for key in ('w_write', 'memory'):
      record.agrees(key, getattr(found, STEP[key]), at=safe)


def test_slots_that_are_almost_zero_are_like_no_key(load):
  for reads, _, reference, record in paper_cases(load, ties=True):
    state, asked = previous(reference, record), asked_of(reference)
    source = record['memory'] if reads == 'after' else state.memory
    blank = np.abs(source).max(-1) <= 1e-6
    assert blank[0].any()
    similarity = in_double(addressing.cosine_similarity, asked.keys, source)
    record.differs('similarity', similarity, by=0.5, at=0)
    assert np.abs(np.moveaxis(similarity, -2, -1)[blank]).max() < 5e-3


# Conventions that are not ours.


def literal_cases(load):
  """References that mark every slot that ties with the n-th least used."""
  for reads, heads, reference, _ in paper_cases(load, ties=True):
    yield reads, heads, reference, previous(reference, reference)


def test_at_most_the_nth_least_usage_marks_more_slots(load):
  for reads, heads, reference, state in literal_cases(load):
    asked = asked_of(reference)
    marked = reference['w_least_used'].sum(-1)
    assert marked.max() > heads
    first, ours = in_double(MARK[heads], state.usage)
    np.testing.assert_array_equal(ours.sum(-1), heads)
    reference.differs('w_least_used', ours, by=0.5)
    found = in_double(ACCESS[reads], state, asked)
    reference.differs('w_write', found.write_weights)
    reference.differs('memory', found.memory)
    # Where nothing ties, nothing differs; and one slot is cleared anyhow.
    same = marked == heads
    assert same.any()
    reference.agrees('w_write', found.write_weights, at=same)
    reference.agrees('memory', found.memory, at=same)
    reference.agrees('lu_index', first.argmax(-1))


def test_as_many_slots_as_tie_give_the_literal_step(load):
  for reads, _, reference, state in literal_cases(load):
    asked = asked_of(reference)
    expected = reference['w_least_used']
    marked = np.zeros_like(expected)
    counts = expected.sum(-1)
    for count in np.unique(counts):
      _, slots = in_double(MARK[int(count)], state.usage)
      marked[counts == count] = slots[counts == count]
    reference.agrees('w_least_used', marked)
    arguments = (asked.gates, state.read_weights, marked[..., None, :])
    weights = in_double(addressing.interpolate, *arguments)
    reference.agrees('w_write', weights)
    nothing = asked._replace(write_vectors=np.zeros_like(asked.write_vectors))
    cleared = in_double(ACCESS[reads], state, nothing).memory
    reference.agrees('memory_zeroed', cleared)
    nothing, keys = nothing.write_vectors, asked.write_vectors
    arguments = (cleared, weights, nothing, keys)
    memory = in_double(addressing.erase_and_add, *arguments)
    reference.agrees('memory', memory)
    compare_reading(reference, state, asked, reads)


def test_steps_of_programs_without_ties(load):
  for _, reference in heads_of(load, 'lru_snowkylin'):
    for prefix, reads in PROGRAMS.items():
      record = reference.under(prefix)
      tolerance = OTHER_EPSILON if reads == 'before' else LARGE_EPSILON
      names = {'before': ('w_read', 'w_write', 'usage', 'memory')}
      names['after'] = ('w_read', 'reads', 'usage', 'memory')
      for found in (
        in_double(
          ACCESS[reads], previous(reference, record), asked_of(reference)
        ),
        in_double(ALL_STEPS[reads], initial(reference), asked_of(reference)),
      ):
        for key in names[reads]:
          record.agrees(key, getattr(found, STEP[key]), tolerance)


def test_addressing_one_memory_and_reading_another_is_another_read(load):
  for _, reference in heads_of(load, 'lru_snowkylin'):
    record = reference.under('mann_cell_')
    state, asked = previous(reference, record), asked_of(reference)
    for reads in ('before', 'after'):
      found = in_double(ACCESS[reads], state, asked)
      record.differs('reads', found.reads)
    before = in_double(ACCESS['before'], state, asked)
    mixed = in_double(addressing.read, before.memory, before.read_weights)
    record.agrees('reads', mixed, OTHER_EPSILON)


def backwards(state):
  """Returns a state whose slots are in the opposite order."""
  return state._replace(
    memory=state.memory[..., ::-1, :],
    usage=state.usage[..., ::-1],
    read_weights=state.read_weights[..., ::-1],
    write_weights=state.write_weights[..., ::-1],
  )


def snowkylin_ties(load):
  for _, reference in heads_of(load, 'lru_snowkylin_initial_state_ties'):
    for prefix, reads in PROGRAMS.items():
      record = reference.under(prefix)
      yield reads, record, previous(reference, record), asked_of(reference)


def test_ties_to_the_highest_index_write_elsewhere(load):
  for reads, record, state, asked in snowkylin_ties(load):
    found = in_double(ACCESS[reads], state, asked)
    record.differs('memory', found.memory)
    # Slots in the opposite order make the highest index the lowest.
    found = backwards(in_double(ACCESS[reads], backwards(state), asked))
    record.agrees('memory', found.memory)
    if reads == 'before':
      record.agrees('w_write', found.write_weights)
    # Read weights of blank slots are of another epsilon: take the recorded.
    weights = (record['w_read'], found.write_weights)
    record.agrees('usage', in_double(update_usage, state.usage, *weights))
    reads_of = in_double(addressing.read, record['memory'], weights[0])
    record.agrees('reads', reads_of)


def test_read_weights_through_ties_differ_by_the_epsilon_alone(load):
  epsilons = {'before': 1e-8, 'after': 1e-6}
  for reads, record, state, asked in snowkylin_ties(load):
    source = record['memory'] if reads == 'after' else state.memory
    exact = in_double(
      addressing.cosine_similarity, long(asked.keys), long(source)
    )
    shrunk = exact * shrinks(asked.keys, source, 0.0, epsilons[reads])
    record.agrees('w_read', in_double(jax.nn.softmax, shrunk))
    found = in_double(ACCESS[reads], state, asked)
    record.differs('w_read', found.read_weights)


def one_shot(load):
  """Yields the references of ntm-one-shot for one head and for two."""
  cases = heads_of(load, 'lru_ntm_one_shot')
  return [
    (
      reference,
      previous(reference, reference),
      asked_of(reference, 'add_vectors'),
    )
    for _, reference in cases
  ]


def test_one_head_that_writes_a_vector_of_its_own(load):
  (reference, state, asked), _ = one_shot(load)
  each = in_double(ACCESS['after'], state, asked)
  for key in ('w_write', 'memory'):
    reference.agrees(key, getattr(each, STEP[key]))
  all_steps = in_double(ALL_STEPS['after'], initial(reference), asked)
  for found in (each, all_steps):
    for key, name in STEP.items():
      reference.agrees(key, getattr(found, name), OTHER_EPSILON)
  keys = asked._replace(write_vectors=asked.keys)
  reference.differs('memory', in_double(ACCESS['after'], state, keys).memory)


def slots_apart(state, asked):
  """Computes write weights; each head has one least used slot of its own."""
  slots = allocation.least_used(state.usage, 2)
  return addressing.interpolate(asked.gates, state.read_weights, slots)


def test_one_slot_for_each_of_two_heads_is_another_write(load):
  _, (reference, state, asked) = one_shot(load)
  found = in_double(ACCESS['after'], state, asked)
  reference.differs('w_write', found.write_weights)
  reference.differs('memory', found.memory)
  # Everything else is as ours.
  weights = in_double(slots_apart, state, asked)
  reference.agrees('w_write', weights)
  nothing = np.zeros_like(asked.write_vectors)
  cleared = in_double(
    ACCESS['after'], state, asked._replace(write_vectors=nothing)
  )
  arguments = (cleared.memory, weights, nothing, asked.write_vectors)
  memory = in_double(addressing.erase_and_add, *arguments)
  reference.agrees('memory', memory)
  read_weights = weigh(asked.keys, memory)
  reference.agrees('w_read', read_weights, OTHER_EPSILON)
  reads = in_double(addressing.read, memory, read_weights)
  reference.agrees('reads', reads, OTHER_EPSILON)
  usage = in_double(update_usage, state.usage, read_weights, weights)
  reference.agrees('usage', usage, OTHER_EPSILON)


CHECKS = (
  test_every_part_of_a_step_of_the_paper,
  test_each_step_of_the_paper_from_the_recorded_state_before_it,
  test_ties_go_to_the_lowest_index,
  test_as_many_slots_as_tie_give_the_literal_step,
  test_at_most_the_nth_least_usage_marks_more_slots,
  test_steps_of_programs_without_ties,
  test_addressing_one_memory_and_reading_another_is_another_read,
  test_ties_to_the_highest_index_write_elsewhere,
  test_read_weights_through_ties_differ_by_the_epsilon_alone,
  test_one_head_that_writes_a_vector_of_its_own,
  test_one_slot_for_each_of_two_heads_is_another_write,
)
# Everything else is compared. `free_run_safe` says where rounding decides no
# tie, and gamma is the decay.
START = {'init_memory', 'init_w_read', 'init_usage', 'keys', 'gamma'}
INPUTS = {
  'lru_ntm_one_shot': START | {'add_vectors', 'sigma'},
  'lru_snowkylin': START | {'alpha_raw'},
  'lru_snowkylin_initial_state_ties': START | {'alpha_raw'},
  **{
    f'{name}{ties}': START | {'alpha_raw', 'free_run_safe'}
    for name in PAPER
    for ties in ('', '_initial_state_ties')
  },
}


def test_every_reference_array_is_compared(load, golden_files):
  paths = golden_files('lru_*.npz')
  compare_all(CHECKS, load, paths, INPUTS, ('h1_', 'h2_', 'exactn_'))
