"""The introspection network against a plain loop, in every way it is run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plain_loops
from gtmm_jax.memory import contract, positions
from gtmm_jax.memory.introspective import Introspective

# More steps than slots, so that the oldest latents go.
STEPS, BATCH, LATENT, CONDITION, SLOTS, HEADS = 8, 4, 2, 3, 3, 2
CONTROLLER, HIDDEN = 4, 5
WIDTH = LATENT + CONDITION
ATTENTIONS = ('linear', 'softmax', 'gaussian')
ORDERS = ('age', 'arrival')
# Enough of both for what does not depend on their meeting.
PAIRS = (('linear', 'arrival'), ('softmax', 'age'), ('gaussian', 'arrival'))


def make(**settings) -> Introspective:
  return Introspective(
    latent_size=LATENT,
    slots=SLOTS,
    read_heads=HEADS,
    controller_size=CONTROLLER,
    attention_size=HIDDEN,
    **settings,
  )


def random_parameters(
  attention: str = 'linear', scale: float = 1.0, form: str = 'table'
) -> dict:
  """Draws float64 parameters of every layer by name, as large as `scale`."""
  generator = np.random.default_rng(0)
  per_head = positions.query_size(form, SLOTS)
  if attention == 'gaussian':
    per_head = 2

  def layer(rows, columns):
    return {
      'kernel': scale * generator.normal(size=(rows, columns)),
      'bias': scale * generator.normal(size=columns),
    }

  return {
    'params': {
      'controller': layer(WIDTH + CONTROLLER, 4 * CONTROLLER),
      'attention_hidden': layer(CONTROLLER, HIDDEN),
      'attention': layer(HIDDEN, HEADS * per_head),
      'gates': layer(CONTROLLER, HEADS * LATENT),
    }
  }


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
step = jax.jit(Introspective.apply, static_argnums=0)


@pytest.fixture(scope='module')
def inputs() -> np.ndarray:
  """Draws sequences [T, B, Z + A]."""
  return np.random.default_rng(1).normal(size=(STEPS, BATCH, WIDTH))


@pytest.fixture(scope='module')
def single(inputs) -> jax.Array:
  return jnp.asarray(inputs, jnp.float32)


# A slow answer for one sequence, in float64.


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def affine(parameters, name, x):
  return x @ parameters[name]['kernel'] + parameters[name]['bias']


def slow_weights(attention: str, raw: np.ndarray, slots: list[int]):
  """Computes one head's weights [N]; `slots` are those that hold a latent."""
  weights = np.zeros(SLOTS)
  for n in slots:
    if attention == 'linear':
      weights[n] = np.log1p(np.exp(raw[n]))
    elif attention == 'softmax':
      weights[n] = np.exp(raw[n])
    else:
      distance = n - SLOTS * sigmoid(raw[0])
      width = max(np.log1p(np.exp(raw[1])), 1e-2)
      weights[n] = np.exp(-(distance**2) / (2 * width**2))
  return weights / weights.sum() if slots else weights


def slow_introspective(variables, inputs, core):
  """Yields each step's {slot: latent}, weights, gates [R, Z] and context."""
  parameters = variables['params']
  cell, h = np.zeros(CONTROLLER), np.zeros(CONTROLLER)
  arrived = []
  for t, x in enumerate(inputs):
    if t > 0 or core.stores_first_input:
      arrived.append(x[:LATENT])
    # The youngest N of all that ever arrived, each with its number.
    kept = list(enumerate(arrived))[-SLOTS:]
    if core.order == 'age':
      store = {len(arrived) - 1 - number: z for number, z in kept}
      position = {slot: slot for slot in store}
    else:
      store = {number % SLOTS: z for number, z in kept}
      position = {number % SLOTS: number for number, _ in kept}
    i, f, g, o = np.split(
      affine(parameters, 'controller', np.concatenate([x, h])), 4
    )
    cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(cell)
    hidden = np.maximum(affine(parameters, 'attention_hidden', h), 0)
    raw = affine(parameters, 'attention', hidden).reshape(HEADS, -1)
    if core.positions == 'fourier':
      raw = [
        {n: plain_loops.wave_logit(r, p) for n, p in position.items()}
        for r in raw
      ]
    weights = [slow_weights(core.attention, r, sorted(store)) for r in raw]
    gates = sigmoid(affine(parameters, 'gates', h)).reshape(HEADS, LATENT)
    context = []
    for w, gate in zip(weights, gates, strict=True):
      read = sum((w[n] * z for n, z in store.items()), np.zeros(LATENT))
      context += list(read * gate)
    yield store, np.array(weights), gates, np.array(context)


@pytest.mark.parametrize(
  ('attention', 'order', 'stores_first', 'form'),
  [
    *itertools.product(ATTENTIONS, ORDERS, [False], ['table']),
    ('linear', 'age', True, 'table'),
    ('gaussian', 'arrival', True, 'table'),
    *itertools.product(ATTENTIONS[:2], ORDERS, [False], ['fourier']),
    ('linear', 'arrival', True, 'fourier'),
  ],
)
def test_equals_a_plain_loop(inputs, attention, order, stores_first, form):
  core = make(
    attention=attention,
    order=order,
    stores_first_input=stores_first,
    positions=form,
  )
  variables = random_parameters(attention, form=form)
  with jax.enable_x64(True):
    states, contexts = jax.tree.map(
      np.asarray, scan(core, variables, inputs[:, :2])
    )
  assert contexts.dtype == np.float64
  close = {'rtol': 1e-9, 'atol': 1e-12}
  for b in range(2):
    steps = slow_introspective(variables, inputs[:, b], core)
    for t, (store, weights, gates, context) in enumerate(steps):
      assert len(store) == min(t + stores_first, SLOTS)
      for n, latent in store.items():
        np.testing.assert_array_equal(states.memory[t, b, n], latent)
      np.testing.assert_allclose(states.read_weights[t, b], weights, **close)
      np.testing.assert_allclose(states.gates[t, b], gates, **close)
      np.testing.assert_allclose(contexts[t, b], context, **close)
      assert states.calls[t, b] == t + 1


# What is stored and read.


@pytest.mark.parametrize('order', ORDERS)
def test_a_first_input_that_is_stored_is_read_at_once(single, order):
  variables = in_single(random_parameters())
  core = make(order=order, stores_first_input=True)
  states, contexts = scan(core, variables, single)
  np.testing.assert_allclose(states.read_weights[0, ..., 0], 1.0, rtol=1e-6)
  expected = states.gates[0] * single[0, :, None, :LATENT]
  np.testing.assert_allclose(
    contexts[0], expected.reshape(BATCH, -1), rtol=1e-6
  )


@pytest.mark.parametrize('order', ORDERS)
def test_a_placeholder_is_never_read(single, order):
  variables = in_single(random_parameters())
  # Its kernel rows are zero, so that the controller does not see the latent.
  kernel = variables['params']['controller']['kernel']
  variables['params']['controller']['kernel'] = kernel.at[:LATENT].set(0.0)
  core = make(order=order)
  _, expected = scan(core, variables, single)
  _, found = scan(core, variables, single.at[0, :, :LATENT].set(1e4))
  np.testing.assert_array_equal(found, expected)
  _, moved = scan(core, variables, single.at[1, :, :LATENT].set(1e4))
  assert np.abs(moved - expected).max() > 1


def test_condition_reaches_the_controller_alone(single):
  variables = in_single(random_parameters())
  core = make()
  states, contexts = scan(core, variables, single)
  others, changed = scan(core, variables, single.at[..., LATENT:].add(1.0))
  np.testing.assert_array_equal(states.memory, others.memory)
  assert np.abs(states.read_weights - others.read_weights)[2:].max() > 1e-3
  assert np.abs(contexts - changed)[1:].max() > 1e-3


@pytest.mark.parametrize('order', ORDERS)
def test_sequences_of_one_batch_may_have_different_ages(single, order):
  core = make(order=order)
  variables = in_single(random_parameters())
  states, contexts = scan(core, variables, single)
  ages = (0, 1, 3, 6)
  fresh = core.initialize_carry(jax.random.key(0), (WIDTH,))
  carries = [
    jax.tree.map(lambda x, b=b, age=age: x[age - 1, b], states)
    if age
    else fresh
    for b, age in enumerate(ages)
  ]
  carry = jax.tree.map(lambda *x: jnp.stack(x), *carries)
  x = jnp.stack([single[age, b] for b, age in enumerate(ages)])
  _, context = step(core, variables, carry, x)
  for b, age in enumerate(ages):
    np.testing.assert_allclose(
      context[b], contexts[age, b], rtol=2e-5, atol=2e-5
    )


# Numbers that stay numbers.


@pytest.mark.parametrize(('attention', 'order'), PAIRS)
def test_extreme_weights_give_finite_gradients(single, attention, order):
  core = make(attention=attention, order=order)

  @jax.jit
  def compute(variables, inputs):
    def total(variables, inputs):
      states, contexts = scan(core, variables, inputs)
      return (contexts**2).sum() + (states.read_weights**2).sum()

    return jax.value_and_grad(total, argnums=(0, 1))(variables, inputs)

  for weight, size in ((1e4, 1.0), (1e4, 1e4), (0.0, 1.0), (1.0, 0.0)):
    variables = in_single(random_parameters(attention, weight))
    value, gradients = compute(variables, size * single)
    assert np.isfinite(value)
    for leaf in jax.tree.leaves(gradients):
      assert np.all(np.isfinite(leaf)), (weight, size)


@pytest.mark.parametrize('attention', ATTENTIONS)
def test_an_empty_store_gives_no_gradient(single, attention):
  core = make(attention=attention)
  carry = core.initialize_carry(jax.random.key(0), (WIDTH,))

  @jax.jit
  def compute(variables, inputs):
    def total(variables, inputs):
      state, context = core.apply(variables, carry, inputs)
      return context.sum() + state.read_weights.sum()

    return jax.grad(total, argnums=(0, 1))(variables, inputs)

  variables = in_single(random_parameters(attention))
  for leaf in jax.tree.leaves(compute(variables, single[0, 0])):
    np.testing.assert_array_equal(leaf, 0.0)


# Inputs that make no sense.


def test_a_latent_without_a_condition_will_do(single):
  core = make()
  carry = core.initialize_carry(jax.random.key(0), (LATENT,))
  (state, context), _ = jax.eval_shape(
    core.init_with_output, jax.random.key(0), carry, single[0, 0, :LATENT]
  )
  assert context.shape == (HEADS * LATENT,)
  assert state.memory.shape == (SLOTS, LATENT)
