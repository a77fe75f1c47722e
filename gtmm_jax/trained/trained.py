"""A trained run as a model: what it can compute, with its data and figures."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax import figures
from gtmm_jax.model.free_energy import Terms, Variables, Watched
from gtmm_jax.model.generate import Dream
from gtmm_jax.model.temporal_vae import State, TemporalVAE
from gtmm_jax.process import jax_settings
from gtmm_jax.runs import pictures, prepare, workdirs
from gtmm_jax.runs.kinds import Kinds
from gtmm_jax.runs.recorded import Recorded
from gtmm_jax.runs.settings import Settings
from gtmm_jax.tasks.sources.dataset import Dataset
from gtmm_jax.trained import functions, inputs

Array = jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
  """A trained run, from `gtmm_jax.load`.

  Its functions are pure, compile once for each shape of their arguments, and
  work under `jax.jit`, `jax.vmap` and `jax.grad`. Frames are [T, H, W, C] of
  one episode or [T, B, H, W, C] of several, in [0, 1] or uint8, from the task
  or from anywhere; where one episode is given, results have no axis B. With all
  replicas every result has a leading axis R. They share the random key, so that
  result r is that of replica r alone.

  Attributes:
    workdir: of the run.
    step: training steps before the checkpoint.
    replica: number of the replica; None stands for all.
    failed_at: int [R], of all replicas: the step at which one stopped being
      finite, -1 if it did not. Its variables are those before that step.
    model: the temporal VAE.
    variables: `params` and `batch_stats` on the default device, with a leading
      axis R if `replica` is None.
    is_average: whether they are moving averages.
    task: the task; `task.sample(key, data.test)` draws an episode.
    settings: of the run, resolved.
    recorded: of the run's folder.
    kinds: the models and tasks that there are.
  """

  workdir: pathlib.Path
  step: int
  replica: int | None
  failed_at: np.ndarray
  model: TemporalVAE
  variables: Variables
  is_average: bool
  task: Any
  settings: Settings
  recorded: Recorded = dataclasses.field(repr=False)
  kinds: Kinds = dataclasses.field(repr=False)

  @functools.cached_property
  def data(self) -> Dataset:
    """Images or episodes of the run in three parts, read at the first use.

    Raises:
      ValueError: they cannot be read, or are others than those of the run.
    """
    loaded, _ = prepare.load_images(self.settings, self.kinds)
    if self.recorded.checksum not in (None, loaded.checksum):
      raise ValueError(
        f'The data of {self.workdir} have changed: {loaded.source} has the '
        f'checksum {loaded.checksum}, and the run had '
        f'{self.recorded.checksum}. Bring back what it was trained on.'
      )
    return loaded

  def observe(
    self, key: Array, frames: Any, condition: Any = None
  ) -> tuple[State, Terms]:
    """Infers the latents of frames.

    Args:
      key: random key, of the noise `jax.random.normal(key, [T, B, noise_size])`
        of the latents.
      frames: [T, B, H, W, C].
      condition: [T, B, A]; needed where the task has one.

    Returns:
      The state after the last frame, leaves [B, ...], for `dream`; and the
      terms of the bound, nats a frame, [T, B].

    Raises:
      ValueError: frames or condition have another shape, type or range.
    """
    checked = self._checked(frames, condition)
    return self._programs['observe']((), key, *checked)

  def dream(
    self,
    key: Array,
    state: State | None,
    length: int,
    condition: Any = None,
    samples: int = 1,
  ) -> Dream:
    """Draws samples of what the model expects next.

    Args:
      key: random key; it is split into one for each sample.
      state: from `observe`, or from a dream of one episode, whose samples are
        the batch B then; None for the one before the first frame, a dream from
        nothing.
      length: L >= 1, frames of a dream.
      condition: [L, B, A], as the state has an axis B; without a state either
        shape will do.
      samples: S >= 1, of each state.

    Returns:
      Frames [S, L, B, H, W, C], latents [S, L, B, Z] and the states after the
      last frames, leaves [S, B, ...].

    Raises:
      ValueError: a number is below 1, or state or condition have another shape.
    """
    inputs.at_least_one(length=length, samples=samples)
    axes = (length, *self._batch_of(state, condition))
    condition = inputs.condition(condition, self.task.condition_size, axes)
    static = {
      'samples': int(samples),
      'frame_shape': self.recorded.frame_shape,
      'binarize': self.settings.binarize,
    }
    return self._programs['dream'](tuple(static.items()), state, key, condition)

  def log_likelihood(
    self,
    key: Array,
    frames: Any,
    condition: Any = None,
    bound: functions.Bound = 'elbo',
    samples: int = 1,
  ) -> Array:
    """Computes a lower bound of the log-likelihood of episodes.

    Args:
      key: random key.
      frames: [T, B, H, W, C].
      condition: [T, B, A]; needed where the task has one.
      bound: 'elbo', the bound that is trained, as a mean of S estimates; 'iwae'
        and 'particle', importance-weighted and of a particle filter, which are
        tighter the more samples there are (`evaluation.importance`).
      samples: S >= 1.

    Returns:
      Nats an episode, [B].

    Raises:
      ValueError: an argument is wrong.
    """
    bounds = get_args(functions.Bound)
    if bound not in bounds:
      raise ValueError(f'bound is {bound!r}; there are {", ".join(bounds)}.')
    inputs.at_least_one(samples=samples)
    static = ('bound', bound), ('samples', int(samples))
    checked = self._checked(frames, condition)
    return self._programs['log_likelihood'](static, key, *checked)

  def watch(
    self, frames: Any, condition: Any = None, key: Array | None = None
  ) -> Watched:
    """Returns what was read, written and where, with every frame.

    Args:
      frames: [T, B, H, W, C].
      condition: [T, B, A]; needed where the task has one.
      key: random key, as of `observe`; None takes the means of the posteriors
        for latents.

    Returns:
      `core`, the core's carries: memory, read and write weights, usage, gates,
      as the core has them; `context`, what was read, [T, B, P]; `stored`, the
      latents as they are written in the next step, [T, B, Z].

    Raises:
      ValueError: frames or condition have another shape, type or range.
    """
    checked = self._checked(frames, condition)
    return self._programs['watch']((), key, *checked)

  def figure(self, name: str) -> figures.Figure:
    """Draws a figure as the run does, on held-out episodes.

    Args:
      name: 'results', 'episodes', 'memory' of models that have one, 'overlay'
        of navigation. With all replicas they show the first finite one.

    Returns:
      A figure of matplotlib; `gtmm_jax.figures.save` writes it.

    Raises:
      ValueError: the run has no such figure.
    """
    names = workdirs.figure_names(self.settings)
    if name not in names:
      raise ValueError(
        f'This run has no figure {name!r}; there are {", ".join(names)}.'
      )
    return self._drawings[name]()

  @functools.cached_property
  def _drawings(self) -> dict[str, Callable[[], figures.Figure]]:
    def subject() -> pictures.Subject:
      replica, variables = self.replica, self.variables
      if replica is None:
        replica = pictures.first_finite(self.failed_at)
        variables = jax.tree.map(lambda leaf: leaf[replica], variables)
      return pictures.Subject(
        self.model,
        variables,
        pictures.key_of(self.settings, replica),
        self.data.held_out(self.settings.evaluate_on),
      )

    run = pictures.Shown(self.settings, self.task, self.workdir, subject)
    return pictures.drawings(run)

  @functools.cached_property
  def _programs(self) -> dict[str, Callable[..., Any]]:
    """Functions (static arguments, ...) -> result, of one replica or of all."""

    def program(function: Callable[..., Any], own: int) -> Callable[..., Any]:
      """Compiles a function whose first `own` arguments have an axis R."""

      def call(static, *arguments):
        result = functools.partial(function, self.model, **dict(static))
        if self.replica is None:
          axes = [0 if n < own else None for n in range(len(arguments))]
          result = jax.vmap(result, axes)
        with jax_settings.with_precision(self.settings.precision):
          return result(*arguments)

      compiled = jax.jit(call, static_argnums=0)
      return lambda static, *arguments: compiled(
        static, self.variables, *arguments
      )

    return {
      'observe': program(functions.observe, 1),
      'dream': program(functions.dream, 2),
      'log_likelihood': program(functions.log_likelihood, 1),
      'watch': program(functions.watch, 1),
    }

  def _checked(self, frames: Any, condition: Any) -> tuple[Array, Array]:
    """Returns checked frames and condition."""
    frames = inputs.frames(frames, self.recorded.frame_shape)
    size = self.task.condition_size
    return frames, inputs.condition(condition, size, frames.shape[:-3])

  def _batch_of(self, state: State | None, condition: Any) -> tuple[int, ...]:
    """Returns the axes of a batch, () or (B,), of a state or a condition.

    Raises:
      ValueError: the state is of another model, or of other replicas.
    """
    if state is None:
      return jnp.shape(condition)[1:2] if jnp.ndim(condition) == 3 else ()
    shape = getattr(getattr(state, 'stored_tm1', None), 'shape', None)
    own = () if self.replica is not None else (len(self.failed_at),)
    size = self.model.latent_size
    if shape is not None and shape[: len(own)] == own and shape[-1:] == (size,):
      batch = shape[len(own) : -1]
      if len(batch) < 2:
        return batch
    form = ', '.join(map(str, (*own, '...')))
    raise ValueError(
      f'state is not one of this model, whose leaves are [{form}]; take the '
      f'first result of observe, or None for a dream from nothing.'
    )
