"""Frames that a model generates in an evaluation, ahead and free-running."""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.model import free_energy
from gtmm_jax.problem import Problem

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Protocol:
  """The rules by which a model is evaluated.

  Attributes:
    problem: the model, its held-out episodes and the batch size.
    prefix: true frames that free-running generation is given.
    asks: what a predictable frame has to be: 'frame', an earlier frame;
      'class', any image of a class; 'view', close to the true view.
    binarize: whether the pixels of generated frames are sampled before the
      frames are encoded again.
  """

  problem: Problem
  prefix: int
  asks: Literal['frame', 'class', 'view']
  binarize: bool = False


class Generated(NamedTuple):
  """Frames of a batch of episodes, each generated twice.

  Attributes:
    ahead: from the prior given the true past, [T, B, H, W, C] in [0, 1].
    free: a true prefix, and the frames generated after it, of the same shape.
  """

  ahead: Array
  free: Array


class Dream(NamedTuple):
  """Episodes, and two ways in which a model generates their frames.

  Attributes:
    episode: the episodes, [T, B, ...].
    reconstruction: their frames by the posterior, [T, B, H, W, C].
    generated: by the prior after a prefix, [T - prefix, B, H, W, C]; true
      frames where an episode's own prefix is longer.
  """

  episode: Any
  reconstruction: Array
  generated: Array


def no_dream(protocol: Protocol, images: Any, count: int) -> Dream:
  """Returns zeros in the place of a dream.

  Args:
    protocol: how to evaluate.
    images: whose shapes are those of the images to evaluate on.
    count: number of episodes, at most; no more than a batch has.
  """
  key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
  episode, _ = jax.eval_shape(protocol.problem.draw, key, images)
  dream = Dream(episode, episode.frames, episode.frames)
  zeros = jax.tree.map(
    lambda leaf: jnp.zeros(
      (len(leaf), min(count, leaf.shape[1]), *leaf.shape[2:]), leaf.dtype
    ),
    dream,
  )
  return zeros._replace(generated=zeros.generated[protocol.prefix :])


def first(dream: Dream, room: Dream | None) -> Dream | None:
  """Returns as many episodes of a dream as there is room for."""
  if room is None:
    return None
  return jax.tree.map(lambda leaf, kept: leaf[:, : kept.shape[1]], dream, room)


def generate_twice(
  protocol: Protocol,
  variables: free_energy.Variables,
  key: Array,
  episode: Any,
  noise: Array,
  inference: free_energy.Inference,
) -> Generated:
  """Generates the frames of episodes one step ahead, and free-running.

  Args:
    protocol: whose model generates.
    variables: of the model.
    key: random key of the sampled pixels.
    episode: true episodes, axes [T, B, ...].
    noise: of their latents, [T, B, noise_size].
    inference: from `free_energy.infer` on both.

  Returns:
    The frames.
  """
  model = protocol.problem.model
  # The prior at t depends on the noise before t alone, so that at t is unused.
  z = inference.prior.sample(noise)
  context = inference.steps.context
  ahead = model.apply(variables, z, context, method='decode')
  pixel_key = key if protocol.binarize else None
  free = protocol.problem.generate(
    variables, episode, noise, protocol.prefix, pixel_key
  )
  return Generated(ahead.mean, free)
