"""Mixture: every episode is of one of four tasks, drawn at random."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from gtmm_jax.tasks import episode
from gtmm_jax.tasks.dependency import DynamicDependency, SimilarityCuedRecall
from gtmm_jax.tasks.navigation import Navigation
from gtmm_jax.tasks.recall import PerfectRecall
from gtmm_jax.tasks.sources.dataset import Images


@dataclasses.dataclass(frozen=True)
class Mixture:
  """Four tasks on digits for one set of weights, each equally likely.

  Perfect recall, dynamic dependency, similarity-cued recall and navigation
  (Gemici et al. 2017, sections 5.1 and 5.4 to 5.6), with the same images. Every
  step's condition has the actions of navigation, zeros in other tasks, followed
  by a one-hot of the task. Episodes that are shorter than T end in padding,
  frames of zeros, which count nowhere.

  Attributes:
    pre_recall: l of the three recall tasks, at least 10.
    recall: k of the three recall tasks, from 2 to l.
    rows: of the grid of navigation.
    columns: of the grid of navigation.
    length: T, frames of a walk; at least l + k.
    binarize: sample pixels from Bernoullis with their grey values as means.
    asks: see the contract of a task.
  """

  pre_recall: int
  recall: int
  rows: int
  columns: int
  length: int
  binarize: bool = False
  asks: ClassVar[episode.Asks] = 'frame'

  def __post_init__(self) -> None:
    """Raises `ValueError` for wrong sizes of a part, or an l + k above T."""
    longest = max(part.length for part in self.parts.values())
    if self.length < longest:
      raise ValueError(
        f'mixture: length is {self.length}, and pre_recall and recall are '
        f'{longest} together; length must be at least that, since it holds the '
        f'longest episode.'
      )

  @functools.cached_property
  def parts(self) -> Mapping[str, Any]:
    """The tasks by their names; `Episode.part` is the number of one of them."""
    recall = self.pre_recall, self.recall, self.binarize
    walk = self.rows, self.columns, self.length, self.binarize
    return {
      'perfect_recall': PerfectRecall(*recall),
      'dynamic_dependency': DynamicDependency(*recall),
      'similarity_cued_recall': SimilarityCuedRecall(*recall),
      'navigation': Navigation(*walk),
    }

  @property
  def prefix(self) -> int:
    """l: the least prefix of the parts, of which each episode has its own."""
    return min(part.prefix for part in self.parts.values())

  @property
  def condition_size(self) -> int:
    """8: an action and the task, both one-hot."""
    return self._actions + len(self.parts)

  @property
  def _actions(self) -> int:
    return max(part.condition_size for part in self.parts.values())

  def sample(self, key: jax.Array, images: Images) -> episode.Episode:
    """Draws one episode of T frames, padding included.

    Of the two keys that `jax.random.split(key)` returns, the first one draws
    the part, and the part draws its episode with the second one.
    """
    part_key, episode_key = jax.random.split(key)
    count = len(self.parts)
    number = jax.random.randint(part_key, (), 0, count, jnp.int32)
    # `vmap` draws the episodes of all parts, and takes one.
    drawn = jax.lax.switch(
      number,
      [functools.partial(self._padded, task) for task in self.parts.values()],
      episode_key,
      images,
    )
    one_hot = jax.nn.one_hot(number, count, dtype=jnp.float32)
    every = jnp.broadcast_to(one_hot, (self.length, count))
    return drawn._replace(
      condition=jnp.concatenate([drawn.condition, every], axis=-1),
      part=jnp.full((self.length,), number),
    )

  def _padded(
    self, task: Any, key: jax.Array, images: Images
  ) -> episode.Episode:
    """Draws an episode of a part, and pads it to T frames."""
    drawn = task.sample(key, images)
    after = self.length - task.length

    def pad(values: jax.Array, fill: float | bool) -> jax.Array:
      widths = [(0, after)] + [(0, 0)] * (values.ndim - 1)
      return jnp.pad(values, widths, constant_values=fill)

    others = self._actions - task.condition_size
    return episode.Episode(
      frames=pad(drawn.frames, 0.0),
      condition=jnp.pad(drawn.condition, ((0, after), (0, others))),
      source=pad(drawn.source, -1),
      predictable=pad(drawn.predictable, False),
      label=pad(drawn.label, -1),
      mask=jnp.arange(self.length) < task.length,
      in_prefix=jnp.arange(self.length) < task.prefix,
    )
