r"""A memory core and a task of your own, with all that run.py has.

  python experiments/own_core.py --task=backward_recall --model=leaky

A copy with another core and task has all flags, --set=decay=0.8 too, records,
resuming, evaluation and figures; `study.py --program=FILE` runs a grid of it.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax import runs
from gtmm_jax.tasks import episode


class Leaky(nn.RNNCellBase):
  """A core that keeps the contract of gtmm_jax/memory/contract.py."""

  latent_size: int
  units: int
  decay: float

  @nn.compact
  def __call__(self, carry, inputs):
    """Returns m_t = decay m_{t-1} + (1 - decay) z_{t-1}, and the context."""
    carry += (1 - self.decay) * (inputs[..., : self.latent_size] - carry)
    both = jnp.concatenate([carry, inputs], axis=-1)
    return carry, nn.tanh(nn.Dense(self.units)(both))

  @nn.nowrap
  def initialize_carry(self, rng, input_shape):
    """Returns m_0 = 0 with the batch axes of the input."""
    return jnp.zeros((*input_shape[:-1], self.latent_size), jnp.float32)


def leaky(sizes, slots, *, decay: float = 0.9):
  """Makes the core; it has no slots, and `decay` is its option."""
  return Leaky(sizes.latent_size, sizes.controller_size, decay)


@dataclasses.dataclass(frozen=True)
class BackwardRecall(episode.Intervals):
  """l digits, then the first k of them in the opposite order."""

  name: ClassVar[str] = 'backward_recall'
  steps: ClassVar[int] = 500  # By default.
  pre_recall: int = 5
  recall: int = 2

  def sample(self, key, images):
    """Draws one episode; its last k frames are predictable."""
    frames, _ = episode.draw_images(key, images, self.pre_recall, self.binarize)
    return episode.recall_episode(frames, jnp.arange(self.recall)[::-1])


if __name__ == '__main__':
  runs.main(models={'leaky': leaky}, tasks={'backward_recall': BackwardRecall})
