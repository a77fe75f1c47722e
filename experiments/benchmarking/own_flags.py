"""The flags of benchmark.py, and what is said about mistakes in them."""

import os
import pathlib
import re

from absl import flags

from gtmm_jax.process import places
from gtmm_jax.runs import flags as settings_flags

# So that --helpshort of a program shows the flags that are defined for it here.
flags.disclaim_key_flags()

# What says how one model is trained or timed.
OF_ONE_MODEL = (
  'model',
  'store',
  'slots',
  'top_k',
  'nearest',
  'without',
  'recompute',
  'precision',
  'naive',
  'pytorch',
  'seconds',
)


# Settings of a run that have a flag here; replicas are a list.
_SETTINGS = (
  'task',
  'model',
  'preset',
  'batch_size',
  *settings_flags.EPISODE,
  'store',
  *(name for name in settings_flags.OPTIONS if name != 'order'),
  'data',
  'data_dir',
  'device_megabytes',
  'recompute',
  'precision',
)


def define_flags() -> None:
  """Defines every flag of the program."""
  settings_flags.define(_SETTINGS)
  flags.DEFINE_list(
    'replicas',
    ['1', '4'],
    'Numbers of models trained side by side, each >= 1, with commas between; '
    'a row of the table for each.',
  )
  flags.DEFINE_float(
    'seconds',
    5.0,
    'To spend on the steps of each row, or on the passes of all cores of a '
    'size, > 0; compiling comes on top.',
  )
  flags.DEFINE_string('json', None, 'File to write the numbers to, too.')
  flags.DEFINE_multi_enum(
    'pytorch',
    [],
    ('eager', 'compiled'),
    'Time the same model in PyTorch, too, in this mode; may be given twice. '
    'For vrnn and introspective on grey frames; pip install '
    '"gtmm_jax[benchmark]". Compiling it takes minutes.',
  )
  flags.DEFINE_integer(
    'slots',
    None,
    'N of the memory, >= 1. Default: as many as frames, five times as many for '
    'the LRU.',
    lower_bound=1,
  )
  flags.DEFINE_bool(
    'naive',
    False,
    'Time the naive road, too: networks inside the scan, one program a step, '
    'replicas one after another.',
  )
  flags.DEFINE_string(
    'compare',
    None,
    'File of an earlier --json: lists what moved since, beyond the noise.',
  )
  flags.DEFINE_bool(
    'parameters',
    False,
    'Print the number of parameters of each model at the paper preset, beside '
    "Table 1's, and time nothing.",
  )
  flags.DEFINE_bool(
    'memory',
    False,
    'Print what gradients of each model need for the largest number of '
    'replicas, with nothing, the inside of steps, or everything computed '
    'again: an estimate that compiles and times nothing.',
  )
  flags.DEFINE_bool(
    'cores',
    False,
    'Time the memory cores alone, forward and backward, and the PyTorch '
    'package dnc beside them where it is installed, '
    'pip install "gtmm_jax[benchmark]". Of the other flags, seconds, sizes, '
    'plain, json and compare matter then.',
  )
  flags.DEFINE_bool(
    'plain',
    False,
    'For --cores: take derivatives as plain JAX does, as of a bare core, and '
    'not as training does, by the backward passes that are written out.',
  )
  flags.DEFINE_list(
    'sizes',
    [],
    'For --cores: slots, word size and read heads as NxWxR, each >= 1 and R at '
    'most N, with commas between. Default: 25x32x5, and from there each of the '
    'three grows.',
  )


def require_none_of_one_model(given: flags.FlagValues) -> None:
  """Raises `ValueError` for flags that --memory has no use for."""
  for name in OF_ONE_MODEL:
    if given[name].present:
      raise ValueError(
        f'--{name} means nothing to --memory, which estimates every model as '
        f'its preset has it; leave it out.'
      )


def replica_counts(given: list[str]) -> list[int]:
  """The numbers of replicas, each once, the smallest first.

  The memory peaks that are read after a row are those of the program so far:
  in this order the latest row makes them.

  Args:
    given: the value of --replicas.

  Returns:
    The numbers, at least one.

  Raises:
    ValueError: if one is not a whole number from 1 on, or there is none.
  """
  for text in given:
    if not text.strip().isdecimal() or int(text) < 1:
      raise ValueError(
        f'--replicas has {text!r} in it; it must be whole numbers from 1 on '
        f'with commas between, as in --replicas=1,4.'
      )
  if not given:
    raise ValueError('--replicas is empty; give one number or more, as 1,4.')
  return sorted({int(text) for text in given})


def sizes(given: list[str]) -> list[tuple[int, int, int]]:
  """The sizes (N, W, R), each once, in the order given.

  Args:
    given: the value of --sizes; may be empty.

  Returns:
    As many, or fewer where some are given twice.

  Raises:
    ValueError: if one is not three whole numbers from 1 on with R <= N.
  """
  found = {}
  for text in given:
    match = re.fullmatch(r'\s*(\d+)x(\d+)x(\d+)\s*', text)
    size = tuple(map(int, match.groups())) if match else (0, 0, 0)
    if min(size) < 1 or size[2] > size[0]:
      raise ValueError(
        f'--sizes has {text!r} in it; it must be slots, word size and read '
        f'heads, whole numbers from 1 on with no more heads than slots, as in '
        f'--sizes=25x32x5,128x32x5.'
      )
    found[size] = None
  return list(found)


def writable(given: str | None) -> pathlib.Path | None:
  """The file for --json; raises `ValueError` unless it can be written."""
  if given is None:
    return None
  path = places.locate(given, 'json')
  if path.is_dir():
    raise ValueError(f'--json={given} is a folder; name a file.')
  if not path.parent.is_dir():
    raise ValueError(
      f'--json={given} lies in a folder that does not exist; make '
      f'{path.parent}, or name a file elsewhere.'
    )
  if not os.access(path if path.exists() else path.parent, os.W_OK):
    raise ValueError(f'--json={given} may not be written; name another file.')
  return path
