"""Logits by position against a plain loop, and cores with more slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
from gtmm_jax.memory import contract, positions
from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.introspective import Introspective

HEADS, SLOTS = 3, 7
SIZE = positions.query_size('fourier', SLOTS)
# How many latents the sequences of one batch have stored.
STORED = np.array([1, 4, 7, 8, 40, 1000], np.int32)


@pytest.fixture(scope='module')
def queries() -> np.ndarray:
  """Draws queries [B, R, Q], whose reach is from 1 to 60 positions."""
  drawn = np.random.default_rng(0).normal(size=(len(STORED), HEADS, SIZE))
  drawn[..., -2:] *= 2.0
  return drawn


def at_positions(query: np.ndarray) -> np.ndarray:
  """Computes a plain loop's logits of one head at positions 0 .. 99."""
  return np.array([plain_loops.wave_logit(query, p) for p in range(100)])


def test_logits_by_age_equal_a_plain_loop(queries):
  with jax.enable_x64(True):
    found = positions.by_age('fourier', 100, jnp.asarray(queries))
  expected = [[at_positions(query) for query in heads] for heads in queries]
  np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_logits_by_arrival_are_at_the_slots_of_a_ring_buffer(queries):
  with jax.enable_x64(True):
    found = positions.by_arrival('fourier', SLOTS, jnp.asarray(queries), STORED)
  for b, stored in enumerate(STORED):
    # Fills a ring buffer with the numbers of what arrives.
    numbers = {(number % SLOTS): number for number in range(stored)}
    for slot, number in numbers.items():
      np.testing.assert_allclose(
        found[b, :, slot],
        [plain_loops.wave_logit(query, number) for query in queries[b]],
        rtol=1e-9,
        atol=1e-9,
      )


def test_a_table_is_its_own_logits(queries):
  table = queries[..., : positions.query_size('table', SLOTS)]
  assert table.shape[-1] == SLOTS
  assert positions.by_age('table', SLOTS, table) is table
  assert positions.by_arrival('table', SLOTS, table, STORED) is table


def test_any_logits_of_25_positions_can_be_asked_for():
  """Checks the condition number that positions.py states."""
  waves = np.pad(np.eye(SIZE - 3), ((0, 0), (0, 3)))
  waves[:, -2] = 30.0  # A reach of 433 positions.
  features = positions.by_age('fourier', 25, jnp.asarray(waves, jnp.float32))
  assert features.shape == (SIZE - 3, 25)
  assert np.linalg.cond(features) < 2.0


@pytest.mark.parametrize('sought', [0, 9, 63])
def test_a_query_for_one_position_has_no_other_peak(sought):
  angles = sought * positions.frequencies()
  query = np.concatenate([np.cos(angles), np.sin(angles), [0, 30, 0]])
  logits = positions.by_age('fourier', 100, jnp.asarray(query, jnp.float32))
  peak = logits[sought]
  assert peak == pytest.approx(np.sqrt(positions.FREQUENCIES), rel=1e-4)
  assert np.delete(logits, sought).max() < peak / 4


def test_no_query_has_a_peak_far_beyond_its_reach(queries):
  """Checks that strong queries at 5,000 positions fall below all near ones."""
  strong = 10.0 * queries
  strong[..., -2:] = 0.0
  a, b = np.split(strong[..., : SIZE - 3], 2, axis=-1)
  height = np.sqrt(a**2 + b**2).sum(-1).max() / np.sqrt(positions.FREQUENCIES)
  near = int(positions.INITIAL_REACH)
  far = near + int(2 * height / positions.INITIAL_SLOPE) + 1
  assert far < 4000
  logits = positions.by_age('fourier', 5000, jnp.asarray(strong, jnp.float32))
  assert np.all(logits[..., far:].max(-1) < logits[..., :near].min(-1))


def test_angles_are_right_in_bfloat16(queries):
  """Checks that 999 arrivals turn a query as in double precision."""
  waves = queries.copy()
  waves[..., -1] = -1e4
  found = positions.by_arrival(
    'fourier', SLOTS, jnp.asarray(waves, jnp.bfloat16), STORED
  )
  assert found.dtype == jnp.bfloat16
  exact = positions.by_arrival(
    'fourier', SLOTS, jnp.asarray(waves, jnp.float32), STORED
  )
  np.testing.assert_allclose(found.astype(np.float32), exact, atol=0.1)


@pytest.mark.parametrize('size', [0.0, 1.0, 1e4])
def test_gradients_are_finite_and_reach_every_number(queries, size):
  """Asks at ages and numbers on both sides of the reach."""
  weights = np.random.default_rng(1).normal(size=(HEADS, 60))

  @jax.jit
  @jax.grad
  def gradient(query):
    age = positions.by_age('fourier', 60, query)
    arrival = positions.by_arrival('fourier', 60, query, jnp.int32(70))
    return (weights * (age + arrival)).sum()

  found = gradient(jnp.asarray(size * queries[0], jnp.float32))
  assert np.all(np.isfinite(found))
  assert size or np.all(found)


# Cores.

LATENT, WIDTH, STEPS, BATCH = 2, 5, 10, 3
CORES = {
  **{
    f'introspective-{attention}-{order}': Introspective(
      LATENT, STEPS, 2, 4, 5, attention, order, positions='fourier'
    )
    for attention in ('linear', 'softmax')
    for order in ('age', 'arrival')
  },
  'associative': Associative(LATENT, STEPS, 3, 2, 4, 5, positions='fourier'),
  'sparse': Associative(
    LATENT, STEPS, 3, 2, 4, 5, top_k=3, positions='fourier'
  ),
}


def run(core, variables, inputs):
  """Returns all states and contexts, [T, B, ...]."""

  @jax.jit
  def scan(variables, inputs):
    carry = core.initialize_carry(jax.random.key(0), inputs.shape[1:])

    def step(carry, x):
      carry, context = core.apply(variables, carry, x)
      return carry, (carry, context)

    return jax.lax.scan(step, carry, inputs)[1]

  return jax.device_get(scan(variables, inputs))


def initial(core, key, slots=STEPS):
  core = core.clone(slots=slots)
  carry = core.initialize_carry(key, (WIDTH,))
  return jax.jit(core.init)(key, carry, jnp.zeros(WIDTH))


@pytest.mark.parametrize('name', CORES)
def test_slots_that_an_episode_leaves_empty_change_nothing(name):
  core = CORES[name]
  variables = initial(core, jax.random.key(1))
  variables = jax.tree.map(lambda x: 3.0 * x + 0.1, variables)
  inputs = np.random.default_rng(2).normal(size=(STEPS, BATCH, WIDTH))
  states, contexts = run(core, variables, np.float32(inputs))
  assert np.ptp(states.read_weights[-1, ..., : STEPS - 1], axis=-1).min() > 0.01
  for slots in (STEPS - 1, 5 * STEPS):
    others, same = run(core.clone(slots=slots), variables, np.float32(inputs))
    np.testing.assert_allclose(same, contexts, rtol=1e-6, atol=1e-6)
    shared = min(slots, STEPS)
    np.testing.assert_allclose(
      others.read_weights[..., :shared],
      states.read_weights[..., :shared],
      rtol=1e-6,
      atol=1e-6,
    )
    assert not np.any(others.read_weights[..., shared:])


@pytest.mark.parametrize('name', CORES)
def test_parameters_do_not_depend_on_the_number_of_slots(name):
  key = jax.random.key(3)
  one, other = (initial(CORES[name], key, slots) for slots in (STEPS, 50))
  jax.tree.map(np.testing.assert_array_equal, one, other)
  table = initial(CORES[name].clone(positions='table'), key)
  assert jax.tree.structure(one) == jax.tree.structure(table)


def test_the_carry_is_that_of_a_table():
  for core in CORES.values():
    carries = (
      core.clone(positions=form).initialize_carry(jax.random.key(0), (WIDTH,))
      for form in ('table', 'fourier')
    )
    shapes = (jax.tree.map(jnp.shape, carry) for carry in carries)
    assert next(shapes) == next(shapes)


@pytest.mark.parametrize(
  ('core', 'settings', 'message'),
  [
    (
      'introspective-linear-age',
      {'attention': 'gaussian'},
      "positions is 'fourier', a form of logits, and attention is 'gaussian'",
    ),
    ('associative', {'without': ('age', 'arrival')}, 'keep age or arrival'),
    ('associative', {'positions': 'rotary'}, 'must be table or fourier'),
  ],
)
def test_positions_without_sense_are_refused(core, settings, message):
  with pytest.raises(ValueError, match=message) as error:
    CORES[core].clone(**settings).initialize_carry(jax.random.key(0), (WIDTH,))
  assert '\n' not in str(error.value)


def test_a_table_is_allowed_with_gaussian_attention():
  core = Introspective(LATENT, STEPS, attention='gaussian')
  contract.check_settings(core)
  core.initialize_carry(jax.random.key(0), (WIDTH,))
