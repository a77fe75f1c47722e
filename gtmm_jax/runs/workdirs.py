"""The folder of a run: its place and its contents."""

import pathlib
from typing import Any

from gtmm_jax import presets, records
from gtmm_jax.process import jax_settings, places
from gtmm_jax.runs.settings import Settings, may_differ
from gtmm_jax.tasks.sources.dataset import Split

# Options that config.json of earlier versions has for every core.
ONCE_OF_ALL = ('order', 'top_k', 'nearest', 'without')
# Settings of workdirs from before there were these settings.
BEFORE = {
  **jax_settings.BEFORE,
  'condition_scale': 'sqrt',
  'schedule': 'constant',
  'fall_share': 2 / 3,
  'warmup_steps': 0,
  'decay_steps': None,
  'average': 0.0,
  'curriculum': 'none',
}
# Remedy for the data of workdirs of earlier versions.
_WITHOUT_VALIDATION = (
  'an earlier version trained on what is now for validation: it takes another '
  '--workdir'
)


class CannotGoOn(ValueError):
  """Continuing would overwrite the contents of a run's folder."""


def locate(settings: Settings) -> pathlib.Path:
  """Returns the folder of a run: --workdir, or the one named by its settings.

  Raises:
    ValueError: it cannot be written, or is a file.
  """
  parts = (settings.task, settings.model, settings.preset, settings.seed)
  name = '-'.join(map(str, (*parts, *settings.set)))
  return usable(settings.workdir or pathlib.Path('runs') / name)


def usable(workdir: str | pathlib.Path) -> pathlib.Path:
  """Returns the path of a workdir that can be written.

  Raises:
    ValueError: it cannot be written, or is a file.
  """
  path = places.locate(workdir, 'workdir')
  if path.exists() and not path.is_dir():
    raise ValueError(f'--workdir {path} is a file; name a folder.')
  places.require_writable(path, f'--workdir {path}')
  return path


def require(workdir: pathlib.Path, steps: int, new: dict[str, Any]) -> None:
  """Checks that the folder is new, or that its run can be resumed.

  Args:
    workdir: the folder.
    steps: number of the run's training steps.
    new: content of `config.json`.

  Raises:
    ValueError: a setting differs, or the folder is not that of a run.
  """
  old = records.read_config(workdir)
  evaluation = records.read_evaluation(workdir)
  if evaluation is not None and not {'step', 'episodes'} <= evaluation.keys():
    raise ValueError(
      f'{workdir}/evaluation.json is not that of a run. Delete it, or name '
      f'another --workdir.'
    )
  if old is None:
    if records.read_metrics(workdir):
      raise ValueError(
        f'{workdir} has metrics.jsonl but no config.json; it is not the folder '
        f'of a run. Name another --workdir.'
      )
    return
  if not {'settings', 'data', 'versions', 'device'} <= old.keys():
    raise ValueError(
      f'{workdir}/config.json is not that of a run. Name another --workdir.'
    )
  was, now = comparable(old['settings'], new)
  remedies = jax_settings.remedies(was)
  if 'evaluate_on' not in old['settings']:
    remedies['data'] = _WITHOUT_VALIDATION
  records.require_same_settings(
    {**was, 'data': old['data']['checksum']},
    {**now, 'data': new['data']['checksum']},
    may_differ(new['settings']['device_megabytes'] is not None),
    remedies,
  )
  horizon_now = new['settings'].get('decay_steps')
  if horizon_now is not None and steps > horizon_now:
    raise ValueError(
      f'--steps={steps} is more than the {horizon_now} steps over which the '
      f'learning rate of {workdir} falls to 0; name another --workdir, where '
      f'a run with --schedule=constant can go on to any --steps.'
    )
  reported = [line['step'] for line in records.read_metrics(workdir)]
  if reported and max(reported) > steps:
    raise ValueError(_trained_further(workdir, max(reported), steps))


def horizon(workdir: pathlib.Path) -> int | None:
  """Returns `decay_steps` of the run in a folder, None if it has none.

  Raises:
    ValueError: config.json is damaged.
  """
  config = records.read_config(workdir) or {}
  settings = config.get('settings')
  recorded = settings.get('decay_steps') if isinstance(settings, dict) else None
  return recorded if isinstance(recorded, int) else None


def comparable(
  old: dict[str, Any], new: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns the settings of a record and the new ones, with the same names.

  A setting that is younger than the record has its default there. Workdirs of
  earlier versions have options of other cores, which are left out.

  Args:
    old: settings of a workdir, or of a record made from one.
    new: content of `config.json` with the new settings.
  """
  now = BEFORE | new['settings']
  was = new['option_defaults'] | BEFORE | old
  foreign = {*ONCE_OF_ALL} - {*now}
  # A task's sizes are None for other tasks, or missing if the program has none.
  names = [name for name in {**was, **now} if name not in foreign]
  was, now = ({name: each.get(name) for name in names} for each in (was, now))
  return was, now


def is_evaluated(
  workdir: pathlib.Path, steps: int, episodes: int, split: Split
) -> bool:
  """Returns whether the workdir holds the evaluation of a run.

  Figures in the folder belong to this evaluation: earlier ones are deleted
  before it is written.

  Args:
    workdir: of a run with the same settings.
    steps: number of training steps before the evaluation.
    episodes: least number of episodes of the evaluation.
    split: whose episodes these are.

  Raises:
    ValueError: evaluation.json is damaged.
  """
  evaluation = records.read_evaluation(workdir)
  return (
    evaluation is not None
    and evaluation['step'] == steps
    and evaluation['episodes'] >= episodes
    # Earlier versions had one part that was not trained on, without a name.
    and evaluation.get('split') == split
  )


def is_complete(workdir: pathlib.Path, settings: Settings) -> bool:
  """Returns whether the workdir holds all results of a run.

  Raises:
    ValueError: evaluation.json is damaged.
  """
  return (
    is_evaluated(
      workdir,
      settings.steps,
      settings.evaluation_episodes,
      settings.evaluate_on,
    )
    and not missing_figures(workdir, settings)
    and not _lacks_retries(workdir, settings)
  )


def _lacks_retries(workdir: pathlib.Path, settings: Settings) -> bool:
  """Returns whether a replica failed that has no second try, but shall."""
  if not settings.retry_failed_replicas:
    return False
  evaluation = records.read_evaluation(workdir)
  return evaluation.get('first_failed_at') is None and any(
    step is not None for step in evaluation['failed_at']
  )


def second_try(
  workdir: pathlib.Path, replica: int | None = None
) -> pathlib.Path:
  """Returns the folder of a replica's second try; without one that of all."""
  folder = workdir / 'retries'
  return folder if replica is None else folder / str(replica)


def missing_figures(workdir: pathlib.Path, settings: Settings) -> list[str]:
  """Returns the names of figures whose PNG or PDF is missing."""
  paths = figure_paths(workdir, settings)
  absent = {path.stem for path in paths if not path.exists()}
  return [name for name in figure_names(settings) if name in absent]


def figure_paths(
  workdir: pathlib.Path, settings: Settings
) -> list[pathlib.Path]:
  """Returns the paths of all figures of a run with these settings."""
  return [
    workdir / 'figures' / f'{name}.{kind}'
    for name in figure_names(settings)
    for kind in ('png', 'pdf')
  ]


def figure_names(settings: Settings) -> tuple[str, ...]:
  """Returns the names of the figures that a run has."""
  has_map = settings.task == 'navigation'
  # Only built-in cores have panels of their memory.
  has_memory = settings.model in {*presets.MODELS} - {*presets.WITHOUT_MEMORY}
  return (
    'results',
    'episodes',
    *(('overlay',) if has_map else ()),
    *(('memory',) if has_memory else ()),
  )


def _trained_further(workdir: pathlib.Path, step: int, steps: int) -> str:
  return (
    f'{workdir} has been trained for {step} steps already, more than '
    f'--steps={steps}; ask for at least as many, or name another --workdir.'
  )


def require_checkpoint(workdir: pathlib.Path, steps: int) -> None:
  """Checks that an incomplete run can resume and does not have to start anew.

  Args:
    workdir: the folder.
    steps: number of the run's training steps.

  Raises:
    CannotGoOn: there are records without a checkpoint, or there is a checkpoint
      of more steps.
  """
  lines = records.read_metrics(workdir)
  evaluation = records.read_evaluation(workdir)
  saved = saved_steps(workdir)
  # The first checkpoint is complete before the second line is written: fewer
  # lines without a checkpoint belong to a run that was killed early.
  if (evaluation or len(lines) > 2) and not saved:
    step = (evaluation or lines[-1])['step']
    raise CannotGoOn(
      f'{workdir} has records of {step} steps and no checkpoint to continue '
      f'from; name another --workdir to keep them.'
    )
  if saved and max(saved) > steps:
    raise CannotGoOn(_trained_further(workdir, max(saved), steps))


def saved_steps(workdir: pathlib.Path) -> list[int]:
  """Returns the steps of the checkpoints in a folder, by their names alone."""
  return [
    int(path.name)
    for path in (workdir / 'checkpoints').glob('[0-9]*')
    if path.name.isdigit()
  ]
