"""Settings of runs, made from keyword arguments as flags would make them."""

import dataclasses
from typing import Any

from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import set_flag
from gtmm_jax.runs.kinds import BUILT_IN, Kinds
from gtmm_jax.runs.settings import Settings


def make(kinds: Kinds = BUILT_IN, **values: Any) -> Settings:
  """Returns unresolved settings.

  Args:
    kinds: models and tasks.
    **values: by name, fields of `Settings`, sizes of episodes or options of a
      core; None is as if not given. `set` holds values of --set.
  """
  values = {name: each for name, each in values.items() if each is not None}
  fields = {field.name for field in dataclasses.fields(Settings)} - {'set'}
  sizes = kinds_module.all_sizes(kinds)
  texts = values.pop('set', ())
  settings = Settings(
    **{name: each for name, each in values.items() if name in fields},
    episode={name: each for name, each in values.items() if name in sizes},
    options={
      name: each
      for name, each in values.items()
      if name not in fields and name not in sizes
    },
  )
  return set_flag.apply(settings, texts, kinds)
