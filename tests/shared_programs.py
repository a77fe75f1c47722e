"""Lets runs in one process share the programs that they have traced."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gtmm_jax import replicas, train
from gtmm_jax.runs import held_out, training
from gtmm_jax.runs.run import Run


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
    yield


def _of_training(run: Run) -> str:
  """Writes all that programs of training depend on.

  Tests replace the functions of `train`.
  """
  settings = {**run.config['settings'], 'steps': None}
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
