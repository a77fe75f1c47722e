"""The table that study.py makes: what runs of a grid came to."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from gtmm_jax import records

# Column by column: the name in the summary, what is printed above it.
_COLUMNS = {
  'kl_new': 'KL new',
  'kl_predictable': 'KL predictable',
  'ratio': 'predictable / new',
  'kl_last': 'KL last frame',
  'negative_bound': 'negative bound',
  'retrieval_ahead': 'retrieved ahead',
  'retrieval_free': 'retrieved free',
}
_TOLD = (
  'KL in nats a frame, negative bound in nats a sequence, retrieval as a share '
  'of predictable frames, over held-out episodes: mean ± standard error over '
  'replicas, where there are several.'
)


def cell(workdir: pathlib.Path) -> dict[str, Any] | None:
  """What a run came to, None where it is not complete.

  Args:
    workdir: of the run.

  Returns:
    Its `settings`, `versions`, `device`, `data`, `training_seconds`, `episodes`
    and `summary`: for each metric mean and standard error, or None.
  """
  evaluation = records.read_evaluation(workdir)
  if evaluation is None:
    return None
  config, lines = records.read_config(workdir), records.read_metrics(workdir)
  return {
    **{name: config[name] for name in ('settings', 'versions', 'device')},
    'data': {name: config['data'][name] for name in ('source', 'checksum')},
    'training_seconds': lines[-1]['seconds'] if lines else None,
    'episodes': evaluation['episodes'],
    'failed_replicas': records.failed_replicas(evaluation),
    'summary': records.summarise(evaluation),
  }


def write(
  rows: Mapping[str, dict[str, Any]], stem: pathlib.Path, console: Console
) -> list[pathlib.Path]:
  """Prints the table, and writes it as JSON and as Markdown.

  Args:
    rows: of each cell, what `cell` gives.
    stem: the files, without their endings.
    console: to print on.

  Returns:
    The paths of the two files.
  """
  headings = ['cell', 'steps', *_COLUMNS.values()]
  body = [
    [name, f'{row["settings"]["steps"]:,}', *map(_text, _values(row))]
    for name, row in rows.items()
  ]
  table = Table()
  for index, heading in enumerate(headings):
    table.add_column(heading, justify='right' if index else 'left')
  for line in body:
    table.add_row(*line)
  console.print(table)
  parts = [_TOLD]
  if ratios := _ratios(rows):
    parts += ['KL of predictable frames / KL of new frames:', ratios]
  parts.append(_markdown(headings, body))
  paths = [stem.with_name(f'{stem.name}.{kind}') for kind in ('json', 'md')]
  _replace(paths[0], json.dumps(rows, indent=1, allow_nan=False) + '\n')
  _replace(paths[1], '\n\n'.join(parts) + '\n')
  return paths


def _ratios(rows: Mapping[str, dict[str, Any]]) -> str:
  """Tasks by models, where each pair has one cell; else nothing."""
  found: dict[str, dict[str, str]] = {}
  for row in rows.values():
    own = found.setdefault(row['settings']['task'], {})
    model = row['settings']['model']
    if model in own:
      return ''
    own[model] = _text(row['summary']['ratio'])
  models = list(dict.fromkeys(model for own in found.values() for model in own))
  body = [
    [f'`{task}`', *(own.get(model, '') for model in models)]
    for task, own in found.items()
  ]
  return _markdown(['task', *(f'`{model}`' for model in models)], body)


def _values(row: dict[str, Any]) -> list[Any]:
  return [row['summary'].get(name) for name in _COLUMNS]


def _text(value: Any) -> str:
  if value is None:
    return '-'
  mean, error = value
  places = 1 if abs(mean) >= 100 else 3
  return f'{mean:,.{places}f}' + (
    '' if error is None else f' ± {error:,.{places}f}'
  )


def _markdown(headings: list[str], body: list[list[str]]) -> str:
  lines = [headings, ['---'] * len(headings), *body]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _replace(path: pathlib.Path, text: str) -> None:
  """Writes a file that takes the place of an older one once it is whole."""
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  temporary.write_text(text)
  temporary.replace(path)
