"""How much memory gradients need: an estimate, for which nothing is compiled.

JAX says which arrays its gradient keeps from the pass forward. Going back, a
program needs them all at first; a network of frames whose inside is computed
again then needs that inside, too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import derivatives, scan
from gtmm_jax.model import build, free_energy
from gtmm_jax.model.temporal_vae import TemporalVAE


class Kept(NamedTuple):
  """Bytes of one replica.

  Attributes:
    through: that are kept from the pass forward, parameters among them.
    inside: of what the larger network of frames keeps while it is computed
      again; 0 where it is not.
  """

  through: int
  inside: int


def estimate(
  model: TemporalVAE,
  frame_shape: tuple[int, int, int],
  frames: int,
  batch_size: int,
  condition_size: int = 0,
  recompute: scan.Recompute = 'nothing',
) -> Kept:
  """Adds up what the gradient of the negative bound keeps.

  A compiler may keep less, where it computes again of itself, and needs some
  more for what it has at hand at one time.

  Args:
    model: the temporal VAE.
    frame_shape: (H, W, C).
    frames: T.
    batch_size: B.
    condition_size: A, of the paper's c_t.
    recompute: as of `free_energy.infer`.
  """
  episode = [
    jax.ShapeDtypeStruct((frames, batch_size, *shape), jnp.float32)
    for shape in (frame_shape, (condition_size,), (model.latent_size,))
  ]
  variables = build.variable_shapes(model, frame_shape, condition_size)
  params = variables.pop('params')

  def bound(params, others, *episode):
    with derivatives.written_out():
      inference = free_energy.infer(
        model,
        {'params': params, **others},
        *episode,
        train=True,
        recompute=recompute,
      )
    total = free_energy.negative_bound(inference.terms).mean()
    return total, inference.steps.context

  through = _bytes_of_gradient(
    lambda params, *rest: bound(params, *rest)[0], params, variables, *episode
  )
  if recompute != 'everything':
    return Kept(through, 0)
  _, context = jax.eval_shape(bound, params, variables, *episode)

  def apply(method, params, others, *args):
    made, _ = model.apply(
      {'params': params, **others},
      *args,
      True,
      method=method,
      mutable=['batch_stats'],
    )
    return made

  def decode(params, others, z, context, x):
    return apply('decode', params, others, z, context).log_likelihood(x).sum()

  def encode(params, others, x):
    return apply('encode', params, others, x).sum()

  x, _, z = episode
  inside = max(
    _bytes_of_gradient(decode, params, variables, z, context, x),
    _bytes_of_gradient(encode, params, variables, x),
  )
  return Kept(through, inside)


def _bytes_of_gradient(function: Any, params: Any, *args: Any) -> int:
  """Bytes that the gradient with respect to `params` keeps."""
  backward = jax.eval_shape(
    lambda params, *args: jax.vjp(lambda p: function(p, *args), params)[1],
    params,
    *args,
  )
  return sum(
    leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(backward)
  )
