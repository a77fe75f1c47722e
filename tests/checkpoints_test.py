"""Checkpoints: what was saved comes back, or an error names what did not."""

import errno
import re
import shutil
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from gtmm_jax import checkpoints


class State(NamedTuple):
  step: Any
  params: Any
  optimizer: Any


def _state(seed, width=5):
  rng = np.random.default_rng(seed)
  params = {
    'dense': {'kernel': rng.normal(size=(3, width)).astype(np.float32)},
    'bias': rng.normal(size=(3,)).astype(np.float32),
  }
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
  moments = jax.tree.map(np.asarray, optimizer.init(params))
  return State(np.full(3, seed, np.int32), params, moments)


def _saved(directory, steps):
  opened = checkpoints.open_directory(directory)
  for step in steps:
    checkpoints.save(opened, step, _state(step))
  checkpoints.close(opened)


def _restored(directory, template):
  opened = checkpoints.open_directory(directory)
  try:
    restored = checkpoints.restore_latest(opened, template)
    return restored, opened.steps()
  finally:
    checkpoints.close(opened)


def _damage(directory, step):
  """Overwrites every data file of one checkpoint."""
  files = [p for p in (directory / str(step)).rglob('d/*') if p.is_file()]
  assert files
  for path in files:
    path.write_bytes(b'damaged')


def test_the_latest_of_the_two_kept_comes_back_bit_for_bit(tmp_path):
  _saved(tmp_path, [1, 2, 3])
  template = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), _state(0)
  )
  restored, steps = _restored(tmp_path, template)
  assert (restored.step, restored.damaged, steps) == (3, {}, [3, 2])
  assert jax.tree.structure(restored.tree) == jax.tree.structure(_state(3))
  jax.tree.map(np.testing.assert_array_equal, restored.tree, _state(3))


def test_an_empty_folder_has_none(tmp_path):
  assert _restored(tmp_path / 'new', _state(0))[0] is None


@pytest.mark.parametrize(
  'template, leaf',
  [
    (_state(0, width=6), 'params.dense.kernel'),
    (_state(0)._replace(params={'bias': np.zeros(3, np.float32)}), 'dense'),
    (_state(0)._replace(step=np.zeros(3, np.float32)), 'step'),
    (
      _state(0)._replace(
        params={**_state(0).params, 'scale': np.zeros(3, np.float32)}
      ),
      'params.scale',
    ),
  ],
  ids=['shape', 'missing', 'dtype', 'additional'],
)
def test_another_tree_is_refused_and_the_leaf_named(tmp_path, template, leaf):
  _saved(tmp_path, [1])
  with pytest.raises(checkpoints.CheckpointMismatch, match=leaf):
    _restored(tmp_path, template)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
  _saved(tmp_path, [1, 2])
  _damage(tmp_path, 2)
  restored, steps = _restored(tmp_path, _state(0))
  assert (restored.step, [*restored.damaged], steps) == (1, [2], [1])
  assert (tmp_path / 'unreadable-2').is_dir()
  jax.tree.map(np.testing.assert_array_equal, restored.tree, _state(1))
  _saved(tmp_path, [2])
  assert _restored(tmp_path, _state(0))[0].step == 2


def _flip(path, bit):
  data = bytearray(path.read_bytes())
  data[bit // 8] ^= 1 << bit % 8
  path.write_bytes(bytes(data))


@pytest.mark.parametrize('flips', [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_caught_or_changes_nothing(tmp_path, flips):
  # Large enough for files of their own, which orbax keeps no checksum of.
  wide = _state(2, width=3000)
  opened = checkpoints.open_directory(tmp_path / 'a')
  checkpoints.save(opened, 1, wide, {'at': 1})
  checkpoints.save(opened, 2, wide, {'at': 2})
  checkpoints.close(opened)
  files = [p for p in (tmp_path / 'a' / '2').rglob('*') if p.is_file()]
  rng = np.random.default_rng(0)
  reasons = []
  for number, path in enumerate(files):
    for bit in rng.integers(0, 8 * path.stat().st_size, flips):
      folder = tmp_path / f'{number}-{bit}'
      shutil.copytree(tmp_path / 'a', folder)
      _flip(folder / path.relative_to(tmp_path / 'a'), int(bit))
      restored, _ = _restored(folder, wide)
      jax.tree.map(np.testing.assert_array_equal, restored.tree, wide)
      if restored.step == 1:
        assert [*restored.damaged] == [2]
        reasons.append(restored.damaged[2])
      assert restored.notes in ({'at': restored.step}, {})
      shutil.rmtree(folder)
  # Whatever orbax finds by itself, it does not find these.
  assert any(re.match('leaf .* is not as it was written', r) for r in reasons)


def test_a_flipped_bit_in_an_array_names_the_leaf(tmp_path):
  state = _state(1, width=3000)
  opened = checkpoints.open_directory(tmp_path)
  checkpoints.save(opened, 1, state)
  checkpoints.save(opened, 2, state)
  checkpoints.close(opened)
  # Random numbers fill the largest file; nothing else fills one so large.
  path = max(
    (p for p in (tmp_path / '2').rglob('d/*')), key=lambda p: p.stat().st_size
  )
  _flip(path, 8 * 10_000)
  restored, _ = _restored(tmp_path, state)
  assert restored.step == 1
  leaf = 'leaf params.dense.kernel is not as it was written'
  assert restored.damaged == {2: leaf}


def test_checkpoints_without_checksums_are_restored(tmp_path):
  opened = checkpoints.open_directory(tmp_path)
  arguments = checkpoints.directory.ocp.args.StandardSave(_state(1))
  opened.manager.save(1, args=arguments)
  checkpoints.close(opened)
  restored, _ = _restored(tmp_path, _state(0))
  assert (restored.step, restored.notes) == (1, {})
  jax.tree.map(np.testing.assert_array_equal, restored.tree, _state(1))


def test_a_checkpoint_that_is_not_wanted_gives_way_to_one_that_is(tmp_path):
  opened = checkpoints.open_directory(tmp_path)
  for step in (1, 2):
    checkpoints.save(opened, step, _state(step), {'lines': step})
  checkpoints.close(opened)
  opened = checkpoints.open_directory(tmp_path)
  of_none = checkpoints.restore_latest(opened, _state(0), lambda *_: False)
  assert of_none is None and opened.steps() == [2, 1]
  restored = checkpoints.restore_latest(
    opened, _state(0), lambda step, notes: notes['lines'] == step == 1
  )
  checkpoints.close(opened)
  assert (restored.step, restored.unwanted) == (1, [2])
  assert (tmp_path / 'unwanted-2').is_dir()


@pytest.mark.parametrize('content', [None, b'', b'{}'])
@pytest.mark.parametrize(
  'name', ['_METADATA', 'manifest.ocdbt', '_CHECKPOINT_METADATA']
)
def test_any_file_that_is_lost_or_cut_costs_one_checkpoint_at_most(
  tmp_path, name, content
):
  _saved(tmp_path, [1, 2])
  paths = list((tmp_path / '2').rglob(name))
  assert paths
  for path in paths:
    if content is None:
      path.unlink()
    else:
      path.write_bytes(content)
  restored, _ = _restored(tmp_path, _state(0))
  assert restored.step in (1, 2)
  jax.tree.map(
    np.testing.assert_array_equal, restored.tree, _state(restored.step)
  )


@pytest.mark.parametrize(
  'error', [MemoryError(), OSError(errno.EMFILE, 'Too many open files')]
)
def test_want_of_memory_or_files_sets_no_checkpoint_aside(
  tmp_path, monkeypatch, error
):
  _saved(tmp_path, [1, 2])

  def want(*_, **__):
    raise error

  with monkeypatch.context() as patch:
    patch.setattr(checkpoints.directory.ocp.CheckpointManager, 'restore', want)
    with pytest.raises(type(error)):
      _restored(tmp_path, _state(0))
  restored, steps = _restored(tmp_path, _state(0))
  assert (restored.step, steps) == (2, [2, 1])


def test_nothing_readable_is_an_error_that_keeps_the_files(tmp_path):
  _saved(tmp_path, [1, 2])
  _damage(tmp_path, 1)
  _damage(tmp_path, 2)
  with pytest.raises(
    checkpoints.CheckpointMismatch, match='of step 2: .*of step 1: '
  ):
    _restored(tmp_path, _state(0))
  assert (tmp_path / '1').is_dir() and (tmp_path / '2').is_dir()


def test_what_was_being_written_when_the_program_ended_is_not_restored(
  tmp_path,
):
  _saved(tmp_path, [1])
  partial = tmp_path / '2.orbax-checkpoint-tmp-1234' / 'default'
  partial.mkdir(parents=True)
  (partial / 'manifest.ocdbt').write_bytes(b'')
  restored, steps = _restored(tmp_path, _state(0))
  assert (restored.step, steps) == (1, [1])
