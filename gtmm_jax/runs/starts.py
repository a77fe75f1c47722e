"""The starts of a run, as `config.json` lists them."""

import contextlib
import datetime
import pathlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gtmm_jax import records
from gtmm_jax.process import provenance

# Of a start, what config.json has of the latest one beside the list, too.
_OF_LATEST = ('versions', 'device')


@contextlib.contextmanager
def recorded(
  workdir: pathlib.Path,
  config: Mapping[str, Any],
  earlier: Sequence[Mapping[str, Any]],
) -> Iterator[None]:
  """Writes `config.json` with one start more, and again when it has ended.

  Args:
    workdir: of the run; nothing else may write there meanwhile.
    config: what it holds beside the starts: `settings`, `versions`, `device`
      and whatever else.
    earlier: starts to keep.
  """
  start = _start(config)

  def write() -> None:
    records.write_config(workdir, {**config, 'starts': [*earlier, start]})

  write()
  try:
    yield
  except BaseException:
    start['ended'] = _now()
    # What ended the program is to be told, not that this had no room either.
    with contextlib.suppress(OSError):
      write()
    raise
  start['ended'] = _now()
  write()


def before(workdir: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the starts that `config.json` tells of, the first one first.

  Of runs that were begun before there was such a list, those are told of whose
  versions or devices are known.
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
  """The time by the clock of the world, to a second."""
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
