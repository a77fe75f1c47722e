"""Times the memory cores alone, and PyTorch's `dnc` package beside them.

A pass is one sequence batch through one core, forward and backward: T steps of
`jax.lax.scan`, the sum of squares of the contexts, and its gradient with
respect to the core's parameters and its inputs, all in one program. Backward
passes are the written ones, as in training, or plain JAX, as of a bare core.
"""

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from benchmarking import timing
from benchmarking.pytorch import dnc
from gtmm_jax.memory import derivatives
from gtmm_jax.memory.associative import Associative
from gtmm_jax.memory.dnc import DNC
from gtmm_jax.memory.introspective import Introspective
from gtmm_jax.memory.lru import LRU
from gtmm_jax.memory.lstm import LSTM
from gtmm_jax.memory.ntm import NTM
from gtmm_jax.memory.ssm import SSM
from gtmm_jax.memory.transformer import Transformer
from gtmm_jax.process import provenance

FRAMES = 25
BATCH_SIZE = 10
INPUT_SIZE = 32
CONTROLLER_SIZE = 128


class Sizes(NamedTuple):
  """Sizes of a memory: N slots, words of W, R read heads."""

  slots: int
  word_size: int
  read_heads: int


class Pass(NamedTuple):
  """A pass forward and backward through a core.

  Attributes:
    core: its name.
    run: makes one pass; returns when its gradients are there.
    threads: that PyTorch uses; None for JAX, which takes its own.
    compile_seconds: of JAX; None for PyTorch, which does not compile.
    temporary_bytes: that the compiled program needs beside its arguments and
      results, gradients included; None for PyTorch, which does not tell on
      CPUs, and for devices that do not.
  """

  core: str
  run: Callable[[], Any]
  threads: int | None = None
  compile_seconds: float | None = None
  temporary_bytes: int | None = None


def read_sizes(texts: Sequence[str]) -> list[Sizes]:
  """Returns the sizes that --sizes names, each once, in the order given.

  Args:
    texts: NxWxR each; may be empty.

  Raises:
    ValueError: one is not three whole numbers from 1 on with R <= N.
  """
  all_sizes = []
  for text in texts:
    match = re.fullmatch(r'\s*(\d+)x(\d+)x(\d+)\s*', text)
    sizes = Sizes(*map(int, match.groups())) if match else Sizes(0, 0, 0)
    if min(sizes) < 1 or sizes.read_heads > sizes.slots:
      raise ValueError(
        f'--sizes has {text!r} in it; it must be slots, word size and read '
        f'heads, whole numbers from 1 on with no more heads than slots, as in '
        f'--sizes=25x32x5,128x32x5.'
      )
    if sizes not in all_sizes:
      all_sizes.append(sizes)
  return all_sizes


def growth() -> list[Sizes]:
  """Returns N 25, W 32, R 5, then each of the three grown from there."""
  point = Sizes(25, 32, 5)
  return [
    point,
    *(point._replace(slots=n) for n in (64, 128, 256)),
    *(point._replace(word_size=w) for w in (16, 64, 128)),
    *(point._replace(read_heads=r) for r in (1, 2, 8)),
  ]


def about(pytorch: dnc.Modules | str, is_plain: bool = False) -> dict[str, Any]:
  """Returns the settings that all rows share; arguments are `measure`'s."""
  packages = ('jax', 'jaxlib', 'flax', 'numpy')
  if not isinstance(pytorch, str):
    packages += ('torch', 'dnc')
  return {
    'settings': {
      'frames': FRAMES,
      'batch_size': BATCH_SIZE,
      'input_size': INPUT_SIZE,
      'controller_size': CONTROLLER_SIZE,
      'derivatives': 'plain JAX' if is_plain else 'written out',
    },
    'versions': provenance.versions(packages),
    'device': provenance.device(jax.devices()[0]),
    **provenance.published(),
  }


def announce(content: dict[str, Any]) -> str:
  """Describes the measurement in a line, from the result of `about`."""
  settings, versions = content['settings'], content['versions']
  device = content['device']
  lines = [
    f'T {settings["frames"]}, batch {settings["batch_size"]}, inputs of '
    f'{settings["input_size"]}, LSTM {settings["controller_size"]}',
    f'derivatives: {settings["derivatives"]}',
    f'{device["kind"]} ({device["platform"]}), jax {versions["jax"]}',
  ]
  if 'torch' in versions:
    lines.append(f'dnc {versions["dnc"]} on PyTorch {versions["torch"]}')
  return '; '.join(lines)


def measure(
  all_sizes: Sequence[Sizes],
  seconds: float,
  pytorch: dnc.Modules | str,
  is_plain: bool = False,
) -> Iterator[list[dict[str, Any]]]:
  """Times every core at every size.

  All passes of a size take turns. The LSTM and the state-space model, which
  have no memory, are timed at the first size.

  Args:
    all_sizes: in the order in which they are measured.
    seconds: to spend on each size, > 0; at least five rounds are counted.
    pytorch: from `pytorch.dnc.load`; a sentence leaves JAX alone.
    is_plain: whether derivatives are JAX's own, and not written out.

  Yields:
    The rows of one size, see `as_rows`.
  """
  for number, sizes in enumerate(all_sizes):
    cores = _cores(sizes)
    if number:
      del cores['lstm'], cores['ssm']
    mode = contextlib.nullcontext if is_plain else derivatives.written_out
    with mode():
      passes = [_jax_pass(*core, sizes) for core in cores.items()]
    if not isinstance(pytorch, str):
      passes += _pytorch_passes(sizes, pytorch)
    times = timing.rounds([each.run for each in passes], seconds)
    yield as_rows(sizes, passes, times)


def as_rows(
  sizes: Sizes, passes: Sequence[Pass], seconds: np.ndarray
) -> list[dict[str, Any]]:
  """Returns the times of one size as JSON has them.

  Args:
    sizes: of the memories.
    passes: that were timed.
    seconds: of each run, [rounds, passes].

  Returns:
    For each pass the fields of `Sizes` and, but for `run`, of `Pass`;
    `milliseconds`, the spread over rounds; `rounds`; and `pytorch_ratio`, how
    many times as long the median pass of PyTorch's package takes, on the number
    of threads that suits it best; None where it was not timed.
  """
  spreads = [timing.spread(1e3 * column) for column in seconds.T]
  baseline = min(
    (
      spread.median
      for each, spread in zip(passes, spreads, strict=True)
      if each.core == dnc.NAME
    ),
    default=None,
  )
  rows = []
  for each, spread in zip(passes, spreads, strict=True):
    row = {**sizes._asdict(), **each._asdict()}
    del row['run']
    row['milliseconds'] = spread._asdict()
    row['rounds'] = len(seconds)
    row['pytorch_ratio'] = baseline and baseline / spread.median
    rows.append(row)
  return rows


def _cores(sizes: Sizes) -> dict[str, nn.Module]:
  """Makes every core as its own paper has it: no latents in words."""
  shared = {**sizes._asdict(), 'controller_size': CONTROLLER_SIZE}
  # These store latents: a word of size W is a latent of size W.
  latents = {'latent_size': shared['word_size'], **shared}
  del latents['word_size']
  return {
    'lstm': LSTM(CONTROLLER_SIZE),
    'introspective': Introspective(**latents),
    'associative': Associative(**latents, key_size=sizes.word_size),
    'ntm': NTM(**shared),
    'lru': LRU(**shared),
    'dnc': DNC(**shared),
    'transformer': Transformer(CONTROLLER_SIZE, sizes.slots),
    'ssm': SSM(CONTROLLER_SIZE),
  }


def _jax_pass(name: str, core: nn.Module, sizes: Sizes) -> Pass:
  """Compiles the pass of a core, whose inputs are as wide as its latents."""
  stores_latents = name in ('introspective', 'associative')
  width = sizes.word_size if stores_latents else INPUT_SIZE
  key = jax.random.key(0)
  inputs = jax.random.normal(key, (FRAMES, BATCH_SIZE, width))
  carry = core.initialize_carry(key, inputs.shape[1:])
  variables = jax.jit(core.init)(key, carry, inputs[0])

  def loss(variables, inputs):
    def step(carry, each):
      return core.apply(variables, carry, each)

    _, contexts = jax.lax.scan(step, carry, inputs)
    return jnp.square(contexts).sum()

  began = time.perf_counter()
  both = jax.value_and_grad(loss, argnums=(0, 1))
  compiled = jax.jit(both).lower(variables, inputs).compile()
  memory = compiled.memory_analysis()
  return Pass(
    core=name,
    run=lambda: jax.block_until_ready(compiled(variables, inputs)),
    compile_seconds=time.perf_counter() - began,
    temporary_bytes=getattr(memory, 'temp_size_in_bytes', None),
  )


def _pytorch_passes(sizes: Sizes, modules: dnc.Modules) -> list[Pass]:
  """Returns the package's pass on each number of threads."""
  run = dnc.forward_backward(
    modules,
    (BATCH_SIZE, FRAMES, INPUT_SIZE),
    controller_size=CONTROLLER_SIZE,
    **sizes._asdict(),
  )
  return [
    Pass(dnc.NAME, functools.partial(run, threads), threads)
    for threads in dnc.THREADS
  ]
