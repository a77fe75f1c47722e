"""Times the memory cores alone, and PyTorch's `dnc` package beside them.

A pass is one sequence batch through one core, forward and backward: T steps of
`jax.lax.scan`, the sum of squares of the contexts, and its gradient with
respect to the core's parameters and its inputs, all in one program. Backward
passes are those that are written out, as in training, or plain JAX, as a bare
core has them.
"""

import contextlib
import functools
import itertools
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
from gtmm_jax.process import provenance

FRAMES = 25
BATCH_SIZE = 10
INPUT_SIZE = 32
CONTROLLER_SIZE = 128

# Fewer rounds say nothing of quartiles.
_LEAST_ROUNDS = 5


class Sizes(NamedTuple):
  """Sizes of a memory: N slots, words of W, R read heads."""

  slots: int
  word_size: int
  read_heads: int


class Program(NamedTuple):
  """Something that passes forward and backward.

  Attributes:
    core: whose pass it is.
    run: one pass; returns when its gradients are there.
    threads: that PyTorch was told to use; None for JAX, which takes its own.
    compile_seconds: of JAX; None for PyTorch, which does not compile.
    temporary_bytes: that the compiled program needs beside its arguments and
      results, gradients included; None for PyTorch, which does not tell on CPUs
      and for devices that do not.
  """

  core: str
  run: Callable[[], Any]
  threads: int | None = None
  compile_seconds: float | None = None
  temporary_bytes: int | None = None


def growth() -> list[Sizes]:
  """N 25, W 32, R 5 first; then each of the three grows from there."""
  point = Sizes(25, 32, 5)
  return [
    point,
    *(point._replace(slots=n) for n in (64, 128, 256)),
    *(point._replace(word_size=w) for w in (16, 64, 128)),
    *(point._replace(read_heads=r) for r in (1, 2, 8)),
  ]


def about(pytorch: dnc.Modules | str, is_plain: bool = False) -> dict[str, Any]:
  """Returns what every row shares, as --json has it.

  Args:
    pytorch: as of `measure`.
    is_plain: as of `measure`.
  """
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
  """What is measured and on what, from `about`, in a line or two."""
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

  All programs of a size take turns, so that what else the machine does falls
  on all of them. The LSTM, which has no memory, is timed at the first size.

  Args:
    all_sizes: in which order they are measured.
    seconds: to spend on each size, > 0; at least five rounds are made.
    pytorch: from `benchmark_pytorch.load`; a sentence leaves JAX alone.
    is_plain: whether derivatives are JAX's own, and not written out.

  Yields:
    The rows of one size, see `as_rows`.
  """
  for number, sizes in enumerate(all_sizes):
    cores = _cores(sizes)
    if number:
      del cores['lstm']
    mode = contextlib.nullcontext if is_plain else derivatives.written_out
    with mode():
      programs = [_jax_program(*core, sizes) for core in cores.items()]
    if not isinstance(pytorch, str):
      programs += _pytorch_programs(sizes, pytorch)
    yield as_rows(sizes, programs, take_turns(programs, seconds))


def take_turns(programs: Sequence[Program], seconds: float) -> np.ndarray:
  """Milliseconds of each pass, [rounds, programs].

  Args:
    programs: one round runs each once, in this order; a first round is not
      counted.
    seconds: rounds are made until so much is spent; at least five.
  """
  rounds = []
  for number in itertools.count():
    times = []
    for program in programs:
      began = time.perf_counter()
      program.run()
      times.append(time.perf_counter() - began)
    if number:
      rounds.append(times)
    if number >= _LEAST_ROUNDS and np.sum(rounds) >= seconds:
      return 1e3 * np.array(rounds)


def as_rows(
  sizes: Sizes, programs: Sequence[Program], milliseconds: np.ndarray
) -> list[dict[str, Any]]:
  """Times of one size as JSON has them.

  Args:
    sizes: of the memories.
    programs: what was timed.
    milliseconds: [rounds, programs].

  Returns:
    The fields of `Sizes` and, but for `run`, of `Program`; `milliseconds`, the
    spread over rounds; `rounds`; and `pytorch_ratio`: how many times as long as
    this program's the median pass of PyTorch's package takes, on the number of
    threads that suits it best; None where it was not timed.
  """
  spreads = [timing.spread(column) for column in milliseconds.T]
  baseline = min(
    (
      spread.median
      for program, spread in zip(programs, spreads, strict=True)
      if program.core == dnc.NAME
    ),
    default=None,
  )
  rows = []
  for program, spread in zip(programs, spreads, strict=True):
    row = {**sizes._asdict(), **program._asdict()}
    del row['run']
    row['milliseconds'] = spread._asdict()
    row['rounds'] = len(milliseconds)
    row['pytorch_ratio'] = baseline and baseline / spread.median
    rows.append(row)
  return rows


def _cores(sizes: Sizes) -> dict[str, nn.Module]:
  """Every core at these sizes, as its own paper has it: no latents in words."""
  shared = {**sizes._asdict(), 'controller_size': CONTROLLER_SIZE}
  # What these store are latents: words of W are latents of W.
  latents = {'latent_size': shared['word_size'], **shared}
  del latents['word_size']
  return {
    'lstm': LSTM(CONTROLLER_SIZE),
    'introspective': Introspective(**latents),
    'associative': Associative(**latents, key_size=sizes.word_size),
    'ntm': NTM(**shared),
    'lru': LRU(**shared),
    'dnc': DNC(**shared),
  }


def _jax_program(name: str, core: nn.Module, sizes: Sizes) -> Program:
  """The compiled pass of a core; its inputs are as wide as its latents are."""
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
  return Program(
    core=name,
    run=lambda: jax.block_until_ready(compiled(variables, inputs)),
    compile_seconds=time.perf_counter() - began,
    temporary_bytes=getattr(memory, 'temp_size_in_bytes', None),
  )


def _pytorch_programs(sizes: Sizes, modules: dnc.Modules) -> list[Program]:
  """The package's pass on each number of threads."""
  run = dnc.forward_backward(
    modules,
    (BATCH_SIZE, FRAMES, INPUT_SIZE),
    controller_size=CONTROLLER_SIZE,
    **sizes._asdict(),
  )
  return [
    Program(dnc.NAME, functools.partial(run, threads), threads)
    for threads in dnc.THREADS
  ]
