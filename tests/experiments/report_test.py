"""The page of a report: its numbers, its pictures, and what it refuses."""

import csv
import pathlib
from unittest import mock

import numpy as np
import pytest
from absl.testing import flagsaver
from PIL import Image

import own_records
import program_flags
import report
import slow_cases
from gtmm_jax.records import documents
from read_page import Page
from reporting import elements, markdown_text, pictures, reading, states
from studies import outcomes, results_file, run_records, statistics, tables

RESULTS = pathlib.Path(__file__).resolve().parents[2] / 'experiments/results'
EVIL = '<script>alert("1")</script>'


@pytest.fixture(autouse=True)
def _flags():
  with program_flags.defined(report.define_flags), flagsaver.flagsaver():
    report.FLAGS(['report.py'])
    yield


def _report(*paths, output, grid=None):
  """Makes a report and returns its page."""
  with flagsaver.flagsaver(output=str(output), grid=grid and str(grid)):
    report.main(['report.py', *map(str, paths)])
  page = Page(output / 'index.html')
  page.require_addresses()
  return page


def _table(output):
  with (output / 'table.csv').open(newline='') as file:
    return list(csv.DictReader(file))


def _png(file, color=0):
  file.parent.mkdir(parents=True, exist_ok=True)
  Image.new('L', (30, 20), color).save(file)


@pytest.fixture
def partial(tmp_path):
  """Makes a study with two runs in its file, and others in all states."""
  folder = tmp_path / 'own'
  write = own_records.write_run
  write(folder / 'navigation-dnc-seed=0', 'dnc', [100.0, 120.0])
  write(
    folder / 'navigation-dnc-seed=1',
    'dnc',
    [110.0, None],
    seed=1,
    failed_at=[None, 200],
  )
  write(folder / 'navigation-ntm', 'ntm', [300.0, 310.0], note=EVIL)
  write(folder / 'navigation-lru', 'lru', [1.0, 2.0], is_finished=False)
  write(folder / 'navigation-vrnn', 'vrnn', [1.0, 2.0])
  (folder / 'navigation-vrnn' / 'evaluation.json').write_text('{"step": 300')
  own = folder / 'navigation-ntm'
  record = run_records.record(own, 'navigation-ntm')
  results_file.write(folder / 'table.json', {own.name: record})
  (folder / 'navigation-x.log').write_text(
    f'compiling ...\nrun.py: --model={EVIL} is not known.\n\n'
  )
  for name in ('episodes', 'memory', 'results'):
    _png(own / 'figures' / f'{name}.png')
  _png(own / 'dreams' / 'observe=0' / 'dreams.png')
  (own / 'figures' / 'torn.png').write_bytes(b'\x89PNG\r\n\x1a\n')
  return folder


@pytest.mark.parametrize(
  'name', slow_cases.but_for(['rates'], ['rates', 'tasks'])
)
def test_the_numbers_of_a_committed_study_are_its_own(tmp_path, name):
  page = _report(RESULTS / f'{name}.json', output=tmp_path)
  rows = outcomes.rows(results_file.read(RESULTS / f'{name}.json'))
  columns = tables.columns(list(rows.values()))
  assert page.table == [
    ['row', 'task', 'model', *columns],
    *(
      [
        row.label,
        row.task,
        row.model,
        *(tell(row) for tell in columns.values()),
      ]
      for row in rows.values()
    ),
  ]
  lines = _table(tmp_path)
  for row in rows.values():
    own = {each['metric']: each for each in lines if each['row'] == row.name}
    for metric, values in row.values.items():
      mean = statistics.mean(values)
      assert (metric in own) == (mean is not None)
      if mean is None:
        continue
      line = own[metric]
      assert float(line['mean']) == mean.mean and int(line['n']) == mean.n
      ends = tuple(float(line[end]) for end in ('low', 'high') if line[end])
      assert ends == (mean.interval or ())
      found = np.array(line['values'].split(), float)
      np.testing.assert_array_equal(found, values)
  # Dots of each task stand in for curves, whose workdirs are not here.
  tasks = {row.task for row in rows.values()}
  files = list((tmp_path / 'pictures').iterdir())
  assert len(files) == 2 * len(tasks)
  assert all(b'<svg' in each.read_bytes() for each in files)
  if name == 'rates':
    assert 'Chosen: learning_rate' in page.text


def test_a_partial_study_tells_what_failed_and_why(partial, tmp_path):
  page = _report(partial, output=tmp_path / 'out')
  told = page.text
  assert '6 runs: 3 finished, 1 unfinished, 1 damaged, 1 failed.' in told
  for sentence in (
    f'navigation-x failed: run.py: --model={EVIL} is not known. (no step',
    'navigation-lru unfinished: it runs, or was killed; step 200 of 300 at ',
    'evaluation.json is not a JSON object',
    'navigation-dnc: replica 3 is not finite from step 200, and left out',
    'torn.png is not shown: ',
    f'note: {EVIL}',
  ):
    assert sentence in told, sentence
  # Both seeds are one row.
  assert [line[0] for line in page.table] == ['row', 'ntm', 'dnc']
  assert page.table[2][4] == '110.0 [85.2, 134.8]'
  assert [each for each in page.table[2] if each == '3 of 4']
  sources = {each for each in page.addresses if each.startswith('pictures/')}
  assert sum(each.endswith('.png') for each in sources) == 4
  # Three panels, dots of the ratio and of the bound.
  assert sum(each.endswith('.svg') for each in sources) == 3


def test_nothing_that_is_read_becomes_a_part_of_the_page(partial, tmp_path):
  page = _report(partial, output=tmp_path / 'out')
  (script,) = page.scripts
  assert 'alert' not in script and page.elements.count('script') == 1
  text = (tmp_path / 'out' / 'index.html').read_text()
  assert '<script>alert' not in text and '&lt;script&gt;alert(' in text
  hostile = {'task': EVIL, 'model': '"><img src=x onerror=alert(1)>', 'seed': 0}
  record = own_records.record('navigation', 'dnc', [1.0, 2.0])
  file = tmp_path / f'{EVIL.replace("/", "")}.json'
  own = {**record, 'settings': hostile, 'commit': EVIL, 'row': '=1+1`**|'}
  own['replicas'][EVIL] = np.array([1.0, 2.0])
  results_file.write(file, documents.as_json({'-->x': own, '&amp;': record}))
  page = _report(file, output=tmp_path / 'hostile')
  assert page.scripts == [script]
  assert '"><img src=x onerror=alert(1)>' in page.text and EVIL in page.text
  # A spreadsheet takes what begins with '=' for a formula.
  assert {line['row'][:2] for line in _table(tmp_path / 'hostile')} == {
    "'=",
    'na',
  }


def test_what_is_read_stays_as_it_is(partial, tmp_path):
  def state():
    return {
      each: (each.stat().st_mtime_ns, each.is_file() and each.read_bytes())
      for each in tmp_path.rglob('*')
      if 'report' not in each.parts and each != partial
    }

  before = state()
  with flagsaver.flagsaver(output=None):
    report.main(['report.py', str(partial)])
  assert state() == before
  made = partial / 'report'
  assert {each.name for each in made.iterdir()} == {
    'index.html',
    'table.csv',
    'pictures',
  }
  # Pictures of an earlier report go, files of others stay.
  old, other = (made / 'pictures' / name for name in ('run-99-1.png', 'a.png'))
  for file in (old, other):
    file.write_bytes(b'')
  again = _report(partial, output=made)
  assert not old.exists() and other.exists()
  # The report is none of the runs.
  assert '6 runs' in again.text


def test_a_file_and_its_folder_are_one_study(partial, tmp_path):
  file = (partial / 'table.json').rename(tmp_path / 'kept.json')
  page = _report(partial, file, output=tmp_path / 'out')
  assert page.ids.count('study-1') == 1 and 'study-2' not in page.ids
  assert len(page.table) == 3
  alone = _report(file, output=tmp_path / 'alone')
  assert len(alone.table) == 2 and '1 run: 1 finished.' in alone.text
  other = own_records.record('rotation', 'dnc', [1.0])
  results_file.write(tmp_path / 'b.json', documents.as_json({'b': other}))
  both = _report(partial, tmp_path / 'b.json', output=tmp_path / 'both')
  assert 'study-2' in both.ids and both.table[0][3] == 'study'


def test_a_run_that_went_on_counts_more_than_its_record(partial, tmp_path):
  own = partial / 'navigation-ntm'
  own_records.write_run(own, 'ntm', [500.0, 500.0])
  evaluation = documents.read_document(own / 'evaluation.json')
  documents.replace_document(
    own / 'evaluation.json', {**evaluation, 'episodes': 10}
  )
  page = _report(partial, output=tmp_path / 'out')
  assert page.table[1][4].startswith('500.0')


def test_one_run_has_a_page(partial, tmp_path):
  page = _report(partial / 'navigation-ntm', output=tmp_path / 'out')
  assert len(page.table) == 2 and 'Settings of all runs' not in page.text
  waiting = _report(partial / 'navigation-lru', output=tmp_path / 'none')
  assert 'No run has finished.' in waiting.text and not waiting.table
  assert len(_table(tmp_path / 'none')) == 0


def test_cells_of_the_grid_that_wait_are_counted(partial, tmp_path):
  grid = tmp_path / 'grid.json'
  block = {'flags': {'task': 'navigation', 'seed': 0}}
  block['over'] = {'model': ['ntm', 'gru']}
  documents.replace_document(
    grid,
    {
      'cells': [
        {
          'flags': {'seed': 0},
          'over': {'task': ['navigation'], **block['over']},
        }
      ]
    },
  )
  page = _report(partial, output=tmp_path / 'out', grid=grid)
  assert '7 runs: 3 finished, 1 waiting' in page.text
  assert 'navigation-gru waiting' in page.text


def _line(*words):
  with (
    mock.patch.object(report.sys, 'argv', ['report.py']),
    pytest.raises(SystemExit) as ended,
  ):
    report.main(['report.py', *map(str, words)])
  return ended.value.code


@pytest.mark.parametrize(
  ('word', 'said'),
  [
    (None, 'no folder is named'),
    ('missing', 'is not there; name a folder'),
    ('empty', 'has no runs'),
    ('file.json', 'not a results file'),
    ('odd.json', 'not a results file'),
  ],
)
def test_mistakes_are_told_in_one_line(tmp_path, capsys, word, said):
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'file.json').write_text('[]')
  odd = own_records.record('navigation', 'dnc', [1.0], replicas={})
  odd['replicas'] = {'negative_bound': 'none'}
  documents.replace_document(
    tmp_path / 'odd.json', documents.as_json({'a': odd})
  )
  before = sorted(tmp_path.rglob('*'))
  assert _line(*([tmp_path / word] if word else [])) == 2
  out, err = capsys.readouterr()
  assert (out, err.count('\n')) == ('', 1) and said in err, err
  assert err.startswith('report.py: ')
  assert sorted(tmp_path.rglob('*')) == before


def test_an_output_that_is_a_file_is_refused(partial, tmp_path, capsys):
  (tmp_path / 'file').write_text('')
  with flagsaver.flagsaver(output=str(tmp_path / 'file')):
    assert _line(partial) == 2
  assert 'is a file; name a folder' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('last', 'word'),
  [
    ('run.py: --model=x is not known.', 'failed'),
    ('gtmm-run: no space is left.', 'failed'),
    ('jax.errors.OutOfMemoryError: 3 GB', 'failed'),
    ('MemoryError', 'failed'),
    ('\x1b[31mrun.py: SIGTERM: the same command goes on.\x1b[0m', 'stopped'),
    ('step 200 of 300  negative bound 3.0', 'unfinished'),
    ('data     the published MNIST', 'unfinished'),
  ],
)
def test_the_last_line_of_a_log_tells_how_a_run_ended(tmp_path, last, word):
  log = tmp_path / 'a.log'
  log.write_text(f'{"x" * 70_000}\n{last}\n  \n')
  state = states.of_unfinished({}, tmp_path / 'a', log)
  assert state.word == word
  assert states._TERMINAL.sub('', last) in state.why
  assert '\x1b' not in state.why


def test_a_run_that_has_ended_without_an_evaluation_was_stopped(tmp_path):
  config = {'starts': [{'ended': None}, {'ended': '2026-01-02'}]}
  state = states.of_unfinished(config, tmp_path, tmp_path / 'a.log')
  assert state == ('stopped', 'ended at 2026-01-02, no step was reported')


def test_a_figure_has_at_most_seven_curves():
  def rows(*names):
    runs = {}
    for name in names:
      model = name.rpartition('-')[2]
      runs[name] = own_records.record('rotation', model, [1.0], row=name)
    return list(outcomes.rows(runs).values())

  def names(groups):
    return [[row.label for row in group] for group in groups]

  models = [f'm{index}' for index in range(5)]
  several = [f'rotation-rate={rate}-{m}' for rate in (1, 2) for m in models]
  assert names(pictures.together(rows(*several))) == [
    [f'rate={rate}-{m}' for m in models] for rate in (1, 2)
  ]
  one = rows(*(f'rotation-size={size}-dnc' for size in range(9)))
  assert [len(each) for each in pictures.together(one)] == [7, 2]
  assert pictures.together([]) == []


def test_the_seed_is_no_part_of_a_row():
  settings = {'task': 'navigation', 'model': 'dnc', 'preset': 'small'}
  config = {'settings': {**settings, 'seed': 3}}
  for name, row in (
    ('navigation-dnc-small-3', 'navigation-dnc'),
    ('navigation-dnc-small-3-slots=9', 'navigation-dnc-slots=9'),
    ('navigation-dnc-seed=3', 'navigation-dnc'),
    ('seed=3-navigation', 'navigation'),
    ('mine', 'mine'),
  ):
    assert reading._row_of(name, config) == row


def test_what_is_not_html_is_escaped():
  made = elements.tag('p', '<b>\x00', elements.Html('<i>'), None, title='"\'')
  assert (
    made == '<p title="&quot;&#x27;">&lt;b&gt;\N{REPLACEMENT CHARACTER}<i></p>'
  )
  text = markdown_text.blocks(
    ['## a<b', 'x `<*` **y** *z*', '| a | b |\n| --- | --- |\n| 1 | <2 |']
  )
  assert text == (
    '<h2>a&lt;b</h2><p>x <code>&lt;*</code> <strong>y</strong> <em>z</em></p>'
    '<div class="wide"><table><thead><tr><th scope="col">a</th>'
    '<th scope="col">b</th></tr></thead><tbody><tr><th scope="row">1</th>'
    '<td>&lt;2</td></tr>'
    '</tbody></table></div>'
  )
