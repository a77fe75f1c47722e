"""The content of `config.json`: settings, data, versions, device."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from gtmm_jax import presets, replicas
from gtmm_jax.model.temporal_vae import TemporalVAE
from gtmm_jax.process import distributed, jax_settings, provenance
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import own_frames, resolve, set_flag
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.settings import Settings, as_text
from gtmm_jax.tasks.sources.dataset import Dataset

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy')


def content(
  settings: Settings,
  task: Any,
  loaded: Dataset,
  preset: presets.Preset,
  model: TemporalVAE,
  layout: replicas.Layout,
  kinds: Kinds,
) -> dict[str, Any]:
  """Returns the content of `config.json` but for the starts.

  Args:
    settings: resolved.
    task: with its sizes.
    loaded: the data.
    preset: with the sizes that the settings change.
    model: of the run.
    layout: of replicas on devices.
    kinds: the models and tasks of the program.
  """
  core = model.core
  return {
    'settings': {
      **jax_settings.in_force(),
      # The precision of the flag replaces jax's.
      **_recorded(settings, kinds_module.all_sizes(kinds)),
      **{
        name: presets.for_model(preset, name, settings.model)
        for name in set_flag.sizes()
      },
      # None for a core without them.
      'key_strength': getattr(core, 'initial_strength', None),
      'slots': getattr(core, 'slots', None),
      'device_megabytes': own_frames.limit(
        settings, loaded, settings.device_megabytes
      ),
    },
    # Workdirs that are older than an option have this.
    'option_defaults': {
      name: as_text(value)
      for name, value in resolve.first_options(settings, kinds).items()
    },
    'data': {
      'flag': settings.data,
      'source': loaded.source,
      'checksum': loaded.checksum,
      'condition_size': task.condition_size,
    },
    'versions': provenance.versions(_PACKAGES),
    'device': {
      **provenance.device(layout.devices[0]),
      'count': len(layout.devices),
      'processes': distributed.count(),
    },
  }


def _recorded(settings: Settings, episode: Iterable[str]) -> dict[str, Any]:
  """Returns the settings that `config.json` records by their own names.

  Args:
    settings: resolved.
    episode: names of the sizes of all tasks; sizes that the task does not have
      are recorded as None.
  """
  return {
    **{
      field.name: getattr(settings, field.name)
      for field in dataclasses.fields(settings)
      if field.metadata['about'].is_recorded
    },
    **{name: settings.episode.get(name) for name in episode},
    **{name: as_text(value) for name, value in settings.options.items()},
  }
