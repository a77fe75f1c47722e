"""The horizon of a run: the steps after which its learning rate is 0."""

import dataclasses

from gtmm_jax.recipe import constant_until
from gtmm_jax.runs.settings import Settings


def resolve(
  settings: Settings, warmup_steps: int, recorded: int | None = None
) -> Settings:
  """Fills in `decay_steps` and `warmup_steps`.

  The horizon that the first call of a run recorded holds for later calls, so
  that fewer --steps, and then more, train as one call does.

  Args:
    settings: resolved but for these two.
    warmup_steps: of the preset; where it is more than a third of the horizon,
      that third is taken.
    recorded: `decay_steps` of the run in the workdir, None for a new one, or
      one with a constant rate.

  Returns:
    The settings; with a constant rate their `decay_steps` are None.

  Raises:
    ValueError: steps do not fit the schedule.
  """
  if settings.schedule == 'constant':
    if settings.warmup_steps or settings.decay_steps is not None:
      raise ValueError(
        '--warmup_steps and --decay_steps mean nothing with '
        '--schedule=constant; leave them out.'
      )
    return dataclasses.replace(settings, warmup_steps=0)
  decay_steps = settings.decay_steps or recorded or settings.steps
  # A workdir with a horizon has its own line, after those of other settings.
  if recorded is None and settings.steps > decay_steps:
    raise ValueError(
      f'--steps={settings.steps} is more than --decay_steps={decay_steps}, '
      f'after which the learning rate is 0; ask for more --decay_steps, or '
      f'leave it out.'
    )
  most = constant_until(decay_steps)
  chosen = settings.warmup_steps
  if chosen is None:
    chosen = min(warmup_steps, most)
  if chosen > most:
    raise ValueError(
      f'--warmup_steps is {chosen}; it must be at most {most}, a third of '
      f'--decay_steps={decay_steps}, where the learning rate begins to fall.'
    )
  return dataclasses.replace(
    settings, warmup_steps=chosen, decay_steps=decay_steps
  )
