"""The recipe of training: rates, clipping, the average, and mistakes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plain_training
from gtmm_jax import recipe as recipes
from gtmm_jax.recipe import Average, Recipe


def _rates(recipe, steps):
  return [recipes.rate_at(recipe, step) for step in range(1, steps + 1)]


def test_rate_rises_stays_for_a_third_and_falls_to_zero():
  recipe = Recipe(0.8, 'decay', warmup_steps=2, decay_steps=12)
  expected = [0.4, 0.8, 0.8, 0.8, 0.8]
  # From here on an eighth less in each step, and 0 where one goes on.
  expected += [0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0]
  np.testing.assert_allclose(_rates(recipe, 14), expected, atol=1e-7)


@pytest.mark.parametrize(
  ('warmup', 'decay', 'share'),
  [
    *[
      (0, 1, 2 / 3),
      (0, 2, 2 / 3),
      (1, 3, 2 / 3),
      (0, 3, 2 / 3),
      (2, 7, 2 / 3),
    ],
    *[(20, 60, 2 / 3), (9, 80, 2 / 3)],
    *[(0, 7, 1.0), (0, 10, 0.2), (8, 10, 0.2), (3, 11, 0.5), (0, 3, 0.01)],
  ],
)
def test_rate_is_that_of_the_plain_formula(warmup, decay, share):
  recipe = Recipe(1e-3, 'decay', warmup, decay, share)
  rates = _rates(recipe, decay + 2)
  expected = [plain_training.rate(recipe, s) for s in range(1, decay + 3)]
  np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-10)
  assert max(rates) == pytest.approx(1e-3)
  assert min(rates[:decay]) > 0 and rates[decay:] == [0, 0]


def test_constant_rate_is_the_same_at_every_step():
  assert _rates(Recipe(0.003), 3) == [0.003] * 3


@pytest.mark.parametrize(
  ('values', 'words'),
  [
    ({'schedule': 'decay'}, 'needs decay_steps'),
    ({'decay_steps': 9}, 'mean nothing to the constant schedule'),
    ({'warmup_steps': 1}, 'mean nothing to the constant schedule'),
    (
      {'schedule': 'decay', 'warmup_steps': 4, 'decay_steps': 9},
      'warmup_steps is 4; it must be at most 3, after which',
    ),
    (
      {'schedule': 'decay', 'decay_steps': 9, 'fall_share': 1.5},
      'fall_share is 1.5; it must be above 0 and at most 1',
    ),
    (
      {'schedule': 'decay', 'decay_steps': 9, 'fall_share': 0.0},
      'fall_share is 0.0; it must be above 0',
    ),
  ],
)
def test_steps_that_do_not_fit_the_schedule_are_refused(values, words):
  with pytest.raises(ValueError, match=words) as caught:
    Recipe(0.1, **values)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'recipe',
  [
    Recipe(0.01),
    Recipe(0.01, gradient_norm=1.0),
    Recipe(0.01, 'decay', 2, 6, gradient_norm=10.0, average=0.9),
  ],
)
def test_updates_are_those_of_the_plain_formulas(recipe):
  rng = np.random.default_rng(1)
  params = jax.tree.map(
    jnp.float32, {'a': rng.normal(size=3), 'b': rng.normal(size=(2, 2))}
  )
  optimizer = recipes.make_optimizer(recipe)
  state, plain = optimizer.init(params), plain_training.begin(params)
  average = recipes.begin_average(recipe, params, {})
  for step in range(1, 8):
    # Norms from far below to far above what is allowed.
    size = 10.0 ** (step - 4)
    gradients = jax.tree.map(
      lambda p, s=size: jnp.float32(s * rng.normal(size=p.shape)), params
    )
    updates, state = optimizer.update(gradients, state, params)
    params = optax.apply_updates(params, updates)
    average = recipes.update_average(
      recipe, average, jnp.int32(step), params, {}
    )
    plain = plain_training.update(recipe, plain, gradients)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, params, plain.params)
    if recipe.average:
      jax.tree.map(close, average.params, plain.average)
    else:
      assert average == Average({}, {})


def test_average_forgets_the_first_values():
  recipe, step = Recipe(0.1, average=0.999), jnp.int32(1)
  first = Average({'a': jnp.float32(1e6)}, {'b': jnp.float32(1e6)})
  average = recipes.begin_average(recipe, *first)
  update = jax.jit(functools.partial(recipes.update_average, recipe))
  weight = 1.0
  for step in range(1, 101):
    average = update(average, jnp.int32(step), {'a': 0.0}, {'b': 0.0})
    weight *= step / (step + 9)
  # A plain average with this decay would have kept 0.9 of them.
  np.testing.assert_allclose(jax.tree.leaves(average), 1e6 * weight, rtol=1e-3)
  assert weight < 1e-11
  # Much later the decay is the one that was asked for.
  average = update(first, jnp.int32(100_000), {'a': 0.0}, {'b': 0.0})
  np.testing.assert_allclose(jax.tree.leaves(average), 0.999e6, rtol=1e-6)


def test_average_begins_with_copies():
  params = {'a': jnp.ones(3)}
  average = recipes.begin_average(Recipe(0.1, average=0.9), params, {})
  np.testing.assert_array_equal(average.params['a'], params['a'])
  assert average.params['a'] is not params['a']
  pointers = [
    each['a'].unsafe_buffer_pointer() for each in (average[0], params)
  ]
  assert pointers[0] != pointers[1]
