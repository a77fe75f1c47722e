"""The runs of a study on the page: settings, pictures, and what failed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reporting.elements import Html, join, tag
from reporting.pictures import Picture, Pictures
from reporting.reading import Run, Study

# What is told of a run beside its settings, and the words for it.
_TOLD = {
  'step': 'steps trained',
  'episodes': 'episodes of the evaluation',
  'split': 'evaluated on',
  'training_seconds': 'seconds of training',
  'commit': 'commit',
  'clean': 'sources as committed',
  'command': 'command',
}
_GROUPS = ('data', 'device', 'versions')


def section(study: Study, pictures: Pictures) -> Html:
  """Returns the settings of a study and a part for each of its runs."""
  every = {run.name: _facts(run) for run in study.runs}
  common: dict[str, str] = {}
  if len(every) > 1:
    first, *others = every.values()
    common = {
      name: value
      for name, value in first.items()
      if all(each.get(name) == value for each in others)
    }
  parts = [tag('h3', 'Runs')]
  if common:
    parts.append(
      _folded(tag('summary', 'Settings of all runs'), _facts_list(common))
    )
  for run in study.runs:
    own = {
      name: value
      for name, value in every[run.name].items()
      if name not in common
    }
    parts.append(_of_run(run, own, pictures))
  return join(*parts)


def failures(studies: Sequence[Study], problems: Sequence[str]) -> Html | None:
  """Returns what has not finished, and why; None if there is nothing to tell.

  Args:
    studies: that the page shows.
    problems: sentences about pictures that could not be shown.
  """
  lines = []
  for study in studies:
    for run in study.runs:
      if run.state.word not in ('finished', 'waiting'):
        lines.append(
          tag(
            'li',
            tag('code', run.name),
            ' ',
            tag('span', run.state.word, class_=f'state {run.state.word}'),
            f': {run.state.why}',
          )
        )
    for row in study.rows.values():
      for replica, step in row.failed:
        when = '' if step is None else f' from step {step:,}'
        lines.append(
          tag(
            'li',
            tag('code', row.name),
            f': replica {replica} is not finite{when}, and left out of means.',
          )
        )
      for replica, step in row.retried:
        lines.append(
          tag(
            'li',
            tag('code', row.name),
            f': replica {replica} failed at step {step:,}, and was trained '
            f'again from another key; paired differences leave it out.',
          )
        )
  lines += [tag('li', each) for each in problems]
  if not lines:
    return None
  return tag(
    'section',
    tag('h2', 'What failed or has not finished'),
    tag('ul', *lines),
    id='failures',
  )


def figure(picture: Picture, of_task: bool = False) -> Html:
  """Returns a picture with its caption, and a link to it alone."""
  image = tag(
    'img',
    src=picture.source,
    alt=picture.words,
    width=picture.width,
    height=picture.height,
    # A picture of a run may never be seen; on paper those of tasks are.
    loading=None if of_task else 'lazy',
  )
  return tag(
    'figure',
    tag(
      'div',
      tag('a', image, href=picture.source),
      class_='scroll' if of_task else None,
    ),
    tag('figcaption', picture.words),
  )


def _of_run(run: Run, own: Mapping[str, str], pictures: Pictures) -> Html:
  """Returns the part of a run, closed until it is clicked."""
  settings = _settings(run)
  word = run.state.word
  summary = tag(
    'summary',
    run.name,
    ' ',
    tag('span', word, class_=f'state {word}'),
  )
  return _folded(
    summary,
    tag('p', run.state.why) if run.state.why else None,
    *(figure(each) for each in pictures.of_run(run)),
    _facts_list(own),
    data_task=str(settings.get('task', '')),
    data_model=str(settings.get('model', '')),
  )


def _folded(summary: Html, *children: Html | None, **attributes: Any) -> Html:
  return tag('details', summary, tag('div', *children), **attributes)


def _facts_list(facts: Mapping[str, str]) -> Html:
  """Returns names and values as a list, in columns where there is room."""
  lines = [
    tag('li', f'{name}: ', tag('code', value)) for name, value in facts.items()
  ]
  return tag('ul', *lines, class_='facts')


def _settings(run: Run) -> Mapping[str, Any]:
  settings = run.config.get('settings')
  return settings if isinstance(settings, Mapping) else {}


def _facts(run: Run) -> dict[str, str]:
  """Returns what a run has set, and what else is told of it, as texts."""
  facts = {
    name: _text(value)
    for name, value in _settings(run).items()
    # Null is what the run has no use for.
    if value is not None
  }
  for name, words in _TOLD.items():
    if run.config.get(name) is not None:
      facts[words] = _text(run.config[name])
  for group in _GROUPS:
    values = run.config.get(group)
    if isinstance(values, Mapping):
      facts |= {
        f'{group}: {name}': _text(value)
        for name, value in values.items()
        # A folder of one machine.
        if (group, name) != ('data', 'flag')
      }
  return facts


def _text(value: Any) -> str:
  return value if isinstance(value, str) else json.dumps(value, default=str)
