"""What every test shares: four devices, a time limit, the reference data."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

# JAX reads its platform when it is first imported. Tests run on the CPU, on a
# machine with an accelerator too, unless GTMM_TEST_PLATFORM names another.
os.environ['JAX_PLATFORMS'] = os.environ.get('GTMM_TEST_PLATFORM', 'cpu')
os.environ['MPLBACKEND'] = 'Agg'

import chex
import jax
import numpy as np
import pytest

from reference_numbers import Reference

# Programs that tests start find the package, installed or not.
_ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ['PYTHONPATH'] = os.pathsep.join(
  filter(None, (str(_ROOT), os.environ.get('PYTHONPATH')))
)

# Before any test asks JAX for a device: replicas are tested on four.
chex.set_n_cpu_devices(4)

_SHARED = _ROOT.parent / 'shared'
# Compiles loops in half the time; XLA of later versions no longer has it.
_PLAIN_LOOPS = '--xla_cpu_use_fusion_emitters=false'
_LIMIT = 300.0
_SLOW_LIMIT = 1800.0


def pytest_configure(config: pytest.Config) -> None:
  """Compiles with little care, unless tests that learn for minutes run.

  Most tests run a program once or twice, so that compiling it well costs more
  than it gains: more than half of all time. Programs that tests start follow.
  """
  if config.option.markexpr == 'not slow':
    os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = '1'
    jax.config.update('jax_disable_most_optimizations', True)
    flags = os.environ['XLA_FLAGS']
    # Processes that share the tests have the variables of the first.
    if _PLAIN_LOOPS not in flags and _is_known_to_xla(_PLAIN_LOOPS):
      os.environ['XLA_FLAGS'] = f'{flags} {_PLAIN_LOOPS}'


def _is_known_to_xla(flag: str) -> bool:
  """Whether XLA starts with a flag; with one unknown it ends the process."""
  return not subprocess.run(
    [sys.executable, '-c', 'import jax; jax.devices()'],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flag},
    capture_output=True,
    check=False,
  ).returncode


def pytest_collection_modifyitems(
  config: pytest.Config, items: list[pytest.Item]
) -> None:
  """Gives every test a time limit, in seconds, where pytest-timeout is there.

  A `timeout` mark on a test, or --timeout, wins. The limit is kept by a thread:
  the usual signal is not seen by a main thread that hangs inside XLA.
  """
  if not config.pluginmanager.hasplugin('timeout'):
    return
  if config.getoption('timeout', None) is not None:
    return
  for item in items:
    if item.get_closest_marker('timeout') is None:
      limit = _SLOW_LIMIT if item.get_closest_marker('slow') else _LIMIT
      item.add_marker(pytest.mark.timeout(limit, method='thread'))


@pytest.fixture(scope='session', autouse=True)
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
  """Lets the tests of one session share compiled programs.

  Whole runs compile the same programs again and again: 5 s in place of 40;
  programs that tests start find them, too. The folder is new for each session,
  since the CPU backend turns entries away, or crashes on them, where machine or
  version differ by a little.
  """
  folder = tmp_path_factory.mktemp('compiled')
  for name, value in (
    ('jax_compilation_cache_dir', str(folder)),
    ('jax_persistent_cache_min_compile_time_secs', 0.3),
  ):
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)


@pytest.fixture(scope='module', autouse=True)
def _forget_compiled() -> Iterator[None]:
  """Drops a module's compiled programs when it is done.

  The CPU backend maps pages of memory for each, and dies without a word when a
  process has used up those that Linux allows it, 65,530.
  """
  yield
  jax.clear_caches()


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
  """The folder of reference data beside the project, or a skipped test."""
  if not _SHARED.is_dir():
    pytest.skip('needs the reference data, ../shared beside the project')
  return _SHARED


@pytest.fixture(scope='session')
def golden(shared: pathlib.Path) -> Callable[[str], np.lib.npyio.NpzFile]:
  """A function from a name to the reference arrays of shared/golden/NAME.npz.

  The arrays are float64 unless their dtype says otherwise.
  """
  if not (shared / 'golden').is_dir():
    pytest.skip('needs the reference numbers, ../shared/golden')

  def load(name: str) -> np.lib.npyio.NpzFile:
    return np.load(shared / 'golden' / f'{name}.npz')

  return load


@pytest.fixture
def load(
  golden: Callable[[str], np.lib.npyio.NpzFile],
) -> Callable[[str], Reference]:
  """A function from the name of a file to its arrays and what was compared."""
  return lambda name: Reference(golden(name))
