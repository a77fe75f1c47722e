"""The numbers that random keys are folded with."""

import ast
import itertools
import pathlib

import jax
import numpy as np
import pytest

from gtmm_jax import folds
from gtmm_jax.runs import settings

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# Every number that a key of each kind is folded with.
_USES = {
  'seed': (range(settings.MOST_REPLICAS), folds.WINDOWS),
  'replica': (
    folds.INIT,
    range(1, 1 + settings.about()['steps'][1].most),
    folds.DREAMS,
    folds.HELD_OUT,
    folds.DRAWING,
    range(folds.EVALUATION, 2**32),
  ),
  'batch': (range(2), folds.WITHOUT_REPEATS, folds.TIGHTER_BOUNDS),
}


def test_uses_of_one_key_have_numbers_of_their_own():
  tabled = {value for name, value in vars(folds).items() if name[0].isupper()}
  for uses in _USES.values():
    spans = [
      use if isinstance(use, range) else range(use, use + 1) for use in uses
    ]
    tabled -= {span.start for span in spans}
    for one, other in itertools.pairwise(sorted(spans, key=lambda s: s.start)):
      assert 0 <= one.start < one.stop <= other.start < other.stop <= 2**32
  assert not tabled


def test_numbers_are_in_the_table_alone():
  for folder in ('gtmm_jax', 'experiments'):
    for path in (_ROOT / folder).rglob('*.py'):
      for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        # A call of fold_in, or of functools.partial on it.
        if isinstance(node, ast.Call) and any(
          getattr(each, 'attr', None) == 'fold_in'
          for each in (node.func, *node.args[:1])
        ):
          numbers = {
            part.value
            for argument in [*node.args[1:], *node.keywords]
            for part in ast.walk(argument)
            if isinstance(part, ast.Constant)
          }
          assert not numbers, f'{path.relative_to(_ROOT)}:{node.lineno}'


@pytest.mark.parametrize('generator', ['threefry2x32', 'rbg', 'unsafe_rbg'])
@pytest.mark.parametrize('partitionable', [True, False])
def test_children_of_a_batch_differ(generator, partitionable):
  with jax.threefry_partitionable(partitionable):
    key = jax.random.key(5, impl=generator)
    children = [
      *jax.random.split(key),
      jax.random.fold_in(key, folds.WITHOUT_REPEATS),
    ]
  data = [np.asarray(jax.random.key_data(child)) for child in children]
  for one, other in itertools.combinations(data, 2):
    assert (one != other).any()
