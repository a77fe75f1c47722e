"""Evaluations of a trained run that are kept in a folder beside its own."""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from gtmm_jax import figures, records
from gtmm_jax.process import command, places, provenance
from gtmm_jax.records import documents
from gtmm_jax.runs import progress
from gtmm_jax.runs.settings import describe
from gtmm_jax.tasks.sources.dataset import Split
from gtmm_jax.trained import comparison, evaluating, variants
from gtmm_jax.trained.bounds import Tighter
from gtmm_jax.trained.comparison import Row
from gtmm_jax.trained.trained import Trained
from gtmm_jax.trained.variants import Slots

_PACKAGES = ('jax', 'jaxlib', 'flax', 'numpy')


class Request(NamedTuple):
  """Evaluations that are asked of a trained run.

  Attributes:
    sizes: values of sizes of episodes, by name; each combination is evaluated.
    splits: one or two.
    episodes: least number of them.
    seed: of the episodes.
    slots: as of `variants.make`.
    bounds: tighter ones.
    samples: K of these.
  """

  sizes: Mapping[str, Sequence[int]]
  splits: Sequence[Split]
  episodes: int
  seed: int
  slots: Slots | None
  bounds: Sequence[Tighter]
  samples: int


class Case(NamedTuple):
  """Episodes of certain sizes, of one split.

  Attributes:
    name: of its folder.
    row: that describes it.
    evaluator: of its sizes.
  """

  name: str
  row: Row
  evaluator: evaluating.Evaluator


@dataclasses.dataclass(frozen=True)
class Evaluations:
  """Checked evaluations of a run, before anything is compiled or written.

  Attributes:
    run: the trained run.
    request: what is asked of it.
    folder: of the results.
    cases: all that is evaluated.
    config: content of the folder's `config.json`.
  """

  run: Trained
  request: Request
  folder: pathlib.Path
  cases: tuple[Case, ...]
  config: dict[str, Any]


def prepare(run: Trained, request: Request, name: str) -> Evaluations:
  """Prepares evaluations, and checks everything before anything costs time.

  Args:
    run: the trained run.
    request: what is asked of it.
    name: of the folder in `evaluations/` in the run's workdir.

  Raises:
    ValueError: something is wrong; tells in one line what, and what to do.
  """
  folder = _folder(run, name)
  for split in request.splits:
    evaluating.require_known(split, request.bounds, request.samples)
  cases = []
  for values in itertools.product(*request.sizes.values()):
    sizes = dict(zip(request.sizes, values, strict=True))
    variant = variants.make(run, sizes, request.slots)
    evaluator = evaluating.Evaluator(
      run, variant, episodes=request.episodes, seed=request.seed
    )
    words = [f'{key}={value}' for key, value in sizes.items()]
    for split in request.splits:
      row = Row(describe(variant.settings), split, variant)
      cases.append(Case('-'.join([*words, split]), row, evaluator))
  evaluations = Evaluations(
    run, request, folder, tuple(cases), _config(run, request)
  )
  _require_same(folder, evaluations.config['settings'])
  return evaluations


def complete(evaluations: Evaluations, console: Console) -> None:
  """Evaluates what is not in the folder yet, and prints a table of all.

  Each case has a folder with `evaluation.json` and `evaluation.npz` as a run
  has them, and `bounds.npz` if tighter bounds are asked for; the figure
  `kl_by_frame` shows all cases.

  Args:
    evaluations: from `prepare`.
    console: to print on.

  Raises:
    OSError: something cannot be written.
  """
  folder, request = evaluations.folder, evaluations.request
  records.write_config(folder, evaluations.config)
  shown = []
  for case in evaluations.cases:
    path = folder / case.name
    values = records.read_evaluation(path)
    if values is None:
      what = f'evaluating {case.row.name}, {case.row.split}'
      with progress.saying(what, console):
        measured = case.evaluator(
          case.row.split, request.bounds, request.samples
        )
        _write(path, measured)
      values = records.read_evaluation(path)
    shown.append((case.row, values))
  comparison.show(evaluations.run, shown, console)
  stem = folder / 'kl_by_frame'
  drawn = command.attempt_drawing(
    lambda: figures.save(comparison.figure(evaluations.run, shown), stem), stem
  )
  for each in (folder, *drawn):
    console.print(str(each))


def _write(folder: pathlib.Path, measured: evaluating.Measured) -> None:
  """Writes one case; its `evaluation.json` last, which marks it complete."""
  records.write_episodes(folder, measured.episodes._asdict())
  if measured.bounds:
    documents.replace_arrays(folder / 'bounds.npz', measured.bounds)
  records.write_evaluation(folder, measured.values)


def _folder(run: Trained, name: str) -> pathlib.Path:
  """Returns the folder of a name; raises `ValueError` if it cannot be made."""
  if not name or name in ('.', '..') or pathlib.PurePath(name).name != name:
    raise ValueError(f'--name={name} cannot name a folder; use a plain word.')
  folder = run.workdir / 'evaluations' / name
  if folder.exists() and not folder.is_dir():
    raise ValueError(f'{folder} is a file; give another --name.')
  places.require_writable(folder, f'--name={name}')
  return folder


def _config(run: Trained, request: Request) -> dict[str, Any]:
  """Returns the content of `config.json`."""
  settings = {'step': run.step, **request._asdict()}
  settings['data'] = run.data.checksum
  return {
    'settings': settings,
    'data': {
      'flag': run.settings.data,
      'source': run.data.source,
      'checksum': run.data.checksum,
    },
    'versions': provenance.versions(_PACKAGES),
    'command': provenance.command(),
    **provenance.sources(),
  }


def _require_same(folder: pathlib.Path, settings: Mapping[str, Any]) -> None:
  """Raises `ValueError` if a folder has evaluations with other settings."""
  config = records.read_config(folder)
  if config is None:
    if folder.is_dir() and any(folder.iterdir()):
      raise ValueError(
        f'{folder} has files, and no config.json of an evaluation; give '
        f'another --name.'
      )
    return
  now = documents.as_json(settings, name_it=True)
  then = config.get('settings')
  then = then if isinstance(then, dict) else {}
  differing = [
    f'{name} ({then.get(name)} then, {value} now)'
    for name, value in now.items()
    if then.get(name) != value
  ]
  if differing:
    raise ValueError(
      f'{folder} has evaluations with other settings: {", ".join(differing)}; '
      f'give another --name.'
    )
