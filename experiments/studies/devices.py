"""Accelerators of this machine, dealt out to runs; does not start jax.

jax takes most of a device's memory when it starts, so a study must not ask it.
NVIDIA GPUs are found by CUDA_VISIBLE_DEVICES, or by `nvidia-smi -L`, and dealt
out by that variable. A TPU is refused: a process takes all of its chips.
"""

import importlib.util
import os
import pathlib
import pkgutil
import re
import subprocess
from collections.abc import Callable, Collection, Mapping

_VARIABLE = 'CUDA_VISIBLE_DEVICES'
# Seconds that nvidia-smi has to answer.
_PATIENCE = 60.0


def local() -> list[str]:
  """Returns the NVIDIA GPUs of this machine that jax would use.

  Raises:
    ValueError: runs would share a TPU.
  """
  return dealt(os.environ, _platforms(), _listed)


def dealt(
  environment: Mapping[str, str],
  installed: Collection[str],
  listed: Callable[[], str],
) -> list[str]:
  """Returns the GPUs to deal out to runs, [] if there are none.

  Args:
    environment: variables of the runs.
    installed: platforms that jax has here beside the CPU, 'cuda' or 'tpu'.
    listed: returns what `nvidia-smi -L` prints, '' if it finds none.

  Raises:
    ValueError: runs would share a TPU.
  """
  words = environment.get('JAX_PLATFORMS', '').split(',')
  names = {'gpu' if word == 'cuda' else word for word in words if word}
  if 'tpu' in installed and (not names or 'tpu' in names):
    raise ValueError(
      'a run takes all chips of a TPU, which --jobs cannot deal out; use '
      '--jobs=1, where the replicas of a run share them.'
    )
  if 'cuda' not in installed or (names and 'gpu' not in names):
    return []
  if _VARIABLE in environment:
    return _visible(environment[_VARIABLE])
  return _in_list(listed())


def variables(device: str | None) -> dict[str, str]:
  """Returns the environment's variables that give a run one device alone."""
  return {} if device is None else {_VARIABLE: device}


def _visible(value: str) -> list[str]:
  """Returns the devices before the first that is none, as CUDA does."""
  devices: list[str] = []
  for word in value.split(','):
    device = word.strip()
    if not re.fullmatch(r'\d+|(GPU|MIG)-\S+', device):
      break
    devices.append(device)
  return list(dict.fromkeys(devices))


def _in_list(text: str) -> list[str]:
  """Returns the devices of `nvidia-smi -L`; a GPU's parts instead of the GPU.

  Its numbers may be others than CUDA's, so devices have their UUIDs.
  """
  devices: list[str] = []
  for kind, number in re.findall(r'UUID: (GPU|MIG)-([^\s)]+)', text):
    # The GPU that is divided stands on the line before its first part.
    if kind == 'MIG' and devices and devices[-1].startswith('GPU-'):
      devices.pop()
    devices.append(f'{kind}-{number}')
  return devices


def _listed() -> str:
  """Returns what `nvidia-smi -L` prints, '' where it cannot be asked."""
  try:
    return subprocess.run(
      ['nvidia-smi', '-L'],
      capture_output=True,
      text=True,
      timeout=_PATIENCE,
      check=True,
    ).stdout
  except (OSError, ValueError, subprocess.SubprocessError):
    return ''


def _platforms() -> set[str]:
  """Returns the platforms that jax has here, beside the CPU."""
  platforms = set()
  plugins = importlib.util.find_spec('jax_plugins')
  if plugins is not None:
    names = pkgutil.iter_modules(plugins.submodule_search_locations)
    if any('cuda' in each.name for each in names):
      platforms.add('cuda')
  folder = pathlib.Path('/dev')
  has_chips = any(folder.glob('accel[0-9]*')) or any(folder.glob('vfio/[0-9]*'))
  if has_chips and importlib.util.find_spec('libtpu') is not None:
    platforms.add('tpu')
  return platforms
