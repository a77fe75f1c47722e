"""The bound against exact answers, plain loops, and what it may depend on."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import linear_gaussian
import slow_cases
import tiny_preset
from gtmm_jax import presets
from gtmm_jax.model import build, convolutions, free_energy
from gtmm_jax.model.distributions import kl_divergence

_LENGTH, _BATCH, _LATENT = 6, 3, 4
_TINY = tiny_preset.make(latent_size=_LATENT, word_size=6)
# Every core, every store with and without a core that sees frames, and networks
# with batch normalisation.
_CASES = [
  *((name, 'sample', 'dense') for name in presets.MODELS),
  *(
    (name, store, 'dense')
    for name in ('vrnn', 'introspective')
    for store in ('mean', 'denoised')
  ),
  ('introspective', 'denoised', 'digit'),
]
# A store and a network of each kind, for what has to be compiled anew.
_FEW = [
  ('vrnn', 'mean', 'dense'),
  ('introspective', 'sample', 'dense'),
  ('introspective', 'denoised', 'digit'),
]


# The other cores are other recurrences of the same step; tests of each core
# compare them with loops.
_every_case = pytest.mark.parametrize(
  ('name', 'store', 'networks'),
  slow_cases.but_for([*_FEW, ('dnc', 'sample', 'dense')], _CASES),
)


# --- Linear-Gaussian state-space models, whose bound is known exactly.


def _run_linear_gaussian(data, kind, copies):
  """Infers each sequence with `copies` noises; axes [T, copy, sequence]."""
  model = linear_gaussian.model(data)
  frames, condition = linear_gaussian.inputs(data, kind, copies)
  noise = jax.random.normal(
    jax.random.key(5), (*frames.shape[:2], model.latent_size)
  )
  run = jax.jit(lambda *args: free_energy.infer(model, {}, *args))
  return run(frames, condition, noise), frames


def _assert_mean(samples, expected, exact=2e-4):
  """Asserts that the mean over axis 0 is within 5 standard errors."""
  samples = np.asarray(samples, np.float64)
  error = samples.std(axis=0, ddof=1) / np.sqrt(samples.shape[0])
  assert (np.abs(samples.mean(axis=0) - expected) <= 5 * error + exact).all()
  assert (error < 0.02 + 0.01 * np.abs(expected)).all()


@pytest.mark.parametrize(
  ('name', 'kind'),
  [
    ('lgssm_z1_x1', 'prior'),
    ('lgssm_z1_x1', 'optimal'),
    ('lgssm_z1_x1', 'diag'),
    ('lgssm_z1_x1', 'smoothing'),
    ('lgssm_z2_x3', 'prior'),
    ('lgssm_z2_x3', 'diag'),
  ],
)
def test_terms_of_a_linear_gaussian_model_are_the_exact_ones(
  golden, name, kind
):
  data, copies = golden(name), 20_000
  result, _ = _run_linear_gaussian(data, kind, copies)

  def by_copy(x):
    return np.asarray(x).reshape(-1, copies, data['x'].shape[0])

  log_likelihood, kl = map(by_copy, result.terms)
  _assert_mean(kl.transpose(1, 2, 0), data[f'{kind}_kl'])
  _assert_mean(log_likelihood.transpose(1, 2, 0), data[f'{kind}_recon'])
  bound = -by_copy(free_energy.negative_bound(result.terms))[0]
  _assert_mean(bound, data[f'{kind}_elbo'])
  slack = 5 * bound.std(axis=0) / np.sqrt(copies) + 2e-4
  assert (bound.mean(axis=0) <= data['log_marginal'] + slack).all()
  if kind == 'smoothing':
    _assert_mean(bound, data['log_marginal'])


def test_with_the_smoothing_proposal_every_sample_weighs_the_evidence(golden):
  data, copies = golden('lgssm_z1_x1'), 500
  result, _ = _run_linear_gaussian(data, 'smoothing', copies)
  steps = result.steps
  log_weight = np.sum(
    result.terms.log_likelihood
    + result.prior.log_likelihood(steps.z).sum(-1)
    - steps.posterior.log_likelihood(steps.z).sum(-1),
    axis=0,
  )
  np.testing.assert_allclose(
    log_weight.reshape(copies, -1),
    np.tile(data['log_marginal'], (copies, 1)),
    rtol=1e-5,
    atol=1e-4,
  )
  assert np.std(steps.z, axis=1).min() > 0.1


def test_reconstructions_are_the_means_of_the_frames(golden):
  data = golden('lgssm_z2_x3')
  result, _ = _run_linear_gaussian(data, 'diag', 2)
  z = np.asarray(result.steps.z, np.float64)
  expected = z @ data['C'].T + data['d']
  np.testing.assert_allclose(result.frames[:, :, 0, 0], expected, atol=1e-5)


# --- The networks.


def _data(seed=0, batch=_BATCH, size=8):
  """Draws frames, a condition of width 2 and noise."""
  rng = np.random.default_rng(seed)
  return (
    rng.uniform(size=(_LENGTH, batch, size, size, 1)).astype(np.float32),
    rng.normal(size=(_LENGTH, batch, 2)).astype(np.float32),
    rng.normal(size=(_LENGTH, batch, _LATENT)).astype(np.float32),
  )


def _filled(variables):
  """Draws values for shapes, so that nothing is 0 or 1 by chance."""
  rng = np.random.default_rng(2)

  def fill(path, leaf):
    name = path[-1].key
    noise = rng.normal(size=leaf.shape)
    if 'kernel' in name:
      value = noise / np.sqrt(np.prod(leaf.shape[:-1]))
    elif name in ('var', 'posterior_variance'):
      value = rng.uniform(0.3, 0.9, leaf.shape)
    else:
      value = 0.1 * noise + (name == 'scale')
    return value.astype(np.float32)

  return jax.tree.map_with_path(fill, variables)


@functools.cache
def _case(name, store, networks):
  """Returns a model, variables with averages that matter, compiled `infer`."""
  preset = dataclasses.replace(_TINY, networks=networks)
  model = build.temporal_vae(name, preset, (8, 8, 1), _LENGTH, store=store)
  first = [x[0] for x in _data()]
  shapes = jax.eval_shape(model.init, jax.random.key(1), None, *first)
  infer = jax.jit(
    functools.partial(free_energy.infer, model), static_argnames='train'
  )
  return model, _filled(shapes), infer


@_every_case
def test_terms_see_no_later_frame(name, store, networks):
  _, variables, infer = _case(name, store, networks)
  frames, condition, noise = _data()
  before = infer(variables, frames, condition, noise).terms
  for t in range(_LENGTH):
    changed = frames.copy()
    changed[t] = 1.0 - changed[t]
    after = infer(variables, changed, condition, noise).terms
    for old, new in zip(before, after, strict=True):
      np.testing.assert_array_equal(old[:t], new[:t])
      assert (old[t] != new[t]).all()
    # What was seen reaches every later step through the context.
    assert (np.asarray(before.kl[t:]) != np.asarray(after.kl[t:])).all()


@functools.cache
def _plain_step(name, store, networks):
  """Compiles the step of a plain loop over time."""
  model, variables, _ = _case(name, store, networks)
  return jax.jit(lambda state, *inputs: model.apply(variables, state, *inputs))


def _plain_loop(name, store, networks, inputs):
  """Yields the result of `TemporalVAE.__call__` at every step."""
  model, variables, _ = _case(name, store, networks)
  features = np.zeros((_BATCH, 2 * _LATENT), np.float32)
  state = model.apply(variables, features, inputs[1][0], method='initial_state')
  step = _plain_step(name, store, networks)
  for now in zip(*inputs, strict=True):
    state, *made = step(state, *now)
    yield state, *made


@_every_case
def test_scan_is_a_plain_loop(name, store, networks):
  _, variables, infer = _case(name, store, networks)
  inputs = _data(3)
  result = infer(variables, *inputs)
  frames = inputs[0]
  loop = _plain_loop(name, store, networks, inputs)
  for t, (_, step, prior, decoded) in enumerate(loop):
    p = np.asarray(decoded.mean, np.float64)
    x = frames[t].astype(np.float64)
    plain = (x * np.log(p) + (1 - x) * np.log1p(-p)).sum((1, 2, 3))
    np.testing.assert_allclose(
      result.terms.log_likelihood[t], plain, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
      result.terms.kl[t],
      kl_divergence(step.posterior, prior),
      rtol=1e-5,
      atol=1e-5,
    )
    np.testing.assert_allclose(result.frames[t], decoded.mean, atol=1e-5)
    jax.tree.map(
      lambda scanned, looped: np.testing.assert_allclose(
        scanned, looped, rtol=1e-5, atol=1e-5
      ),
      jax.tree.map(lambda leaf, t=t: leaf[t], (result.steps, result.prior)),
      (step, prior),
    )


@pytest.mark.parametrize('name', ['introspective', 'dnc'])
def test_watching_shows_the_core_of_every_step_of_a_plain_loop(name):
  model, variables, infer = _case(name, 'sample', 'dense')
  inputs = _data(9)
  cores, contexts, stored = jax.jit(
    functools.partial(free_energy.watch, model)
  )(variables, *inputs)
  loop = _plain_loop(name, 'sample', 'dense', inputs)
  for t, (state, step, *_) in enumerate(loop):
    jax.tree.map(
      lambda watched, looped, t=t: np.testing.assert_allclose(
        watched[t], looped, rtol=1e-5, atol=1e-5
      ),
      (cores, contexts, stored),
      (state.core, step.context, state.stored_tm1),
    )
  if name == 'introspective':
    # Slot n of step t holds the latent of n + 1 steps before.
    z = infer(variables, *inputs).steps.z
    np.testing.assert_allclose(cores.memory[-1, :, 1], z[-3], rtol=1e-5)
    np.testing.assert_array_equal(cores.memory[2, :, 2:], 0.0)


@pytest.mark.parametrize(('name', 'store', 'networks'), _FEW)
def test_batch_is_its_sequences(name, store, networks):
  _, variables, infer = _case(name, store, networks)
  inputs = _data(4)
  together = infer(variables, *inputs)
  for b in range(_BATCH):
    # Beside copies of itself, in a batch of the same size.
    copies = infer(variables, *(x[:, [b] * _BATCH] for x in inputs))
    jax.tree.map(
      lambda one, many, b=b: np.testing.assert_allclose(
        one[:, b], many[:, b], rtol=1e-5, atol=1e-5
      ),
      (copies.terms, copies.steps, copies.frames),
      (together.terms, together.steps, together.frames),
    )


def test_negative_bound_is_the_sum_over_time():
  rng = np.random.default_rng(0)
  log_likelihood, kl = rng.normal(size=(2, _LENGTH, _BATCH))
  bound = free_energy.negative_bound(free_energy.Terms(log_likelihood, kl))
  expected = [
    sum(kl[t, b] - log_likelihood[t, b] for t in range(_LENGTH))
    for b in range(_BATCH)
  ]
  np.testing.assert_allclose(bound, expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('name', 'store', 'networks'), [case for case in _CASES if 'denoised' in case]
)
def test_training_alone_moves_running_averages(name, store, networks):
  _, variables, infer = _case(name, store, networks)
  inputs = _data(5)
  averages = variables.get('batch_stats', {})
  still = infer(variables, *inputs)
  jax.tree.map(np.testing.assert_array_equal, averages, still.batch_stats)
  moved = infer(variables, *inputs, train=True)
  assert all(
    (np.asarray(old) != np.asarray(new)).any()
    for old, new in zip(
      jax.tree.leaves(averages),
      jax.tree.leaves(moved.batch_stats),
      strict=True,
    )
  )
  variance = np.exp(2.0 * np.asarray(moved.steps.posterior.log_scale))
  np.testing.assert_allclose(
    moved.batch_stats['posterior_variance'],
    0.99 * averages['posterior_variance'] + 0.01 * variance.mean((0, 1)),
    rtol=1e-5,
  )


def test_batch_normalisation_is_over_all_frames_of_the_batch():
  _, variables, infer = _case('introspective', 'denoised', 'digit')
  inputs = _data(6)
  averages, params = variables['batch_stats'], variables['params']
  moved = infer(variables, *inputs, train=True).batch_stats
  streams = convolutions.ParallelStreams().apply(
    {'params': params['posterior_map']['encoder']['streams_1']},
    2.0 * inputs[0] - 1.0,
  )
  streams = np.asarray(streams, np.float64).reshape(-1, streams.shape[-1])
  before, after = (
    x['posterior_map']['encoder']['norm_1'] for x in (averages, moved)
  )
  for name, now in (('mean', streams.mean(0)), ('var', streams.var(0))):
    np.testing.assert_allclose(
      after[name], 0.99 * before[name] + 0.01 * now, rtol=1e-4, atol=1e-5
    )


def test_in_training_batch_statistics_mix_sequences():
  _, variables, infer = _case('introspective', 'denoised', 'digit')
  frames, condition, noise = _data(7)
  other = frames.copy()
  other[:, 0] = 1.0 - other[:, 0]
  for train in (False, True):
    before, after = (
      infer(variables, x, condition, noise, train=train).terms
      for x in (frames, other)
    )
    differs = np.asarray(before.kl[:, 1:]) != np.asarray(after.kl[:, 1:])
    assert differs.all() if train else not differs.any()
  # Copies of one frame have no variance; the terms stay finite.
  flat = np.zeros_like(frames)
  terms = infer(variables, flat, condition, noise, train=True).terms
  assert np.isfinite(terms).all()


@functools.cache
def _gradient(name, store, networks, recompute):
  """Compiles the bound, its inference and its gradient, of 5 steps.

  They are two segments and a rest.
  """
  model, variables, _ = _case(name, store, networks)

  def bound(params, *data):
    inference = free_energy.infer(
      model,
      {**variables, 'params': params},
      *(x[:5] for x in data),
      train=True,
      recompute=recompute,
    )
    return free_energy.negative_bound(inference.terms).mean(), inference

  gradient = jax.jit(jax.value_and_grad(bound, has_aux=True))
  return functools.partial(gradient, variables['params'])


@pytest.mark.parametrize(
  'case', [_FEW[0], pytest.param(_FEW[-1], marks=pytest.mark.slow)]
)
def test_gradients_are_finite(case):
  gradient = _gradient(*case, 'nothing')
  frames, condition, noise = _data(8)
  for x, scale in ((frames, 1.0), (0 * frames, 1.0), (frames > 0.5, 30.0)):
    _, gradients = gradient(x.astype(np.float32), condition, scale * noise)
    for path, leaf in jax.tree.leaves_with_path(gradients):
      assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
  # Nothing that is trained is left out of the bound.
  _, gradients = gradient(frames, condition, noise)
  for path, leaf in jax.tree.leaves_with_path(gradients):
    assert np.any(leaf), jax.tree_util.keystr(path)


@pytest.mark.parametrize(
  ('case', 'recompute'),
  slow_cases.but_for(
    [(_FEW[0], 'everything'), (_FEW[1], 'steps')],
    [(_FEW[0], 'everything'), (_FEW[1], 'steps'), (_FEW[2], 'everything')],
  ),
)
def test_rematerialising_changes_nothing(case, recompute):
  jax.tree.map(
    lambda one, other: np.testing.assert_allclose(
      one, other, rtol=1e-3, atol=1e-4
    ),
    _gradient(*case, 'nothing')(*_data()),
    _gradient(*case, recompute)(*_data()),
  )


@pytest.mark.parametrize(
  ('networks', 'recompute', 'share'),
  [('dense', 'steps', 0.75), ('digit', 'everything', 0.3)],
)
def test_rematerialising_needs_fewer_residuals(networks, recompute, share):
  store = 'sample' if networks == 'dense' else 'denoised'
  model, variables, _ = _case('introspective', store, networks)
  data = [np.concatenate(10 * [x]) for x in _data()]

  def bytes_of(recompute):
    def bound(params):
      inference = free_energy.infer(
        model,
        {**variables, 'params': params},
        *data,
        train=True,
        recompute=recompute,
      )
      return free_energy.negative_bound(inference.terms).mean()

    _, backward = jax.eval_shape(
      lambda params: jax.vjp(bound, params), variables['params']
    )
    # The arrays that going back needs, the parameters among them.
    return sum(leaf.size for leaf in jax.tree.leaves(backward))

  assert bytes_of(recompute) < share * bytes_of('nothing')


def test_recompute_has_three_values():
  model, variables, _ = _case('introspective', 'sample', 'dense')
  with pytest.raises(ValueError, match='nothing or steps or everything'):
    free_energy.infer(model, variables, *_data(), recompute='all')
