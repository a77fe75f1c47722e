"""A small classifier of digits, which judges generated digits.

Two hidden layers, trained on shifted copies of the models' training digits. Its
accuracy on the digits of the split that is evaluated is reported beside each
result that depends on it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

Array = jax.Array

_HIDDEN = (256, 128)
_BATCH, _STEPS, _RATE = 128, 1_500, 1e-3
# Largest shift in pixels, in both directions.
_SHIFT = 2


class Classifier(nn.Module):
  """Network from frames to logits of classes.

  Attributes:
    classes: number of classes.
  """

  classes: int

  @nn.compact
  def __call__(self, frames: Array) -> Array:
    """Maps frames [..., H, W, C] in [0, 1] to [..., classes]."""
    hidden = frames.reshape(*frames.shape[:-3], -1)
    for size in _HIDDEN:
      hidden = nn.relu(nn.Dense(size)(hidden))
    return nn.Dense(self.classes)(hidden)


def fit(key: Array, images: Any, classes: int, steps: int = _STEPS) -> Any:
  """Trains a classifier.

  Args:
    key: random key.
    images: pixels uint8 [N, H, W, C] and labels int32 [N], 0 to `classes` - 1.
    classes: number of classes.
    steps: number of updates.

  Returns:
    The parameters, for `classify`.
  """
  pixels, labels = jnp.asarray(images.pixels), jnp.asarray(images.labels)
  network = Classifier(classes)
  init_key, steps_key = jax.random.split(key)
  params = network.init(init_key, jnp.zeros(pixels.shape[1:], jnp.float32))
  optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))

  def loss(params, frames, labels):
    logits = network.apply(params, frames)
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, labels
    ).mean()

  def update(step, carry):
    params, state = carry
    step_key = jax.random.fold_in(steps_key, step)
    index_key, shift_key = jax.random.split(step_key)
    index = jax.random.randint(index_key, (_BATCH,), 0, len(labels), jnp.int32)
    frames = _shifted(shift_key, _in_unit(pixels[index]))
    gradient = jax.grad(loss)(params, frames, labels[index])
    # optax multiplies whole numbers by rates, which strict promotion forbids.
    with jax.numpy_dtype_promotion('standard'):
      updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(params, updates), state

  carry = (params, optimizer.init(params))
  return jax.lax.fori_loop(0, steps, update, carry)[0]


def classify(params: Any, frames: Array) -> Array:
  """Returns the most likely classes, int32 [...].

  Args:
    params: from `fit`.
    frames: [..., H, W, C] in [0, 1].
  """
  bias = params['params'][f'Dense_{len(_HIDDEN)}']['bias']
  logits = Classifier(bias.shape[-1]).apply(params, frames)
  return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def accuracy(params: Any, images: Any) -> Array:
  """Returns the fraction of images that are classified right, in [0, 1]."""
  classes = classify(params, _in_unit(jnp.asarray(images.pixels)))
  is_right = classes == jnp.asarray(images.labels).astype(classes.dtype)
  return is_right.mean(dtype=jnp.float32)


def _in_unit(pixels: Array) -> Array:
  """Scales pixels from 0 to 255 to float32 in [0, 1]."""
  return pixels.astype(jnp.float32) / 255.0


def _shifted(key: Array, frames: Array) -> Array:
  """Rolls each frame by up to two pixels, cyclically."""
  shape = frames.shape[0], 2
  shifts = jax.random.randint(key, shape, -_SHIFT, _SHIFT + 1, jnp.int32)
  return jax.vmap(lambda frame, by: jnp.roll(frame, by, (0, 1)))(frames, shifts)
