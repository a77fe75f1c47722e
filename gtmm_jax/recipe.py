"""The recipe of training: Adam's rate at each step, clipping, an average.

Section 4.1 of Gemici et al. 2017 has Adam at a constant rate and nothing else:
the defaults of `Recipe`. With `schedule='decay'` the rate rises linearly over
`warmup_steps`, stays, and falls linearly to 0 over the last `fall_share` of
`decay_steps`.
The average is an exponential moving one of the parameters and of the running
statistics (Polyak and Juditsky 1992, https://doi.org/10.1137/0330046).
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

Array = jax.Array

Schedule = Literal['decay', 'constant']


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Settings of the updates, and of the average that is evaluated.

  Attributes:
    learning_rate: Adam's, above 0; with a schedule its largest.
    schedule: 'decay', or 'constant' for neither warm-up nor fall.
    warmup_steps: updates over which the rate rises, which end before it falls;
      0 for none.
    decay_steps: updates after which the rate is 0; None where it is constant.
    fall_share: part of `decay_steps` over which the rate falls, above 0 and at
      most 1.
    gradient_norm: to which a gradient of a larger global norm is scaled, above
      0; None for no clipping.
    average: decay of the moving average in a step, from 0 to below 1; 0 for no
      average.
  """

  learning_rate: float
  schedule: Schedule = 'constant'
  warmup_steps: int = 0
  decay_steps: int | None = None
  fall_share: float = 2 / 3
  gradient_norm: float | None = None
  average: float = 0.0

  def __post_init__(self) -> None:
    """Raises `ValueError` for steps that do not fit the schedule."""
    if self.schedule == 'constant':
      if self.warmup_steps or self.decay_steps is not None:
        raise ValueError(
          'warmup_steps and decay_steps mean nothing to the constant schedule; '
          'leave them out, or use the schedule decay.'
        )
    elif self.decay_steps is None:
      raise ValueError('The schedule decay needs decay_steps.')
    elif not 0 < self.fall_share <= 1:
      raise ValueError(
        f'fall_share is {self.fall_share}; it must be above 0 and at most 1.'
      )
    elif self.warmup_steps > constant_until(self.decay_steps, self.fall_share):
      raise ValueError(
        f'warmup_steps is {self.warmup_steps}; it must be at most '
        f'{constant_until(self.decay_steps, self.fall_share)}, after which the '
        f'learning rate falls.'
      )


class Average(NamedTuple):
  """Moving averages; both empty where there are none.

  Attributes:
    params: of the model's parameters.
    batch_stats: of the model's running statistics.
  """

  params: Any
  batch_stats: Any


def constant_until(decay_steps: int, fall_share: float) -> int:
  """Returns the number of updates before the rate falls."""
  return decay_steps - math.ceil(fall_share * decay_steps)


def make_schedule(recipe: Recipe) -> optax.ScalarOrSchedule:
  """Returns the rate as a function of the updates made, or the constant rate.

  The function counts from 0: of warmup_steps W, the first update has the W-th
  part of the rate. The last of decay_steps updates has the least rate above 0.
  """
  rate, warmup = recipe.learning_rate, recipe.warmup_steps
  if recipe.decay_steps is None:
    return rate
  begin = constant_until(recipe.decay_steps, recipe.fall_share)
  fall = optax.linear_schedule(
    rate, 0.0, recipe.decay_steps - begin, transition_begin=begin - warmup
  )
  if not warmup:
    return fall
  rise = optax.linear_schedule(0.0, rate, warmup)
  return optax.join_schedules(
    [lambda count: rise(count + 1), fall], boundaries=[warmup]
  )


def rate_at(recipe: Recipe, step: int) -> float:
  """Returns the learning rate of an update, the first one being 1."""
  schedule = make_schedule(recipe)
  return float(schedule(step - 1)) if callable(schedule) else schedule


def make_optimizer(recipe: Recipe) -> optax.GradientTransformation:
  """Returns Adam (section 4.1) with the recipe's clipping and rate."""
  adam = optax.adam(make_schedule(recipe))
  if recipe.gradient_norm is not None:
    adam = optax.chain(optax.clip_by_global_norm(recipe.gradient_norm), adam)

  def update(gradients, state, params=None):
    # optax raises a rate to a whole number, which strict promotion forbids.
    with jax.numpy_dtype_promotion('standard'):
      return adam.update(gradients, state, params)

  return optax.GradientTransformation(adam.init, update)


def begin_average(recipe: Recipe, params: Any, batch_stats: Any) -> Average:
  """Returns the average before the first update: copies, or nothing."""
  if not recipe.average:
    return Average({}, {})
  # A step reuses the memory of its state: no array is in it twice.
  return jax.tree.map(jnp.copy, Average(params, batch_stats))


def update_average(
  recipe: Recipe, average: Average, step: Array, params: Any, batch_stats: Any
) -> Average:
  """Returns the average after an update.

  The decay of update s is min(average, s / (s + 9)), which lets the average
  forget the first values: their weight falls as s^-9. Until it reaches
  `average`, about a tenth of the updates so far count.

  Args:
    recipe: with the decay.
    average: before the update.
    step: s, updates made, >= 1, int32.
    params: after the update.
    batch_stats: after the update.
  """
  if not recipe.average:
    return average
  count = step.astype(jnp.float32)
  decay = jnp.minimum(jnp.float32(recipe.average), count / (count + 9.0))
  return optax.incremental_update(
    Average(params, batch_stats), average, 1.0 - decay
  )
