"""The exam of an evaluation: episodes, devices and variables of replicas."""

from typing import Any, NamedTuple

import jax
import numpy as np

from gtmm_jax import replicas, train
from gtmm_jax.model import free_energy
from gtmm_jax.problem import Problem
from gtmm_jax.runs.run import Run, replica_keys
from gtmm_jax.tasks.sources.dataset import Dataset, Split


class Exam(NamedTuple):
  """The episodes that replicas are evaluated on, and where they run.

  Attributes:
    problem: the model, its episodes and the batch size.
    task: whose episodes these are.
    binarize: whether pixels of frames that are encoded again are drawn.
    images: of three parts, two of them held out.
    layout: of replicas on devices.
    keys: of the replicas, [R].
    count: least number of episodes of the evaluation at the end.
  """

  problem: Problem
  task: Any
  binarize: bool
  images: Dataset
  layout: replicas.Layout
  keys: jax.Array
  count: int


def of_run(run: Run) -> Exam:
  """Returns the episodes that a run is evaluated on."""
  return Exam(
    run.problem,
    run.task,
    run.settings.binarize,
    run.images,
    run.layout,
    replica_keys(run.settings),
    run.settings.evaluation_episodes,
  )


class Sample(NamedTuple):
  """Episodes to evaluate on.

  Attributes:
    keys: of the replicas, [R].
    count: least number of episodes; whole batches are evaluated.
    split: that they are drawn from.
  """

  keys: jax.Array
  count: int
  split: Split


class Weights(NamedTuple):
  """The variables of all replicas that are evaluated.

  Attributes:
    step: training steps before them.
    failed_at: int [R], the step at which a replica stopped being finite, -1 if
      it did not.
    variables: on the devices.
    last_iterate: those without their average, on the devices; None if the
      variables are no average.
  """

  step: int
  failed_at: np.ndarray
  variables: free_energy.Variables
  last_iterate: free_energy.Variables | None = None


def weights_of(state: train.TrainState) -> Weights:
  """Returns the variables of a state of all replicas, on the devices."""
  has_average = bool(jax.tree.leaves(state.average))
  return Weights(
    int(replicas.gather(state.step)[0]),
    replicas.gather(state.failed_at),
    train.evaluated(state),
    train.last_iterate(state) if has_average else None,
  )
