"""The program that trains a model on a task: its flags and its errors."""

import functools
import sys
from collections.abc import Mapping

import jax
from absl import app, flags

from gtmm_jax import runs
from gtmm_jax.checkpoints import CheckpointMismatch
from gtmm_jax.model.cores import Make
from gtmm_jax.process import (
  command,
  compilation_cache,
  distributed,
  locks,
  signals,
)
from gtmm_jax.runs import cells, prepare, session, training
from gtmm_jax.runs import flags as flags_module
from gtmm_jax.runs import kinds as kinds_module
from gtmm_jax.runs.kinds import BUILT_IN, Kinds
from gtmm_jax.runs.workdirs import CannotGoOn
from gtmm_jax.tasks.sources.dataset import DataError

# Makes --helpshort of a program show the flags that are defined here.
flags.disclaim_key_flags()


def start(models: Mapping[str, Make], tasks: Mapping[str, type]) -> None:
  """Runs the program, with models and tasks beside the built-in ones."""
  try:
    kinds = kinds_module.with_own(models, tasks)
    define = functools.partial(define_flags, kinds)
    if sys.argv[1:] == [runs.CHECK_CELLS]:
      cells.answer(define, kinds)
      return
    app.define_help_flags()
    define()
  except ValueError as error:
    command.fail(error)
  app.run(lambda _: run(kinds), flags_parser=command.parse_flags)


def define_flags(kinds: Kinds = BUILT_IN) -> None:
  """Defines every flag of the program."""
  compilation_cache.define_flag()
  distributed.define_flags()
  flags_module.define(kinds=kinds)


def run(kinds: Kinds) -> None:
  """Completes the run that flags describe; reports mistakes in one line."""
  compilation_cache.use(flags.FLAGS.compilation_cache)
  with distributed.together():
    _run(kinds)


def _run(kinds: Kinds) -> None:
  """Completes the run of this process, alone or with others."""
  try:
    settings = flags_module.read(kinds=kinds)
    distributed.join()
    prepared = prepare.prepare(settings, kinds)
  except (ValueError, OSError) as error:
    command.fail(error)
  try:
    session.complete(prepared)
  except (
    CannotGoOn,
    locks.CannotLock,
    CheckpointMismatch,
    DataError,
    training.NoReplicaLeft,
  ) as error:
    command.fail(error)
  except OSError as error:
    reason = str(error)
    if error.filename and error.strerror:
      reason = f'{error.filename}: {error.strerror}'
    command.fail(
      f'{reason}. What was written before is kept: the same command continues '
      f'from the last checkpoint.'
    )
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    reason = str(error).split('\n')[0]
    command.fail(
      f'The device has too little memory ({reason}). Continue here with '
      f'--recompute=everything and --evaluate_every=0, which need less; or '
      f'name another --workdir and use fewer --replicas or a smaller '
      f'--batch_size.'
    )
  except signals.Stopped as stopped:
    signals.leave(stopped)
