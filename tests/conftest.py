"""Set-up of all tests: four devices, a time limit, the reference data."""

import gc
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

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

# Replicas are tested on four devices; JAX must know before its first use.
chex.set_n_cpu_devices(4)

_SHARED = _ROOT.parent / 'shared'
_GOLDEN = _ROOT / 'tests' / 'golden'
# For programs that run once. The first halves the time to compile loops, and
# later versions of XLA no longer have it; with the second a program is compiled
# in one part, in a sixth less time, since each core has a worker of its own.
_QUICK_TO_COMPILE = (
  '--xla_cpu_use_fusion_emitters=false',
  '--xla_cpu_parallel_codegen_split_count=1',
)
_LIMIT = 300.0
_SLOW_LIMIT = 1800.0


def pytest_configure(config: pytest.Config) -> None:
  """Disables most of XLA's optimisations, unless slow tests are selected.

  Most tests run a program once or twice, so that optimising it costs more time
  than it saves: more than half of the whole. Programs that tests start inherit
  this.
  """
  if config.option.markexpr == 'not slow':
    os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = '1'
    jax.config.update('jax_disable_most_optimizations', True)
    # Worker processes inherit the variables of the first process.
    if 'PYTEST_XDIST_WORKER' not in os.environ:
      flags = [os.environ['XLA_FLAGS'], *_known_to_xla(_QUICK_TO_COMPILE)]
      os.environ['XLA_FLAGS'] = ' '.join(flags)


def _known_to_xla(flags: Sequence[str]) -> Sequence[str]:
  """Returns those of the flags that XLA knows."""
  if _starts_with(flags):
    return flags
  return [flag for flag in flags if _starts_with([flag])]


def _starts_with(flags: Sequence[str]) -> bool:
  """Tells whether XLA starts with flags; an unknown one ends the process."""
  return not subprocess.run(
    [sys.executable, '-c', 'import jax; jax.devices()'],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ' '.join(flags)},
    capture_output=True,
    check=False,
  ).returncode


def pytest_collection_modifyitems(
  config: pytest.Config, items: list[pytest.Item]
) -> None:
  """Gives every test a time limit, if pytest-timeout is installed.

  A `timeout` mark on a test, or --timeout, overrides it. A thread enforces the
  limit, because a main thread that hangs inside XLA does not see a signal.
  """
  if not config.pluginmanager.hasplugin('timeout'):
    return
  if config.getoption('timeout', None) is not None:
    return
  for item in items:
    if item.get_closest_marker('timeout') is None:
      limit = _SLOW_LIMIT if item.get_closest_marker('slow') else _LIMIT
      item.add_marker(pytest.mark.timeout(limit, method='thread'))


def pytest_collection_finish() -> None:
  """Lets Python look for cycles of objects seldom, and not in what is imported.

  Tracing makes many objects and next to no cycles; looking through them took
  an eighth of the time of tests that compile.
  """
  gc.collect()
  gc.freeze()
  gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope='session', autouse=True)
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
  """Shares compiled programs between the tests of a session.

  Whole runs compile the same programs again and again: with the cache this
  takes 5 s instead of 40. Programs that tests start use it, too. The folder is
  new for each session, since the CPU backend may reject or crash on entries
  that a slightly different machine or version has written.
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
  """Clears jax's caches after each module of tests.

  The CPU backend maps pages of memory for each compiled program, and the
  process ends without a message when it exceeds Linux's limit of 65,530.
  """
  yield
  jax.clear_caches()
  gc.collect()


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
  """Returns the folder of reference data, or skips the test without it."""
  if not _SHARED.is_dir():
    pytest.skip('needs the reference data, ../shared beside the project')
  return _SHARED


@pytest.fixture(scope='session')
def golden() -> Callable[[str], np.lib.npyio.NpzFile]:
  """Returns a function that reads the reference arrays tests/golden/NAME.npz.

  The arrays are float64 unless their dtype says otherwise.
  """

  def load(name: str) -> np.lib.npyio.NpzFile:
    return np.load(_GOLDEN / f'{name}.npz')

  return load


@pytest.fixture(scope='session')
def golden_files() -> Callable[[str], list[pathlib.Path]]:
  """Returns a function that lists files of reference arrays by a pattern."""

  def files(pattern: str) -> list[pathlib.Path]:
    paths = sorted(_GOLDEN.glob(pattern))
    assert paths, pattern
    return paths

  return files


@pytest.fixture
def load(
  golden: Callable[[str], np.lib.npyio.NpzFile],
) -> Callable[[str], Reference]:
  """Returns a function that reads a file's reference arrays by its name."""
  return lambda name: Reference(golden(name))
