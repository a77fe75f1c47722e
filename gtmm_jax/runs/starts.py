"""The starts of a run, as `config.json` lists them."""

import contextlib
import datetime
import pathlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gtmm_jax import records
from gtmm_jax.process import locks, provenance

# Values of the latest start that config.json also has beside the list.
_OF_LATEST = ('versions', 'device')


@contextlib.contextmanager
def recorded(
  workdir: pathlib.Path,
  config: Mapping[str, Any],
  earlier: Sequence[Mapping[str, Any]],
) -> Iterator[None]:
  """Writes `config.json` with one more start, and again when it has ended.

  Args:
    workdir: of the run, locked.
    config: the content beside the starts, `versions` and `device` included.
    earlier: starts to keep.
  """
  start = _start(config)

  def write() -> None:
    records.write_config(workdir, {**config, 'starts': [*earlier, start]})

  write()
  try:
    yield
  except locks.Lost:
    raise  # The folder is another program's now.
  except BaseException:
    start['ended'] = _now()
    # The error that ended the program counts, not a full disk here.
    with contextlib.suppress(OSError):
      write()
    raise
  start['ended'] = _now()
  write()


def before(workdir: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the starts in `config.json`, the first one first.

  Older files have no list: their starts are those whose versions are known.
  """
  config = records.read_config(workdir)
  if config is None:
    return []
  if 'starts' in config:
    return config['starts']
  latest = {name: config[name] for name in _OF_LATEST if name in config}
  return [*config.get('earlier', []), latest]


def _start(config: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'began': _now(),
    'ended': None,
    'command': provenance.command(),
    'host': platform.node(),
    **provenance.sources(),
    **{name: config[name] for name in _OF_LATEST},
  }


def _now() -> str:
  """Returns the time in UTC, to a second."""
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
