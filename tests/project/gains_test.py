"""What a memory can gain on a task is what the README of the tasks says."""

import math
import pathlib
import re

import jax
import numpy as np
import pytest

import numbered_images
from gtmm_jax.tasks import DynamicDependency, Navigation

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / 'gtmm_jax' / 'tasks' / 'README.md').read_text()
# So many that a share is within 0.003 of its mean; it is printed to 0.01.
EPISODES = 10_000


def _sources(task):
  """Draws the sources of episodes, int [N, T]; -1 for new frames."""
  images = numbered_images.make(2_000, labels=np.arange(2_000) % 10)
  sample = jax.jit(jax.vmap(lambda key: task.sample(key, images).source))
  return np.asarray(sample(jax.random.split(jax.random.key(0), EPISODES)))


def _shares(row, pattern):
  """Returns the shares that a pattern finds in the row of a task."""
  (line,) = re.findall(rf'^\| `{row}` \|.*$', README, re.MULTILINE)
  (found,) = re.findall(pattern, line)
  return [float(number) / (1 if '.' in number else 100) for number in found]


@pytest.mark.parametrize('position, length', [(0, 25), (1, 20)])
def test_revisits_are_as_many_as_the_table_has_them(position, length):
  source = _sources(Navigation(rows=4, columns=4, length=length))
  revisits = source >= 0
  steps_back = revisits & (source == np.arange(length) - 2)
  share = steps_back.sum() / revisits.sum()
  other = r'%[^|]*?\((\d+)% with T = 20\)'
  said = _shares('navigation', rf'(\d+){other} \|')
  assert abs(revisits.mean() - said[position]) < 0.009
  said = _shares('navigation', rf'(\d+){other} step straight back')
  assert abs(share - said[position]) < 0.009
  # The frame before the last costs nothing when it comes back, others all.
  said = _shares('navigation', r'ratio of ([\d.]+) \(([\d.]+) with T = 20\)')
  assert abs(1 - share - said[position]) < 0.009


@pytest.mark.parametrize('position, pre_recall', [(0, 20), (1, 10)])
def test_frames_that_come_again_at_once_are_as_many(position, pre_recall):
  source = _sources(DynamicDependency(pre_recall=pre_recall, recall=5))
  shown = np.where(source >= 0, source, np.arange(pre_recall + 5))
  share = (shown[:, pre_recall:] == shown[:, pre_recall - 1 : -1]).mean()
  pattern = r'(\d+)% of the predictable frames \((\d+)% with l = 10\)'
  assert abs(share - _shares('dynamic_dependency', pattern)[position]) < 0.009


def test_nats_of_a_position_in_time_are_logarithms():
  # Of ten classes two are left; then one of these.
  assert f'ln 5 = {math.log(10 / 2):.3f}' in README
  assert f'ln 2 = {math.log(2):.3f}' in README
