"""Lets runs in one process share the programs that they have traced."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gtmm_jax import replicas, train
from gtmm_jax.runs import drawn_episodes, held_out, pictures, training
from gtmm_jax.runs.run import Run

# Settings on which no program of training depends.
_OF_THE_HOST = (
  'steps',
  'report_every',
  'evaluate_every',
  'evaluation_episodes',
  'tensorboard',
)


@contextlib.contextmanager
def of_equal_runs() -> Iterator[None]:
  """Lets equal runs share their programs, within the context.

  A run that resumes in the same process would else trace, lower and load the
  programs of the run before. A process of its own does so in any case.
  """
  with pytest.MonkeyPatch.context() as patch:
    for owner, name, key in (
      (training, 'make_programs', _of_training),
      (held_out, '_one_batch', _of_evaluation),
      (replicas, 'repeat', lambda *arguments: arguments),
    ):
      patch.setattr(owner, name, _once(getattr(owner, name), key))
    patch.setattr(
      pictures,
      'functools',
      types.SimpleNamespace(cache=functools.cache, partial=_make_partial()),
    )
    yield


def _make_partial() -> Callable[..., Any]:
  """Returns `functools.partial`, but one object for equal pictures.

  jit takes two objects for two functions.
  """
  same = _once(functools.partial, lambda *arguments: repr(arguments))

  def partial(function, *arguments):
    is_compiled = function in (drawn_episodes.dream, drawn_episodes.watch)
    make = same if is_compiled else functools.partial
    return make(function, *arguments)

  return partial


def _of_training(run: Run) -> str:
  """Writes all that programs of training depend on.

  Tests replace the functions of `train`.
  """
  settings = {**run.config['settings'], **dict.fromkeys(_OF_THE_HOST)}
  functions = train.init_state, train.train_step
  return repr((run.problem, run.layout, settings, functions))


def _of_evaluation(*arguments: Any) -> str:
  """Writes all that a batch of the evaluation depends on."""
  return repr(arguments)


def _once(
  function: Callable[..., Any], key: Callable[..., Any]
) -> Callable[..., Any]:
  """Makes a function return the same object for arguments of the same key."""
  results = {}

  def replacement(*arguments):
    name = key(*arguments)
    if name not in results:
      # With the arguments: no later object may get their addresses.
      results[name] = function(*arguments), arguments
    return results[name][0]

  return replacement
