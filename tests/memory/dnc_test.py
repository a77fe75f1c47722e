"""The differentiable neural computer against a plain loop of its equations."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
import slow_cases
from gtmm_jax.memory import contract, dnc
from gtmm_jax.memory.dnc import DNC, DNCGates, DNCInterface, access
from plain_loops import (
  affine,
  by_content,
  control,
  cut,
  first_tag,
  label,
  question,
  sigmoid,
  softplus,
)

STEPS, WIDTH, SLOTS, WORD, CONTROLLER, LATENT = 6, 3, 4, 5, 3, 2


def make(**settings) -> DNC:
  return DNC(
    slots=SLOTS, word_size=WORD, controller_size=CONTROLLER, **settings
  )


def linear_parts(core: DNC) -> dict[str, tuple[int, ...]]:
  """Lists the parts of the linear map of h_t, in order."""
  r, w = core.read_heads, core.write_heads
  keys = {'read_keys': (r, WORD), 'write_vectors': (w, WORD)}
  return {
    **({} if core.latent_size else keys),
    'read_strengths': (r,),
    'write_keys': (w, WORD),
    'write_strengths': (w,),
    'erase': (w, WORD),
    'free': (r,),
    'allocation': (w,),
    'write': (w,),
    'read_modes': (r, w + 1 + w),
  }


def random_parameters(core: DNC) -> dict:
  return plain_loops.random_parameters(core, WIDTH, linear_parts(core))


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws one sequence [T, Z + A]."""
  return np.random.default_rng(1).normal(size=(STEPS, WIDTH))


# A slow answer for one sequence, in float64.


def slow_interface(core, parameters, h, x, tag):
  """Computes the interface, by name and activated, and the new tag."""
  asked = cut(linear_parts(core), affine(parameters['linear'], h))
  squash = plain_loops.squash(core)
  asked['write_keys'] = squash(asked['write_keys'])
  for name in ('read_strengths', 'write_strengths'):
    asked[name] = softplus(asked[name]) + (core.strength == 'oneplus')
  for name in ('erase', 'free', 'allocation', 'write'):
    asked[name] = sigmoid(asked[name])
  modes = np.exp(asked['read_modes'])
  asked['read_modes'] = modes / modes.sum(-1, keepdims=True)
  if not core.latent_size:
    asked['read_keys'] = squash(asked['read_keys'])
    asked['write_vectors'] = squash(asked['write_vectors'])
    return asked, tag
  word, asked['read_keys'], tag = question(core, parameters, h, x, tag)
  asked['write_vectors'] = [word] * core.write_heads
  return asked, tag


def slow_allocation(usage):
  """Computes a_t over the free list, usage raised to 1e-6."""
  usage = [1e-6 + (1 - 1e-6) * u for u in usage]
  free_list = sorted(range(SLOTS), key=lambda slot: (usage[slot], slot))
  weights, product = np.zeros(SLOTS), 1.0
  for slot in free_list:
    weights[slot] = (1 - usage[slot]) * product
    product *= usage[slot]
  return weights


def slow_write(before, asked):
  """Returns usage, write weights, memory, link and precedence, written."""
  usage = np.zeros(SLOTS)
  for slot in range(SLOTS):
    written = 1 - math.prod(1 - w[slot] for w in before['write_weights'])
    kept = math.prod(
      1 - free * w[slot]
      for free, w in zip(asked['free'], before['read_weights'], strict=True)
    )
    used = before['usage'][slot]
    usage[slot] = (used + written - used * written) * kept
  # Each head takes up room before the next one looks.
  looked_at, weights = usage, []
  for head, gate in enumerate(asked['write']):
    share = asked['allocation'][head]
    free = slow_allocation(looked_at)
    looked_at = looked_at + (1 - looked_at) * gate * share * free
    strength = asked['write_strengths'][head]
    found = by_content(before['memory'], asked['write_keys'][head], strength)
    weights.append(gate * (share * free + (1 - share) * found))
  memory = before['memory'].copy()
  for w, erase in zip(weights, asked['erase'], strict=True):
    memory = memory * (1 - np.outer(w, erase))
  for w, vector in zip(weights, asked['write_vectors'], strict=True):
    memory = memory + np.outer(w, vector)
  link = np.zeros((len(weights), SLOTS, SLOTS))
  precedence = np.zeros((len(weights), SLOTS))
  for head, w in enumerate(weights):
    last = before['precedence'][head]
    for i in range(SLOTS):
      precedence[head, i] = (1 - sum(w)) * last[i] + w[i]
      for j in range(SLOTS):
        if i != j:
          old = before['link'][head][i, j]
          link[head, i, j] = (1 - w[i] - w[j]) * old + w[i] * last[j]
  return {
    'usage': usage,
    'write_weights': np.array(weights),
    'memory': memory,
    'link': link,
    'precedence': precedence,
  }


def slow_read(memory, link, last_weights, asked):
  """Computes read weights [R, N] and reads [R, W]."""
  weights = []
  for head, modes in enumerate(asked['read_modes']):
    last, count = last_weights[head], len(link)
    w = modes[count] * by_content(
      memory, asked['read_keys'][head], asked['read_strengths'][head]
    )
    for writer in range(count):
      w = w + modes[writer] * link[writer].T @ last
      w = w + modes[count + 1 + writer] * link[writer] @ last
    weights.append(w)
  reads = [sum(w * m for w, m in zip(v, memory, strict=True)) for v in weights]
  return {'read_weights': np.array(weights), 'reads': np.array(reads)}


def slow_dnc(core, variables, inputs):
  """Yields the carry of every step by name, and its context."""
  parameters, r, w = variables['params'], core.read_heads, core.write_heads
  cell, h = np.zeros(CONTROLLER), np.zeros(CONTROLLER)
  state = {
    'memory': parameters.get('initial_memory', np.zeros((SLOTS, WORD))),
    'usage': np.zeros(SLOTS),
    'link': np.zeros((w, SLOTS, SLOTS)),
    'precedence': np.zeros((w, SLOTS)),
    'read_weights': np.zeros((r, SLOTS)),
    'write_weights': np.zeros((w, SLOTS)),
    'reads': np.zeros((r, WORD)),
  }
  tag = first_tag(core)
  for x in inputs:
    cell, h = control(parameters['controller'], x, state['reads'], cell, h)
    asked, tag = slow_interface(core, parameters['interface'], h, x, tag)
    written = slow_write(state, asked)
    source = written if core.reads == 'after' else state
    read = slow_read(
      source['memory'], source['link'], state['read_weights'], asked
    )
    state = {**written, **read, 'tag': tag}
    gates = {name: asked[name] for name in DNCGates._fields}
    yield state, gates, np.concatenate([read['reads'].reshape(-1), h])


# Few shapes, so that operations are compiled once for many of them.
LEARNED = {'initial_memory': 'learned'}
ONE = {'read_heads': 1}
MANY = {**LEARNED, 'read_heads': 3, 'write_heads': 2}
SETTINGS = [
  {**ONE},
  {**ONE, **LEARNED, 'latent_size': LATENT, 'strength': 'softplus'},
  {**ONE, **LEARNED, 'key_activation': 'tanh', 'reads': 'before'},
  {**MANY},
  {
    **MANY,
    'latent_size': LATENT,
    'controller_weight': 1.0,
    'reads': 'before',
    'key_activation': 'tanh',
  },
  {**MANY, 'strength': 'softplus', 'usage_gradient': False},
  {**ONE, 'latent_size': LATENT},
]


@pytest.mark.parametrize('settings', SETTINGS, ids=label)
def test_equals_a_plain_loop(inputs, settings):
  core = make(**settings)
  variables = random_parameters(core)
  close = {'rtol': 1e-9, 'atol': 1e-12}
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    carry = contract.in_dtype(carry, jnp.float64)
    steps = slow_dnc(core, variables, inputs)
    for t, (expected, gates, context) in enumerate(steps):
      carry, found = core.apply(variables, carry, jnp.asarray(inputs[t]))
      assert found.dtype == np.float64
      np.testing.assert_allclose(found, context, **close)
      for name, value in gates.items():
        np.testing.assert_allclose(getattr(carry.gates, name), value, **close)
      assert carry.calls == t + 1
      if core.initial_memory == 'constant' and t:
        # Slots that were never written are alike but for rounding, which
        # decides whose turn it is. It changes nothing that is read.
        expected = {name: expected[name] for name in ('reads', 'tag')}
      plain_loops.assert_fields_close(carry, expected, t, **close)


# The gradient of the usage.


@pytest.fixture(scope='module')
def moment():
  """Makes a state amid a sequence and an interface, for two write heads."""
  generator = np.random.default_rng(3)
  core = make(read_heads=2, write_heads=2)
  state = core.initialize_carry(jax.random.key(0), (WIDTH,))
  uniform, normal = generator.uniform, generator.normal
  weights = generator.dirichlet(np.ones(SLOTS), size=4)
  state = state._replace(
    memory=normal(size=(SLOTS, WORD)),
    usage=uniform(size=SLOTS),
    read_weights=weights[:2],
    write_weights=0.5 * weights[2:],
  )
  asked = DNCInterface(
    read_keys=normal(size=(2, WORD)),
    read_strengths=1 + uniform(size=2),
    write_keys=normal(size=(2, WORD)),
    write_strengths=1 + uniform(size=2),
    erase=uniform(size=(2, WORD)),
    write_vectors=normal(size=(2, WORD)),
    gates=DNCGates(
      free=uniform(size=2),
      allocation=uniform(size=2),
      write=uniform(size=2),
      read_modes=generator.dirichlet(np.ones(5), size=2),
    ),
  )
  return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (state, asked))


@pytest.mark.parametrize(
  'reads', slow_cases.but_for(['after'], ['after', 'before'])
)
def test_usage_gradient_changes_one_gradient_and_no_value(moment, reads):
  state, asked = moment

  def total(floats, usage_gradient):
    after = access(
      state._replace(**floats),
      asked,
      reads=reads,
      usage_gradient=usage_gradient,
    )
    return (after.memory**2).sum() + (after.reads**2).sum(), after

  floats = {
    name: getattr(state, name)
    for name in ('memory', 'usage', 'read_weights', 'write_weights')
  }
  found = {}
  compute = jax.value_and_grad(total, has_aux=True)
  for usage_gradient in (True, False):
    found[usage_gradient] = compute(floats, usage_gradient)
  (_, kept), of_kept = found[True]
  (_, stopped), of_stopped = found[False]
  jax.tree.map(np.testing.assert_array_equal, kept, stopped)
  # Write weights of the step before act through the usage alone.
  assert np.abs(of_kept.pop('write_weights')).max() > 1e-2
  np.testing.assert_array_equal(of_stopped.pop('write_weights'), 0.0)
  jax.tree.map(np.testing.assert_array_equal, of_kept, of_stopped)
  assert all(np.any(gradient) for gradient in of_kept.values())


@pytest.mark.parametrize('reads', ['after', 'before'])
@pytest.mark.parametrize('usage_gradient', [True, False])
def test_the_core_hands_its_settings_on(monkeypatch, reads, usage_gradient):
  told = []

  def listen(state, asked, **settings):
    told.append(settings)
    return access(state, asked, **settings)

  monkeypatch.setattr(dnc, 'access', listen)
  core = make(reads=reads, usage_gradient=usage_gradient)
  carry = core.initialize_carry(jax.random.key(0), (WIDTH,))
  jax.eval_shape(core.init, jax.random.key(0), carry, jnp.zeros(WIDTH))
  assert told == [{'reads': reads, 'usage_gradient': usage_gradient}]


# At the start.


def test_at_the_start_every_word_goes_to_a_slot_of_its_own(inputs):
  core = make(latent_size=LATENT, read_heads=1, strength='softplus')
  variables, step = (
    {'params': plain_loops.initial(core, WIDTH)},
    jax.jit(core.apply),
  )
  with jax.enable_x64(True):
    carry = core.initialize_carry(jax.random.key(0), inputs[0].shape)
    written = []
    for x in inputs[:SLOTS]:
      carry, _ = step(variables, carry, jnp.asarray(x))
      assert carry.write_weights.max() > 0.5
      written.append(int(carry.write_weights.argmax()))
  assert sorted(written) == list(range(SLOTS))
  # Links lead from one to the next.
  link = np.asarray(carry.link)[0]
  for before, after in zip(written[:-1], written[1:], strict=True):
    assert link[after].argmax() == before


@pytest.mark.parametrize('strength', ['softplus', 'oneplus'])
def test_biases_at_the_start(strength):
  core = make(**MANY, strength=strength, initial_strength=4.0)
  bias = plain_loops.initial(
    core, WIDTH, lambda p: p['interface']['linear']['bias']
  )
  raw = cut(linear_parts(core), np.asarray(bias))
  for name in ('write', 'allocation'):
    np.testing.assert_array_equal(raw.pop(name), 3.0)
  for name in ('read_strengths', 'write_strengths'):
    strengths = softplus(raw.pop(name)) + (strength == 'oneplus')
    np.testing.assert_allclose(strengths, 4.0, rtol=1e-6)
  assert not any(map(np.any, raw.values()))
