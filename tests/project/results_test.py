"""Tables of the documents show the numbers of committed results."""

import json
import pathlib
import re

import numpy as np
import pytest

from benchmarking import parameter_counts
from gtmm_jax import presets, records
from studies import grid_file, markdown, outcomes, purpose, statistics, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / 'experiments' / 'results'
README = (ROOT / 'README.md').read_text()
RESULTS = (FOLDER / 'README.md').read_text()
GRIDS = ROOT / 'experiments' / 'grids'
STUDIES = sorted(
  path.stem for path in GRIDS.glob('*.json') if (FOLDER / path.name).exists()
)
# Files of results that are older than the recording of commits.
BEFORE_COMMITS = {
  'ablation.json',
  'copy_task.json',
  'cores.json',
  'memories.json',
  'small.json',
  'tasks.json',
  'performance/dynamic_dependency_associative.json',
  'performance/dynamic_dependency_introspective.json',
  'performance/growth.json',
  'performance/paper_introspective.json',
  'performance/paper_vrnn.json',
  'performance/small_introspective.json',
  'performance/small_vrnn.json',
}
MEMORY_README, TASKS_README = (
  (ROOT / 'gtmm_jax' / folder / 'README.md').read_text()
  for folder in ('memory', 'tasks')
)


@pytest.mark.parametrize('core', ['ntm', 'dnc', 'introspective', 'lru', 'lstm'])
def test_its_table_of_copying_is_that_of_the_result(core):
  runs = [run for run in _result('copy_task')['runs'] if run['core'] == core]
  columns = [
    ['no' if run['learned_at'] is None else run['learned_at'] for run in runs],
    [f'{run["bits"]:.3f}' for run in runs],
    [f'{run["bits_by_length"][9]:.3f}' for run in runs],
    [f'{run["bits_by_length"][19]:.3f}' for run in runs],
    [round(run['seconds']) for run in runs],
  ]
  ends = [(str(min(column)), str(max(column))) for column in columns]
  cells = [a if a == b else f'{a} to {b}' for a, b in ends]
  assert f'| `{core}` | {" | ".join(cells)} |\n' in MEMORY_README


def test_the_table_of_learning_rates_is_that_of_the_study():
  table = RESULTS.split('## One learning rate\n')[1].split('| rate |')[1]
  rows = table.split('\n\n')[0].splitlines()[2:]
  assert len(rows) == 3
  assert set(rows) < set((FOLDER / 'rates.md').read_text().splitlines())


# Names of cells, from the schedule on, and of the rows of both tables.
_RATES = {
  'schedule=decay-posterior=additive': 'warm-up, fall over two thirds',
  'fall_share=0.667': 'fall over two thirds',
  'fall_share=0.2': '**fall over a fifth**',
  'fall_share=0.2-gradient_norm=10': 'fall over a fifth, clipped at 10',
  'schedule=constant-gradient_norm=none': 'constant',
  'schedule=constant-gradient_norm=10': 'constant, clipped at 10',
}
_POSTERIORS = {
  'schedule=decay-posterior=additive': 'additive',
  'schedule=decay-posterior=residual': 'residual',
}


def _row_of_recipe(record, *first):
  """Returns the row of a record in a table of the recipe."""
  cells = list(first)
  for metric, places in (('negative_bound', 1), ('kl_predictable', 3)):
    for source in (record['last_iterate'], record['replicas']):
      mean, (low, high), _ = statistics.mean(source[metric])
      numbers = (f'{number:,.{places}f}' for number in (mean, low, high))
      cells.append('{} [{}, {}]'.format(*numbers))
  cells.append(', '.join(f'{n:,}' for n in sorted(record['read_from'])))
  return f'| {" | ".join(cells)} |'


def test_the_tables_of_the_recipe_are_those_of_the_studies():
  section = RESULTS.split('## The recipe\n')[1].split('## The small preset\n')[
    0
  ]
  is_row = re.compile(r'\| [\w ]+, `')
  rows = [line for line in section.splitlines() if is_row.match(line)]
  expected = []
  for study in ('recipe', 'schedule'):
    for name, record in _result(study).items():
      settings = record['settings']
      task, stored = settings['task'].replace('_', ' '), settings['store']
      first = f'{task}, `{settings["model"]}`'
      start = name.find('schedule=') if study == 'recipe' else name.find('fall')
      cell = name[start:]
      if cell in _RATES and stored == 'mean':
        expected.append(_row_of_recipe(record, first, _RATES[cell]))
      if cell in _POSTERIORS:
        posterior = _POSTERIORS[cell]
        first = f'{first}, {stored}s'
        expected.append(_row_of_recipe(record, first, posterior))
  assert len(rows) == 18
  assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize(
  ('change', 'before', 'after'),
  [
    ('no warm-up', 'schedule=decay-posterior=additive', 'fall_share=0.667'),
    (
      'and a fall over a fifth, not two thirds',
      'fall_share=0.667',
      'fall_share=0.2',
    ),
    (
      'and clipping at 10',
      'fall_share=0.2',
      'fall_share=0.2-gradient_norm=10',
    ),
    (
      'no fall at all, in place of a fall over a fifth',
      'fall_share=0.2',
      'schedule=constant-gradient_norm=none',
    ),
  ],
)
def test_its_changes_of_the_recipe_are_those_of_the_studies(
  change, before, after
):
  results = _result('recipe') | _result('schedule')

  def bounds(task, cell):
    (found,) = [
      record['last_iterate']['negative_bound']
      for name, record in results.items()
      if record['settings']['task'] == task
      and record['settings']['store'] == 'mean'
      and name.endswith(f'-{cell}')
    ]
    return np.array(found)

  cells = [change]
  for task in ('perfect_recall', 'navigation'):
    mean, (low, high), _ = statistics.mean(
      bounds(task, after) - bounds(task, before)
    )
    cells.append(f'{mean:.1f} [{low:.1f}, {high:.1f}]')
  assert f'| {" | ".join(cells)} |\n' in RESULTS


def test_the_table_of_priors_is_that_of_the_study():
  for name, record in _result('priors').items():
    hidden, number = re.fullmatch(
      r'prior_hidden=(.+)-prior_components=(\d+)', name
    ).groups()
    values = record['replicas']
    bounds = ', '.join(f'{value:,.1f}' for value in values['negative_bound'])
    shares = ', '.join(f'{value:.2f}' for value in values['retrieval_free'])
    cells = number, hidden.replace('+', ', '), bounds, shares
    assert f'| {" | ".join(cells)} |\n' in RESULTS


# By words of the document, the ends of the names of cells.
_WIRINGS = {
  'weight 4': 'tag=true-controller_weight=4',
  'weight 1, not 4': 'tag=true-controller_weight=1',
  'no tags': 'tag=false',
}


def test_what_the_wiring_changes_is_as_the_study_has_it():
  bounds = {
    (task, model, words): np.array(record['replicas']['negative_bound'])
    for name, record in _result('wiring').items()
    for task in ('similarity_cued_recall', 'navigation')
    for model in ('ntm', 'lru', 'dnc')
    for words, cell in _WIRINGS.items()
    if name.startswith(f'{task}-{model}-{cell}')
  }
  losses = {}
  for model in ('ntm', 'lru', 'dnc'):
    of_tasks = [
      {words: bounds[task, model, words] for words in _WIRINGS}
      for task in ('similarity_cued_recall', 'navigation')
    ]
    for words in ('weight 1, not 4', 'no tags'):
      cells = [f'`{model}`', words]
      for each in of_tasks:
        mean, (low, high), _ = statistics.mean(each[words] - each['weight 4'])
        cells.append(f'{mean:.1f} [{low:.1f}, {high:.1f}]')
      assert f'| {" | ".join(cells)} |\n' in RESULTS
    for words in _WIRINGS:
      losses[words, model] = np.mean(
        [
          each[words].mean() - min(values.mean() for values in each.values())
          for each in of_tasks
        ]
      )
  for words, name in (
    ('weight 4', 'tags, weight 4'),
    ('weight 1, not 4', 'tags, weight 1'),
    ('no tags', 'no tags'),
  ):
    each = [losses[words, model] for model in ('ntm', 'lru', 'dnc')]
    row = ' | '.join(f'{loss:.1f}' for loss in (*each, max(each)))
    assert f'| {name} | {row} |\n' in RESULTS


def test_the_table_of_tighter_bounds_is_that_of_the_result():
  cells = _result('tighter_bounds')
  assert list(cells) == list(grid_file.read(GRIDS / 'bounds.json'))
  for name, cell in cells.items():
    assert cell['clean'] and cell['commit']
    task, model = name.rsplit('-', 1)
    values = cell['values']
    means = [
      f'{statistics.mean(values[f"negative_bound{kind}"]).mean:,.1f}'
      for kind in ('', '_iwae', '_particle')
    ]
    row = [task.replace('_', ' '), f'`{model}`', *means]
    assert f'| {" | ".join(row)} |\n' in RESULTS, name


def test_the_table_of_the_small_preset_is_that_of_the_result():
  expected = []
  for name, run in _result('small').items():
    # Other orders of slots have a table of their own.
    if ',' not in name:
      steps = f'{run["settings"]["steps"]:,}'
      new, predictable, ratio = _means(run)
      cells = (*name.split('-'), steps, new, predictable, ratio)
      expected.append(cells)
  rows = _rows_of_runs(RESULTS)
  without_minutes = [(*row[:3], *row[4:]) for row in rows]
  assert sorted(without_minutes) == sorted(expected)


def test_the_six_rows_of_the_front_page_are_rows_of_that_table():
  rows = _rows_of_runs(README)
  assert len(rows) == 6
  assert set(rows) < set(_rows_of_runs(RESULTS))


def test_the_table_of_orders_is_that_of_the_result():
  runs = _result('small')
  for task, other in (
    ('perfect_recall', 'arrival'),
    ('dynamic_dependency', 'age'),
  ):
    name = f'{task}-introspective'
    ratios = {
      run['settings']['order']: _means(run)[2]
      for run in (runs[name], runs[f'{name}, slots by {other}'])
    }
    steps = f'{runs[name]["settings"]["steps"]:,}'
    row = f'| `{task}` | {steps} | {ratios["age"]} | {ratios["arrival"]} |'
    assert row in RESULTS


def test_the_dreamed_turns_are_as_close_as_the_result_has_them():
  summary = records.summarise(
    _result('small')['rotation-introspective']['evaluation']
  )
  dream, nearest = (
    f'{summary[f"{name}_error"].mean:.3f}' for name in ('dream', 'copy')
  )
  assert re.search(
    rf'^\| squared error.* \| {dream} \| {nearest} \|$', TASKS_README, re.M
  )
  dream, nearest = (
    _in_print(summary[f'{name}_similarity'], 3) for name in ('dream', 'copy')
  )
  assert f'| {dream} | {nearest} |' in TASKS_README


@pytest.mark.parametrize(
  'name, metric',
  [
    ('tasks', 'ratio'),
    ('memories', 'kl_last'),
    ('memories', 'retrieval_ahead'),
    ('ablation', 'ratio'),
    ('wiring', 'negative_bound'),
    ('wiring', 'retrieval_free'),
  ],
)
def test_the_table_of_a_study_is_that_of_its_result(name, metric):
  rows = outcomes.rows(_result(name))
  assert _matrix(rows, metric) in RESULTS


def _matrix(rows, metric):
  """Returns a metric by task and by label, with the longer side downwards."""
  text = tables.columns(list(rows.values()))[outcomes.METRICS[metric]]
  texts = {(row.task, row.label): text(row) for row in rows.values()}
  tasks = list(dict.fromkeys(task for task, _ in texts))
  labels = list(dict.fromkeys(label for _, label in texts))
  lines = [
    ['task', *(f'`{label}`' for label in labels)],
    *(
      [f'`{task}`', *(texts.get((task, label), '') for label in labels)]
      for task in tasks
    ),
  ]
  if len(labels) > len(tasks):
    lines = [list(line) for line in zip(*lines, strict=True)]
    lines[0][0] = ''
  return markdown.table(lines[0], lines[1:])


@pytest.mark.parametrize('name', STUDIES)
def test_the_records_of_a_study_are_of_its_grid(name):
  cells = _result(name)
  grid = grid_file.read(GRIDS / f'{name}.json')
  # A study that goes on has its first records here.
  assert list(cells) == [each for each in grid if each in cells]
  for cell_name, cell in cells.items():
    flags, _ = grid[cell_name]
    recorded = cell['settings']
    values = dict(flags)
    texts = values.pop('set', ())
    assert {name: recorded[name] for name in values} == values
    for text in [texts] if isinstance(texts, str) else texts:
      name, _, value = text.partition('=')
      kept = 'none' if recorded[name] is None else recorded[name]
      if isinstance(kept, list):
        kept = '+'.join(map(str, kept))
      assert str(kept).lower() == value or float(kept) == float(value)
    assert cell['step'] == flags['steps']


@pytest.mark.parametrize('name', STUDIES)
def test_the_tables_of_a_study_are_written_from_its_records(name):
  """Holds what `python experiments/show_table.py` writes."""
  text = tables.document(
    outcomes.rows(_result(name)), purpose.read(GRIDS / f'{name}.json')
  )
  assert text == (FOLDER / f'{name}.md').read_text(), name


def test_results_have_a_commit_and_a_command_but_for_older_ones():
  """Checks every JSON file of the results; studies have both by cell."""
  missing = set()
  for path in FOLDER.rglob('*.json'):
    content = json.loads(path.read_text())
    is_by_cell = path.stem in (*STUDIES, 'small', 'tighter_bounds')
    for each in content.values() if is_by_cell else [content]:
      if not (each.get('commit') and each.get('command')):
        missing.add(path.relative_to(FOLDER).as_posix())
  assert missing <= BEFORE_COMMITS


@pytest.mark.parametrize('model', ['associative', 'introspective'])
def test_the_times_of_two_memories_are_those_of_the_result(model):
  path = FOLDER / 'performance' / f'dynamic_dependency_{model}.json'
  steps = {
    row['replicas']: round(row['step_milliseconds']['median'])
    for row in json.loads(path.read_text())['rows']
  }
  assert f'| `{model}` | {steps[1]} | {steps[3]} |' in RESULTS


def test_the_replicas_that_end_in_a_jump_are_those_of_the_result():
  for model in ('dnc', 'lru'):
    evaluation = _result('small')[f'perfect_recall-{model}']['evaluation']
    pairs = zip(evaluation['kl_predictable'], evaluation['kl_new'], strict=True)
    ratios = [f'{predictable / new:.3f}' for predictable, new in pairs]
    jump = max(ratios)
    first, second = (ratio for ratio in ratios if ratio != jump)
    assert f'`{model}` at {jump} (others {first} and {second})' in ' '.join(
      RESULTS.split()
    )


def test_the_table_of_parameters_is_what_the_models_have():
  counts = {
    (row['frames'], row['model']): f'{row["parameters"]:,}'
    for row in parameter_counts.rows('paper')
  }
  for model in presets.MODELS:
    digits, environments = (
      counts[frames, model] for frames in ('digits', 'environments')
    )
    assert f'| `{model}` | {digits} | {environments} |' in RESULTS


def test_parameters_are_as_alike_as_the_page_says():
  section = RESULTS.split('## Presets\n')[1]
  columns = zip(
    *re.findall(r'(?m)^\| `\w+` \| ([\d,]+) \| ([\d,]+) \|$', section),
    strict=True,
  )
  most = []
  for column, table in zip(
    columns, parameter_counts.TABLE_1.values(), strict=True
  ):
    counts = [_whole(number) for number in column]
    pairs = zip(counts, table.values(), strict=False)
    most.append(max(abs(ours / theirs - 1) for ours, theirs in pairs))
  # Of the small preset the page has the least and the most.
  ends = re.findall(r'([\d,]+) to ([\d,]+) on', ' '.join(section.split()))
  most += [_whole(last) / _whole(first) - 1 for first, last in ends]
  said = re.findall(r'within ([\d.]+)%|([\d.]+)%', section)
  limits = [float(near or apart) / 100 for near, apart in said]
  assert len(most) == len(limits) == 4
  assert all(one <= limit for one, limit in zip(most, limits, strict=True))


def _whole(text):
  return int(text.replace(',', ''))


def _rows_of_runs(document):
  """Returns the rows of a table of task, model, steps, minutes and KL."""
  number = r'([\d.]+ ± [\d.]+)'
  return re.findall(
    rf'^\| `(\w+)` \| `(\w+)` \| ([\d,]+) \| ([\d.]+) \| {number} \| '
    rf'{number} \| {number} \|$',
    document,
    re.MULTILINE,
  )


def _result(name):
  return json.loads((FOLDER / f'{name}.json').read_text())


def _means(run):
  """Returns KL of new and of predictable frames, and their ratio, in print."""
  summary = records.summarise(run['evaluation'])
  places = {'kl_new': 2, 'kl_predictable': 2, 'ratio': 3}
  return [_in_print(summary[name], places[name]) for name in places]


def _in_print(value, places):
  return f'{value.mean:.{places}f} ± {value.standard_error:.{places}f}'
