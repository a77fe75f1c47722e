"""The associative memory against a plain loop, and what its parts are for."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
import slow_cases
from gtmm_jax.memory import contract, mixed_reads, positions
from gtmm_jax.memory.associative import PARTS, Associative
from plain_loops import affine, sigmoid, softplus

# More steps than slots, so that the oldest latents go.
STEPS, BATCH, LATENT, CONDITION, SLOTS, HEADS = 9, 3, 2, 3, 4, 2
CONTROLLER, HIDDEN, KEY = 4, 5, 3
WIDTH = LATENT + CONDITION
WITHOUT = (
  (),
  ('age',),
  ('arrival',),
  ('shared_keys',),
  ('content',),
  ('controller_keys',),
  ('succession',),
  ('age', 'arrival'),
  ('age', 'content'),
)


def make(**settings) -> Associative:
  return Associative(
    latent_size=LATENT,
    slots=SLOTS,
    key_size=KEY,
    read_heads=HEADS,
    controller_size=CONTROLLER,
    attention_size=HIDDEN,
    **settings,
  )


def random_parameters(core: Associative, scale: float = 1.0) -> dict:
  """Draws float64 parameters of every layer, as large as `scale`."""
  generator = np.random.default_rng(0)
  carry = core.initialize_carry(jax.random.key(0), (WIDTH,))
  shapes = jax.eval_shape(core.init, jax.random.key(0), carry, jnp.zeros(WIDTH))
  return jax.tree.map(lambda x: scale * generator.normal(size=x.shape), shapes)


def in_single(tree):
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def scan(core, variables, inputs):
  """Returns all states and contexts of inputs [T, ..., I], T in front."""

  def body(carry, x):
    carry, context = core.apply(variables, carry, x)
    return carry, (carry, context)

  carry = core.initialize_carry(jax.random.key(0), inputs.shape[1:])
  carry = contract.in_dtype(carry, inputs.dtype)
  return jax.lax.scan(body, carry, inputs)[1]


scan = jax.jit(scan, static_argnums=0)


def run_in_double(core, inputs):
  """Returns float64 parameters with their states and contexts."""
  variables = random_parameters(core)
  with jax.enable_x64(True):
    return variables, *jax.tree.map(np.asarray, scan(core, variables, inputs))


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws sequences [T, B, Z + A]."""
  return np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))


# A slow answer for one sequence, in float64.


def softmax(x):
  powers = np.exp(np.array(x) - np.max(x))
  return powers / powers.sum()


def slow_asked(parameters, x, h, core):
  """Computes all that is linear in h_t or s_t, by name."""
  has_content = 'content' not in core.without
  kinds = [n for n in ('age', 'arrival') if n not in core.without]
  of_h = {'gates': (HEADS, LATENT), 'shares': (HEADS, 3)}
  of_s = {'hidden': (HIDDEN,)} if kinds else {}
  seen = np.concatenate([x, h])
  asked = {}
  if has_content:
    of_h['strengths'], of_s['queries'] = (HEADS,), (HEADS, KEY)
    if 'succession' not in core.without:
      of_h['successions'] = (HEADS,)
    weighted = core.controller_weight * h
    known = x if 'controller_keys' in core.without else [*x, *weighted]
    asked['key'] = known @ parameters['key']['kernel']
  for layer, given, parts in (('linear', h, of_h), ('situation', seen, of_s)):
    asked |= plain_loops.cut(parts, affine(parameters[layer], given))
  if kinds:
    hidden = np.maximum(asked['hidden'], 0)
    size = positions.query_size(core.positions, SLOTS)
    parts = dict.fromkeys(kinds, (HEADS, size))
    asked |= plain_loops.cut(parts, affine(parameters['attention'], hidden))
  return asked


def slow_positions(asked, held, core):
  """Computes weights {slot: w} of each positional addressing and head.

  `held` is (number, slot, age) of each latent that is still there.
  """
  found = [[] for _ in range(HEADS)]
  for name in ('age', 'arrival'):
    for head in range(HEADS if name in asked else 0):
      query = asked[name][head]
      size = {}
      for number, slot, age in held:
        if core.positions == 'table':
          logit = query[age if name == 'age' else slot]
        else:
          position = age if name == 'age' else number
          logit = plain_loops.wave_logit(query, position)
        size[slot] = softplus(logit)
      found[head].append(strongest(size, core.top_k))
  return found


def strongest(size, count):
  """Normalises the `count` largest of {slot: size}; all, if it is 0."""
  kept = sorted(size, key=lambda slot: -size[slot])[: count or None]
  total = sum(size[slot] for slot in kept)
  return {slot: size[slot] / total for slot in kept}


def slow_associative(variables, inputs, core):
  """Yields for each step {slot: latent}, weights [R, N] and the context."""
  parameters = variables['params']
  cell, h = np.zeros(CONTROLLER), np.zeros(CONTROLLER)
  arrived, last_key = [], np.zeros(KEY)
  # Of each head: {number of a latent in order of arrival: its last weight}.
  last_read = [{} for _ in range(HEADS)]
  for t, x in enumerate(inputs):
    if t > 0 or core.stores_first_input:
      arrived.append((x[:LATENT], last_key))
    count = len(arrived)
    held = [
      (number, number % SLOTS, count - 1 - number)
      for number in range(max(0, count - SLOTS), count)
    ]
    cell, h = plain_loops.control(
      parameters['controller'], x, np.zeros(0), cell, h
    )
    asked = slow_asked(parameters, x, h, core)
    weights_of = slow_positions(asked, held, core)
    if 'content' not in core.without:
      key, queries = asked['key'], asked['queries']
      if 'shared_keys' not in core.without:
        queries = queries + key
      beta = softplus(asked['strengths'])
      gamma = softplus(asked.get('successions', np.full(HEADS, -np.inf)))
      for head in range(HEADS):
        query = queries[head] / np.sqrt(queries[head] @ queries[head] + 1e-6)
        size = {
          slot: np.exp(
            beta[head] * (query @ arrived[number][1])
            + gamma[head] * last_read[head].get(number - 1, 0.0)
          )
          for number, slot, _ in held
        }
        weights_of[head].append(strongest(size, core.top_k))
      last_key = key / np.sqrt(key @ key + 1e-6)
    kept = [n for n, name in enumerate(PARTS[:3]) if name not in core.without]
    gates = sigmoid(asked['gates'])
    weights, context = np.zeros((HEADS, SLOTS)), []
    for head in range(HEADS):
      for share, own in zip(
        softmax(asked['shares'][head][kept]), weights_of[head], strict=True
      ):
        for slot, w in own.items():
          weights[head, slot] += share * w
      last_read[head] = {
        number: weights[head, slot] for number, slot, _ in held
      }
      read = np.zeros(LATENT)
      for number, slot, _ in held:
        read += weights[head, slot] * arrived[number][0]
      context += list(read * gates[head])
    store = {slot: arrived[number][0] for number, slot, _ in held}
    yield store, weights, np.concatenate([context, h])


@pytest.mark.parametrize(
  'settings',
  [
    *({'without': without} for without in WITHOUT),
    {'top_k': 2},
    {'controller_weight': 1.0},
    {'top_k': 2, 'without': ('arrival',)},
    {'top_k': 3, 'stores_first_input': True},
    {'stores_first_input': True},
    {'positions': 'fourier'},
    {'positions': 'fourier', 'top_k': 2, 'without': ('age',)},
    {'positions': 'fourier', 'without': ('arrival', 'content')},
  ],
)
def test_equals_a_plain_loop(inputs, settings):
  core = make(**settings)
  variables, states, contexts = run_in_double(core, inputs)
  assert contexts.dtype == np.float64
  close = {'rtol': 1e-9, 'atol': 1e-12}
  for b in range(BATCH):
    steps = slow_associative(variables, inputs[:, b], core)
    for t, (store, weights, context) in enumerate(steps):
      assert len(store) == min(t + core.stores_first_input, SLOTS)
      for n, latent in store.items():
        np.testing.assert_array_equal(states.memory[t, b, n], latent)
      np.testing.assert_allclose(states.read_weights[t, b], weights, **close)
      np.testing.assert_allclose(contexts[t, b], context, **close)
      assert states.calls[t, b] == t + 1


# Reads of some slots.


@pytest.mark.parametrize(
  'nearest', slow_cases.but_for(['exact'], ['exact', 'approximate'])
)
def test_reads_of_as_many_slots_as_there_are_equal_reads_of_all(
  inputs, nearest
):
  every = make()
  variables = in_single(random_parameters(every))
  weights = np.random.default_rng(2).normal(size=(STEPS, BATCH, 8))

  def run(core):
    def total(variables, inputs):
      states, contexts = scan(core, variables, inputs)
      return (weights * contexts).sum(), (states, contexts)

    gradient = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
    return gradient(variables, jnp.asarray(inputs, jnp.float32))

  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    run(make(top_k=SLOTS, nearest=nearest)),
    run(every),
  )


@pytest.mark.parametrize('nearest', ['exact', 'approximate'])
def test_strongest_are_the_largest_that_may_be_chosen(nearest):
  random = np.random.default_rng(3)
  logits = random.permutation(64).reshape(2, 32).astype(np.float32)
  mask = random.uniform(size=(2, 32)) < 0.2
  index, valid = mixed_reads.strongest(jnp.asarray(logits), mask, 8, nearest)
  for row in range(2):
    allowed = np.flatnonzero(mask[row])
    best = allowed[np.argsort(-logits[row, allowed])][:8]
    assert set(index[row][valid[row]].tolist()) == set(best.tolist())
    assert valid[row].sum() == min(8, len(allowed))


def test_what_is_not_chosen_has_no_gradient():
  random = np.random.default_rng(4)
  memory, keys = (
    jnp.asarray(random.normal(size=(16, 3)), jnp.float32) for _ in range(2)
  )
  lookup = mixed_reads.Lookup(
    positions=[jnp.asarray(random.normal(size=(2, 16)), jnp.float32)],
    queries=jnp.asarray(random.normal(size=(2, 3)), jnp.float32),
    strengths=jnp.ones(2),
    following=jnp.asarray(random.uniform(size=(2, 16)), jnp.float32),
    successions=jnp.ones(2),
    shares=jnp.full((2, 2), 0.5),
  )

  def total(memory, keys, following):
    asked = lookup._replace(following=following)
    mask = jnp.ones(16, bool)
    reads, weights = mixed_reads.read_some(memory, keys, asked, mask, 2)
    return jnp.square(reads).sum(), weights

  gradient = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))
  (of_memory, of_keys, of_following), weights = jax.device_get(
    gradient(memory, keys, lookup.following)
  )
  chosen = np.any(weights > 0, 0)
  assert 2 <= chosen.sum() <= 8
  np.testing.assert_array_equal(np.any(of_memory != 0, -1), chosen)
  assert not np.any(of_keys[~chosen])
  # Two of each head are found by content.
  np.testing.assert_array_equal((of_following != 0).sum(-1), [2, 2])
  assert not np.any(of_following[:, ~chosen])


# Positions and keys.


def test_by_slot_turns_ages_and_back():
  random = np.random.default_rng(5)
  x = random.normal(size=(6, 2, 4)).astype(np.float32)
  weights = random.normal(size=x.shape).astype(np.float32)
  stored = np.array([0, 1, 3, 4, 5, 11])
  by_slot = jax.jit(positions.by_slot)
  found = np.asarray(by_slot(x, stored))
  gradient = np.asarray(
    jax.grad(lambda x: (weights * by_slot(x, stored)).sum())(x)
  )
  for b, head, slot in itertools.product(range(6), range(2), range(4)):
    age = (int(stored[b]) - 1 - slot) % 4
    assert found[b, head, slot] == x[b, head, age]
    assert gradient[b, head, age] == weights[b, head, slot]
  np.testing.assert_array_equal(by_slot(found, stored), x)


@functools.cache
def untrained(core: Associative) -> dict:
  """Draws initial variables of a core without a condition."""
  carry = core.initialize_carry(jax.random.key(0), (core.latent_size,))
  x = jnp.zeros(core.latent_size)
  return jax.jit(core.init)(jax.random.key(1), carry, x)


def reads_at_the_start(inputs, top_k=0, without=()) -> jax.Array:
  """Returns weights [T, R, N] by content of latents [T, 16], untrained."""
  core = Associative(
    latent_size=16,
    slots=12,
    key_size=16,
    controller_size=4,
    initial_strength=40.0,
    top_k=top_k,
    without=('age', 'arrival', 'controller_keys', *without),
  )
  inputs = np.array(inputs, np.float32)
  # Reads of some slots have the same parameters.
  states, _ = scan(core, untrained(core.clone(top_k=0)), inputs)
  return states.read_weights


def test_at_the_start_a_situation_finds_what_followed_it():
  """Checks that each of the latents that repeat finds its own successor."""
  latents = np.random.default_rng(6).normal(size=(5, 16))
  # z_0, five latents, and the same once more.
  weights = reads_at_the_start([np.zeros(16), *latents, *latents])
  for t in range(6, 10):
    # The step that is given latent t - 5 for the second time.
    np.testing.assert_array_equal(np.argmax(weights[t], -1), t - 5)


@pytest.mark.parametrize('top_k', slow_cases.but_for([0], [0, 3]))
@pytest.mark.parametrize('without', [(), ('succession',)])
def test_at_the_start_what_came_before_tells_like_situations_apart(
  without, top_k
):
  random = np.random.default_rng(8)
  a, b, same, after_a, after_b = random.normal(size=(5, 16))
  # Latents are in slots by their order, without the first.
  latents = [np.zeros(16), a, same, after_a, b, same, after_b]
  weights = reads_at_the_start([*latents, b, same, a, same], top_k, without)
  for t, right, wrong in ((8, 5, 2), (10, 2, 5)):
    of_right, of_wrong = weights[t][:, [right, wrong]].T
    if without:
      np.testing.assert_allclose(of_right, of_wrong, rtol=1e-3)
    else:
      assert np.all(of_right > 0.9)


@pytest.mark.parametrize(
  'latent, controller',
  slow_cases.but_for([(16, 64)], [(16, 64), (32, 128), (64, 425)]),
)
def test_at_the_start_what_went_before_counts_in_keys_as_a_latent_does(
  latent, controller
):
  core = Associative(latent, slots=20, controller_size=controller)
  inputs = np.random.default_rng(7).normal(size=(20, 8, latent))
  carry = core.initialize_carry(jax.random.key(0), inputs.shape[1:])
  variables = jax.jit(core.init)(jax.random.key(1), carry, inputs[0])
  _, contexts = scan(core, variables, inputs)
  kernel = variables['params']['key']['kernel']
  of_latent = inputs[-1] @ kernel[:latent]
  h = core.controller_weight * contexts[-1, :, -controller:]
  of_past = h @ kernel[latent:]
  ratio = np.linalg.norm(of_past) / np.linalg.norm(of_latent)
  assert 0.7 < ratio < 1.4


def test_condition_reaches_keys_and_not_the_store(inputs):
  # By way of h_t it would reach them all the same.
  core = make(without=('controller_keys',))
  variables = in_single(random_parameters(core))
  single = jnp.asarray(inputs, jnp.float32)
  states, _ = scan(core, variables, single)
  changed, _ = scan(core, variables, single.at[..., LATENT:].add(1.0))
  np.testing.assert_array_equal(states.memory, changed.memory)
  assert np.abs(states.keys - changed.keys)[2:].max() > 1e-3


@pytest.mark.parametrize('part', PARTS)
def test_what_is_left_out_is_left_out(inputs, part):
  core = make(without=(part,))
  variables, states, contexts = run_in_double(core, inputs)
  np.testing.assert_allclose(states.shares.sum(-1), 1.0, rtol=1e-6)
  for index, name in enumerate(PARTS[:3]):
    assert np.all((states.shares[..., index] == 0) == (name == part))
  assert np.any(states.keys) == (part != 'content')
  assert np.all(np.isfinite(contexts))
  assert ('key' in variables['params']) == (part != 'content')
  # Gates, shares, strengths, successions.
  asked = HEADS * (LATENT + 3 + 1 + 1)
  left_out = {'content': 2 * HEADS, 'succession': HEADS}.get(part, 0)
  bias = variables['params']['linear']['bias']
  assert bias.shape == (asked - left_out,)
  if part != 'content':
    seen = WIDTH + CONTROLLER * (part != 'controller_keys')
    assert variables['params']['key']['kernel'].shape == (seen, KEY)
    assert _corrects_queries(core) == (part == 'shared_keys')


def _corrects_queries(core: Associative) -> bool:
  """Returns whether queries have a map of their own, not zero at the start."""
  carry = core.initialize_carry(jax.random.key(0), (WIDTH,))
  variables = jax.jit(core.init)(jax.random.key(1), carry, jnp.zeros(WIDTH))
  kernel = variables['params']['situation']['kernel']
  return bool(np.any(kernel[:, -HEADS * KEY :]))


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'without': ('words',)}, "without is 'words'; it must be age or"),
    ({'without': ('age', 'arrival', 'content')}, 'no addressing'),
    ({'top_k': SLOTS + 1}, 'top_k is 5'),
    ({'top_k': -1}, 'top_k is -1'),
    ({'top_k': 1}, 'would get no gradient'),
    ({'nearest': 'any'}, "nearest is 'any'"),
    ({'nearest': 'approximate'}, 'needs top_k'),
    ({'initial_strength': 0.5}, 'initial_strength is 0.5'),
    ({'slots': 0}, 'slots is 0'),
  ],
)
def test_settings_without_sense_are_refused(settings, message):
  core = make().clone(**settings)
  with pytest.raises(ValueError, match=message):
    core.init(
      jax.random.key(0),
      make().initialize_carry(jax.random.key(0), (WIDTH,)),
      jnp.zeros(WIDTH),
    )
