"""The benchmark of the memory cores, with and without PyTorch."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slow_cases
from benchmarking import cores, tables
from benchmarking.pytorch import dnc
from gtmm_jax.memory import derivatives

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / 'experiments' / 'benchmark.py'


def _benchmark(folder: pathlib.Path, *flags: str):
  """Runs the program where PyTorch cannot be imported, installed or not."""
  without = folder / 'without'
  without.mkdir()
  for name in ('torch', 'dnc'):
    (without / f'{name}.py').write_text(f'raise ImportError("no {name} here")')
  paths = os.pathsep.join(map(str, (without, _ROOT)))
  return subprocess.run(
    [sys.executable, str(_PROGRAM), '--json=numbers.json', *flags],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': paths, 'COLUMNS': '80'},
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.fixture(scope='module')
def alone(tmp_path_factory: pytest.TempPathFactory):
  """Runs the program without PyTorch; returns what it printed and wrote."""
  folder = tmp_path_factory.mktemp('alone')
  result = _benchmark(
    folder, '--cores', '--sizes=4x3x2,4x3x2', '--seconds=0.01'
  )
  assert result.returncode == 0, result.stderr
  assert result.stderr == ''
  return result.stdout, json.loads((folder / 'numbers.json').read_text())


@pytest.mark.slow
def test_without_pytorch_the_cores_are_timed_and_the_extra_is_named(alone):
  printed, content = alone
  assert 'derivatives: written out' in printed
  assert 'no dnc here' in printed
  assert 'pip install "gtmm_jax[benchmark]"' in printed
  cores = ['lstm', 'introspective', 'associative', 'ntm', 'lru', 'dnc']
  cores += ['transformer', 'ssm']
  assert [row['core'] for row in content['rows']] == cores
  for row in content['rows']:
    spread = row['milliseconds']
    assert 0 < spread['min'] <= spread['lower_quartile'] <= spread['median']
    assert spread['median'] <= spread['upper_quartile']
    assert row['rounds'] >= 5
    assert row['compile_seconds'] > 0
    assert row['temporary_bytes'] > 1000
    assert row['threads'] is None
    assert row['pytorch_ratio'] is None
    sizes = [row[name] for name in ('slots', 'word_size', 'read_heads')]
    assert sizes == [4, 3, 2]


@pytest.mark.slow
def test_json_says_where_and_of_what(alone):
  _, content = alone
  assert content['settings'] == {
    'frames': 25,
    'batch_size': 10,
    'input_size': 32,
    'controller_size': 128,
    'derivatives': 'written out',
  }
  assert content['seconds'] == 0.01
  assert content['versions']['jax'] == jax.__version__
  assert 'torch' not in content['versions']
  assert content['device']['platform'] == 'cpu'
  assert content['device']['cores'] == os.cpu_count()


@pytest.mark.slow
def test_table_has_a_line_for_each_row_and_fits(alone):
  printed, content = alone
  lines = [line for line in printed.splitlines() if line[:1] in ('│', '┃')]
  assert max(map(len, lines)) <= 80
  shown = [line.strip('│').split('│') for line in lines if line[0] == '│']
  assert len(shown) == len(content['rows'])
  for cells, row in zip(shown, content['rows'], strict=True):
    assert cells[1].strip() == row['core']
    median = float(cells[2].replace(',', ''))
    assert median == pytest.approx(row['milliseconds']['median'], abs=0.06)
  assert [cells[0].strip() for cells in shown] == ['4x3x2', *[''] * 5]


def test_default_sizes_let_one_size_grow_at_a_time():
  first, *others = cores.growth()
  assert first == (25, 32, 5)
  assert len({first, *others}) == len(others) + 1
  grown = {name: [getattr(first, name)] for name in first._fields}
  for sizes in others:
    differing = [
      name
      for name in first._fields
      if getattr(sizes, name) != getattr(first, name)
    ]
    assert len(differing) == 1
    grown[differing[0]].append(getattr(sizes, differing[0]))
  assert sorted(grown['slots']) == [25, 64, 128, 256]
  assert sorted(grown['word_size']) == [16, 32, 64, 128]
  assert sorted(grown['read_heads']) == [1, 2, 5, 8]


def _squares_over_time(core, variables, inputs):
  carry = core.initialize_carry(jax.random.key(0), inputs.shape[1:])

  def step(carry, each):
    return core.apply(variables, carry, each)

  return (jax.lax.scan(step, carry, inputs)[1] ** 2).sum()


# Each compiles for seconds, and what a core does is told elsewhere.
@pytest.mark.parametrize(
  'name', slow_cases.but_for(['lstm'], ['lstm', 'introspective'])
)
def test_program_of_a_core_returns_the_gradients_of_a_loop_over_time(name):
  sizes = cores.Sizes(3, 4, 2)
  core = cores._cores(sizes)[name]
  program = cores._jax_pass(name, core, sizes)
  width = sizes.word_size if name == 'introspective' else cores.INPUT_SIZE
  shape = (cores.FRAMES, cores.BATCH_SIZE, width)
  key = jax.random.key(0)
  inputs = jax.random.normal(key, shape)
  first = core.initialize_carry(key, shape[1:])
  variables = jax.jit(core.init)(key, first, inputs[0])
  step = jax.jit(core.apply)
  carry, total = first, 0.0
  for each in inputs:
    carry, context = step(variables, carry, each)
    total += float(np.square(np.asarray(context, np.float64)).sum())
  loss, (of_parameters, of_inputs) = program.run()
  assert float(loss) == pytest.approx(total, rel=1e-5)
  assert of_inputs.shape == shape
  assert jax.tree.map(jnp.shape, of_parameters) == jax.tree.map(
    jnp.shape, variables
  )
  if name == 'lstm':
    expected = jax.jit(
      jax.grad(_squares_over_time, argnums=(1, 2)), static_argnums=0
    )(core, variables, inputs)
    jax.tree.map(
      lambda one, other: np.testing.assert_allclose(
        one, other, rtol=1e-3, atol=1e-4
      ),
      (of_parameters, of_inputs),
      expected,
    )
  # No part of a core is left out of what is timed.
  for leaf in jax.tree.leaves(of_parameters):
    assert np.any(np.asarray(leaf) != 0), name
  assert np.any(np.asarray(of_inputs) != 0)


def test_sizes_are_measured_in_turn_and_the_lstm_once(
  monkeypatch: pytest.MonkeyPatch,
):
  built, modes = [], []

  def program(name, core, sizes):
    built.append((name, getattr(core, 'slots', None)))
    modes.append(derivatives.are_written_out())
    return cores.Pass(name, lambda: None)

  monkeypatch.setattr(cores, '_jax_pass', program)
  monkeypatch.setattr(
    cores,
    '_pytorch_passes',
    lambda sizes, _: [cores.Pass('pytorch dnc', lambda: None, 1)],
  )
  sizes = [cores.Sizes(4, 3, 2), cores.Sizes(6, 5, 1)]
  measured = cores.measure(sizes, 1e-6, pytorch=('torch', 'dnc'))
  first = next(measured)
  # What is measured is told before the next size is begun.
  assert {slots for _, slots in built} == {None, 4}
  (second,) = measured
  names = ['lstm', 'introspective', 'associative', 'ntm', 'lru', 'dnc']
  names += ['transformer', 'ssm', 'pytorch dnc']
  assert [row['core'] for row in first] == names
  with_memory = [name for name in names if name not in ('lstm', 'ssm')]
  assert [row['core'] for row in second] == with_memory
  for rows, size in zip((first, second), sizes, strict=True):
    for row in rows:
      assert [row[name] for name in size._fields] == list(size)
  assert all(modes)
  modes.clear()
  alone = cores.measure(sizes[:1], 1e-6, pytorch='not here', is_plain=True)
  assert [row['core'] for row in next(alone)] == names[:-1]
  assert not any(modes)


def test_ratio_is_to_the_number_of_threads_that_suits_pytorch():
  passes = [
    cores.Pass('dnc', print, None, 1.0, 2_500_000),
    cores.Pass('pytorch dnc', print, 1),
    cores.Pass('pytorch dnc', print, 2),
  ]
  milliseconds = np.array([[10.0, 60.0, 80.0]]) + np.array([[0], [2], [-2]])
  rows = cores.as_rows(cores.Sizes(7, 8, 9), passes, milliseconds / 1e3)
  ratios = [row['pytorch_ratio'] for row in rows]
  assert ratios == pytest.approx([6.0, 1.0, 0.75])
  assert [row['threads'] for row in rows] == [None, 1, 2]
  spread = [rows[0]['milliseconds'][n] for n in ('median', 'min')]
  assert spread == pytest.approx([10, 8])
  assert rows[0]['milliseconds']['upper_quartile'] == pytest.approx(11)
  assert (rows[0]['slots'], rows[0]['rounds']) == (7, 3)
  json.dumps(rows, allow_nan=False)
  table = tables.cores(rows)
  cells = [list(column.cells) for column in table.columns]
  assert cells[0] == ['7x8x9', '']
  assert cells[1] == ['dnc', 'pytorch dnc']
  assert cells[4] == ['6.0x', '1.0x']
  assert cells[5] == ['2.5', '-']


def test_pytorch_that_is_not_there_is_explained(
  monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.setitem(sys.modules, 'dnc', None)
  told = dnc.load()
  assert isinstance(told, str)
  assert 'gtmm_jax[benchmark]' in told
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  assert 'on gpu' in dnc.load()


def test_pytorch_passes_forward_and_backward():
  torch = pytest.importorskip('torch', reason='PyTorch is not installed')
  pytest.importorskip('dnc', reason='the package dnc is not installed')
  loaded = dnc.load()
  run = dnc.forward_backward(
    loaded, (2, 4, 6), slots=5, word_size=3, read_heads=2, controller_size=8
  )
  # The package draws the first state of its LSTM for each pass.
  torch.manual_seed(1)
  of_inputs, *of_parameters = run(1)
  assert torch.get_num_threads() == 1
  assert of_inputs.shape == (2, 4, 6)
  # LSTM: 6 + 2 x 3 inputs, 8 units; the interface, 2 x 3 + 3 x 3 + 5 x 2 + 3.
  shapes = {tuple(each.shape) for each in of_parameters}
  assert {(32, 12), (32, 8), (28, 8), (6, 14)} <= shapes
  for gradient in (of_inputs, *of_parameters):
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0
  torch.manual_seed(1)
  again = run(2)
  assert torch.get_num_threads() == 2
  torch.testing.assert_close(again[0], of_inputs)
