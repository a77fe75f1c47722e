"""The flags of a run's settings, for every program that has some of them.

  flags.define(names=('task', 'preset', 'data'))   # or all, without `names`
  settings = flags.read()

`define` takes names, types, helps and defaults from `gtmm_jax.runs.settings`,
from the classes of tasks (sizes of episodes) and from the models (options).
`read` returns `Settings`, with defaults for flags that are not defined or not
set; `gtmm_jax.runs.resolve.resolve` fills in the preset's values. A program
with other defaults can `define` some of the flags, and the rest with absl.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

from absl import flags

from gtmm_jax import presets
from gtmm_jax.memory import associative
from gtmm_jax.model import cores
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs import set_flag
from gtmm_jax.runs.kinds import BUILT_IN, Kinds
from gtmm_jax.runs.settings import Settings, about

# Makes --helpshort of a program show the flags that are defined here.
flags.disclaim_key_flags()

# Help of the sizes of episodes of built-in tasks.
_EPISODE = {
  'pre_recall': "The paper's l, frames before the recall interval; >= 10 on "
  'dynamic_dependency.',
  'recall': "The paper's k, frames of the recall interval, 1 to l; >= 2 on "
  'similarity_cued_recall.',
  'rows': "Rows of navigation's grid, >= 1; with columns, two cells or more.",
  'columns': "Columns of navigation's grid, >= 1.",
  'length': 'Frames of a walk on navigation, >= 3, and on mixture, >= '
  'pre_recall + recall; of two turns on rotation, >= 14; on frames the file '
  'decides.',
  'prefix': 'On frames: true frames of an episode before those that are '
  'generated, below its length; 0, the default, is half of them.',
  'size': 'Height and width of frames on rotation, in pixels, >= 8.',
}
# Help of the options of cores that have a flag; --set sets the others.
_OPTIONS = {
  'order': "Order of the introspection network's slots. Default: age; arrival "
  'on dynamic_dependency.',
  'top_k': 'Number of slots that each read head of the associative memory '
  'reads by each addressing, from 2 to the number of slots; 0, the default, '
  'reads all.',
  'nearest': 'How the slots of --top_k are found: exact, the default, or '
  'approximate, which is faster on TPUs.',
  'without': 'Parts to leave out of the associative memory, separated by '
  f'commas: {", ".join(associative.PARTS)}; or none, the default.',
}
# Names of flags, for `define`.
EPISODE = tuple(_EPISODE)
OPTIONS = tuple(_OPTIONS)


def define(
  names: Collection[str] | None = None, kinds: Kinds = BUILT_IN
) -> None:
  """Defines the flags of settings.

  Args:
    names: of flags, which may be of `EPISODE` and `OPTIONS`; None for all.
    kinds: the models and tasks of the program.

  Raises:
    ValueError: a size of a task has the name of another flag.
  """
  for name, (field, known) in about().items():
    if names is None or name in names:
      text = known.help + _preset_default(name)
      if name == 'learning_rate':
        text += ' For episodes of more than 100 frames:' + _preset_default(
          'long_learning_rate'
        ).removeprefix(' Default:')
      choices = known.choices
      if name in ('model', 'task'):
        choices = tuple(getattr(kinds, f'{name}s'))
      _define(name, field.type, field.default, choices, text)
  for name in kinds_module.all_sizes(kinds):
    if names is None or name in names:
      if name in flags.FLAGS:
        raise ValueError(
          f'A size of a task is called {name}, the name of another flag; '
          f'rename it.'
        )
      text = _EPISODE.get(name, 'A size of episodes.') + _preset_default(name)
      flags.DEFINE_integer(name, None, text)
  for name, text in _OPTIONS.items():
    if names is None or name in names:
      option = _option(name, kinds)
      _define(name, option.type, None, (), text)
  if names is None or 'set' in names:
    flags.DEFINE_multi_string(
      'set',
      [],
      'NAME=VALUE: a size of the preset, or an option of the core; may be '
      'repeated. Values of a list are joined by +: '
      '--set=dense_hidden=256+256. Sizes: '
      f'slots, learning_rate, {", ".join(set_flag.sizes())}. Options: '
      f'{_listed_options(kinds)}.',
    )


def read(
  values: flags.FlagValues = flags.FLAGS, kinds: Kinds = BUILT_IN
) -> Settings:
  """Returns the settings of parsed flags that `define` defined.

  Raises:
    ValueError: --set is wrong.
  """
  fields = {name: values[name].value for name in about() if name in values}
  sizes = {
    name: values[name].value
    for name in kinds_module.all_sizes(kinds)
    if name in values and values[name].value is not None
  }
  settings = Settings(
    **fields, episode=sizes, options=_read_options(values, fields, kinds)
  )
  texts = values['set'].value if 'set' in values else ()
  return set_flag.apply(settings, texts, kinds)


def _define(
  name: str, kind: Any, default: Any, choices: tuple[str, ...], text: str
) -> None:
  """Defines a flag of a type; `T | None` counts as T."""
  others = [a for a in get_args(kind) if a is not type(None)]
  if get_origin(kind) is Literal:
    choices = tuple(others)
  elif others and type(None) in get_args(kind):
    (kind,) = others
  if choices:
    flags.DEFINE_enum(name, default, choices, text)
    return
  # A tuple of names is one text with commas.
  kind_of = {
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
  }
  kind_of.get(kind, flags.DEFINE_string)(name, default, text)


def _read_options(
  values: flags.FlagValues, fields: Mapping[str, Any], kinds: Kinds
) -> dict[str, Any]:
  """Returns the options whose flags are set.

  Leaves out an option of another core that is set to its default.
  """
  model = kinds.models.get(fields.get('model', Settings.model))
  decided = {name for each in presets.OPTIONS.values() for name in each}
  options = {}
  for name in OPTIONS:
    if name not in values or values[name].value is None:
      continue
    option = _option(name, kinds)
    value = values[name].value
    if get_origin(option.type) is tuple:
      value = () if value == 'none' else tuple(value.split(','))
    is_of_model = model is not None and name in cores.options(model)
    if is_of_model or name in decided or value != option.default:
      options[name] = value
  return options


def _option(name: str, kinds: Kinds) -> cores.Option:
  """Returns the option of a name, from any core that has it."""
  options = map(cores.options, kinds.models.values())
  return next(each[name] for each in options if name in each)


def _listed_options(kinds: Kinds) -> str:
  """Lists the options of all cores in words."""
  return '; '.join(
    f'{model} {", ".join(options)}'
    for model, make in kinds.models.items()
    if (options := cores.options(make))
  )


def _preset_default(name: str) -> str:
  """Returns a sentence with each preset's value, '' if presets have none."""
  parts = []
  for preset in presets.PRESETS:
    grey, colour = (
      _described(presets.choose(preset, channels), name) for channels in (1, 3)
    )
    if not grey:
      return ''
    parts.append(f'{preset} {grey}')
    if colour != grey:
      parts.append(f'{preset}, colour frames, {colour}')
  return f' Default: {"; ".join(parts)}.'


def _described(preset: presets.Preset, name: str) -> str:
  """Describes a preset's value in words; '' if it has none."""
  value = getattr(preset, name, None)
  if value is None:
    sizes = preset.episodes.items()
    value = {task: each[name] for task, each in sizes if name in each}
  if not isinstance(value, Mapping):
    return str(value)
  # By task or by model.
  if len(set(value.values())) <= 1:
    return ''.join(map(str, set(value.values())))
  return ', '.join(f'{each} on {key}' for key, each in value.items())
