"""The horizon of a run: the steps after which its learning rate is 0."""

import dataclasses

from gtmm_jax.presets import Preset
from gtmm_jax.recipe import constant_until
from gtmm_jax.runs.settings import Settings


def resolve(
  settings: Settings, preset: Preset, recorded: int | None = None
) -> Settings:
  """Fills in `decay_steps` and `warmup_steps`.

  The horizon that the first call of a run recorded holds for later calls, so
  that fewer --steps, and then more, train as one call does.

  Args:
    settings: resolved but for these two.
    preset: has the share of the horizon over which the rate falls, and the
      default of `warmup_steps`, or fewer where the rate falls before.
    recorded: `decay_steps` of the run in the workdir, None for a new one, or
      one with a constant rate.

  Returns:
    The settings; with a constant rate their `decay_steps` are None.

  Raises:
    ValueError: steps do not fit the schedule.
  """
  if settings.schedule == 'constant':
    if (
      settings.warmup_steps
      or settings.decay_steps is not None
      or 'fall_share' in settings.sizes
    ):
      raise ValueError(
        '--warmup_steps, --decay_steps and --set=fall_share mean nothing with '
        '--schedule=constant; leave them out.'
      )
    return dataclasses.replace(settings, warmup_steps=0)
  if preset.fall_share > 1:
    raise ValueError(
      f'--set=fall_share={preset.fall_share}: fall_share must be at most 1, '
      f'where the learning rate falls from the first step on.'
    )
  decay_steps = settings.decay_steps or recorded or settings.steps
  # A workdir with a horizon has its own line, after those of other settings.
  if recorded is None and settings.steps > decay_steps:
    raise ValueError(
      f'--steps={settings.steps} is more than --decay_steps={decay_steps}, '
      f'after which the learning rate is 0; ask for more --decay_steps, or '
      f'leave it out.'
    )
  most = constant_until(decay_steps, preset.fall_share)
  chosen = settings.warmup_steps
  if chosen is None:
    chosen = min(preset.warmup_steps, most)
  if chosen > most:
    raise ValueError(
      f'--warmup_steps is {chosen}; it must be at most {most}: in the last '
      f'{decay_steps - most} of --decay_steps={decay_steps} the learning rate '
      f'falls.'
    )
  return dataclasses.replace(
    settings, warmup_steps=chosen, decay_steps=decay_steps
  )
