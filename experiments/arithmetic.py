"""What one training step of one replica has to compute and to move, by hand.

Operations: a multiplication and an addition are two. Counted are products of
matrices and convolutions, and what is done to each number of a memory, a link,
a frame or a parameter; not what is done to vectors of a time step (activations,
softmax, gates), to normalise, or to draw episodes. A product is done three
times, forward, for the gradient of the weights and for that of the input; that
of a first layer twice. Convolutions are counted with each kernel at its own
size and without products with the zeros around a frame. What a program computes
again to save memory is not counted.

Bytes: the least traffic of float32. Parameters are read once forward and once
backward and their gradients written once, those of the recurrent part too:
they are taken to stay in a cache over the steps of a sequence. What the
backward pass needs is written once and read once. Frames are read forward,
for the gradient of the first layer, and for the likelihood. Adam reads
parameter, gradient and two moments, and writes all but the gradient. All else
is taken never to leave a cache: a program may move many times as much. One that
is small enough to stay in a cache from step to step may move less.

No jax: these are plain numbers.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import arithmetic_cores
from arithmetic_layers import Layer, decoder, dense, encoder, perceptron
from gtmm_jax import presets

_FLOAT = 4
# Bernoulli: x l, softplus (exp, +, log), -, sum; backward (1 / (1 + e^-l) - x)
# times what comes back. Gaussian: -, times 1/s, square, times -1/2, -, sum;
# backward two for the mean and two for the scale.
_LIKELIHOOD_OPERATIONS = 10
# Clipping 3 (square, sum, scale), first moment 3, second moment 4, corrections
# of both 2, root, epsilon and quotient 3, rate and sum 2.
_ADAM_OPERATIONS = 17
# Reads of parameter, gradient and both moments; writes of all but the gradient.
_ADAM_MOVES = 7


class Work(NamedTuple):
  """What a part of a training step costs.

  Attributes:
    operations: floating-point operations, forward and backward.
    bytes: that have to be moved to or from memory.
    parameters: that belong to the part.
  """

  operations: int
  bytes: int
  parameters: int


class Arithmetic(NamedTuple):
  """What one training step of one replica costs, part by part.

  Attributes:
    encoder: from frames to features.
    controller: the LSTM, and the linear summary of what it is given.
    addressing: from the controller to weights, the interface included.
    links: of the DNC: its N x N links, and following them.
    memory: reads and writes.
    prior: the prior map.
    posterior: the context's share in the posterior map, and the sample.
    decoder: from latents and contexts to what frames are drawn from.
    likelihood: of the frames.
    optimiser: clipping, and Adam.
  """

  encoder: Work
  controller: Work
  addressing: Work
  links: Work
  memory: Work
  prior: Work
  posterior: Work
  decoder: Work
  likelihood: Work
  optimiser: Work

  @property
  def recurrent(self) -> Work:
    """All that is done one time step after the other."""
    return add(self[1:7])

  @property
  def total(self) -> Work:
    """The whole step."""
    return add(self)


def add(works: Iterable[Work]) -> Work:
  """The sum of parts."""
  return Work(*map(sum, zip(*works, strict=True)))


def training_step(
  model: str,
  preset: presets.Preset,
  frame_shape: tuple[int, int, int],
  frames: int,
  batch_size: int,
  condition_size: int = 0,
  slots: int | None = None,
) -> Arithmetic:
  """Counts one training step of one replica.

  Args:
    model: one of `presets.MODELS`.
    preset: its sizes; the batch is given apart.
    frame_shape: (H, W, C).
    frames: T, of an episode.
    batch_size: B, sequences in a batch.
    condition_size: A, of the paper's c_t; 0 for tasks without one.
    slots: N of the memory; None takes as many as the model has for T frames.

  Returns:
    Its arithmetic; the parameters of its parts are all that the model has.

  Raises:
    ValueError: if there is no such model.
  """
  if model not in presets.MODELS:
    raise ValueError(
      f'There is no model {model!r}; there are {", ".join(presets.MODELS)}.'
    )
  slots = presets.slots(model, frames) if slots is None else slots
  core = arithmetic_cores.core(model, preset, slots, condition_size)
  latent, examples = preset.latent_size, frames * batch_size
  pixels, context = math.prod(frame_shape), core.context_size
  likelihood = Layer(
    operations=_LIKELIHOOD_OPERATIONS * pixels,
    # Of colour, each channel has a scale.
    parameters=frame_shape[-1] if frame_shape[-1] > 1 else 0,
    moved=pixels,
    passes=1,
  )
  parts = {
    'encoder': encoder(preset, frame_shape),
    'controller': core.controller,
    'addressing': core.addressing,
    'links': core.links,
    'memory': core.memory,
    'prior': perceptron((context, *preset.prior_hidden, 2 * latent)),
    # The sample is kept, and its noise.
    'posterior': [
      dense(context, 2 * latent, bias=False),
      Layer(moved=4 * latent),
    ],
    'decoder': decoder(preset, frame_shape, latent + context),
    'likelihood': [likelihood],
  }
  works = {name: _work(layers, examples) for name, layers in parts.items()}
  count = sum(work.parameters for work in works.values())
  optimiser = Work(_ADAM_OPERATIONS * count, _ADAM_MOVES * _FLOAT * count, 0)
  return Arithmetic(**works, optimiser=optimiser)


def _work(layers: Iterable[Layer], examples: int) -> Work:
  """Layers that all examples pass once."""
  return add(
    [
      Work(0, 0, 0),
      *(
        Work(
          examples * layer.passes * layer.operations,
          _FLOAT * (layer.passes * layer.parameters + examples * layer.moved),
          layer.parameters,
        )
        for layer in layers
      ),
    ]
  )
