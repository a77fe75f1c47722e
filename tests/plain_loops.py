"""Parts that slow float64 loops share: of word-writing cores, of particles."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softplus(x):
  return np.log(1 + np.exp(x))


def affine(layer, x):
  return x @ layer['kernel'] + layer['bias']


def cosine(key, slot):
  """Returns the cosine of two vectors, with the epsilons of the addressing."""
  product = sum(k * m for k, m in zip(key, slot, strict=True))
  of_key = math.sqrt(sum(k * k for k in key) + 1e-6)
  of_slot = math.sqrt(sum(m * m for m in slot) + 1e-6)
  return product / (of_key * of_slot + 1e-6)


def wave_logit(query, position):
  """Computes a head's logit at a position, of the form 'fourier'."""
  *waves, offset, r, s = query
  size = len(waves) // 2
  reach, slope = (
    10 * softplus(r) / math.log(2),
    0.15 * softplus(s) / math.log(2),
  )
  total = 0.0
  for j in range(size):
    angle = math.pi * ((j + 1) / size) ** 1.5 * position
    total += waves[j] * math.cos(angle) + waves[size + j] * math.sin(angle)
  return total / math.sqrt(size) + offset - slope * max(position - reach, 0.0)


def by_content(memory, key, strength):
  """Computes the content weights [N] of one head."""
  powers = np.array([math.exp(strength * cosine(key, m)) for m in memory])
  return powers / powers.sum()


def random_parameters(core, width: int, parts: dict) -> dict:
  """Draws float64 parameters of every layer by name.

  Args:
    core: an NTM, LRU or DNC.
    width: of its inputs.
    parts: shapes of the parts of its linear map of h_t, by name and in order.
  """
  generator = np.random.default_rng(0)

  def layer(rows, columns):
    return {
      'kernel': generator.normal(size=(rows, columns)),
      'bias': generator.normal(size=columns),
    }

  size, latent, word = core.controller_size, core.latent_size, core.word_size
  reads = core.read_heads * word
  interface = {
    'linear': layer(size, sum(math.prod(shape) for shape in parts.values()))
  }
  if latent:
    interface['tag'] = layer(size + latent, word - latent)
    interface['read_keys'] = layer(size + latent, reads)
  parameters = {
    'controller': layer(width + reads + size, 4 * size),
    'interface': interface,
  }
  if core.initial_memory == 'learned':
    parameters['initial_memory'] = generator.normal(size=(core.slots, word))
  return {'params': parameters}


def initial(core, width: int, choose=lambda parameters: parameters):
  """Returns initial parameters; only those that `choose` takes are computed."""

  @jax.jit
  def compute(key):
    x = jnp.zeros(width)
    carry = core.initialize_carry(key, x.shape)
    return choose(core.init(key, carry, x)['params'])

  return compute(jax.random.key(2))


def cut(parts: dict, flat):
  """Splits the output of the linear map of h_t into its parts by name."""
  raw = {}
  for name, shape in parts.items():
    piece, flat = np.split(flat, [math.prod(shape)])
    raw[name] = piece.reshape(shape)
  assert not flat.size
  return raw


def control(layer, x, reads, cell, h):
  """Computes the LSTM's next cell and output from inputs and the last reads."""
  inputs = np.concatenate([x, reads.reshape(-1), h])
  i, f, g, o = np.split(affine(layer, inputs), 4)
  cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
  return cell, sigmoid(o) * np.tanh(cell)


def first_tag(core):
  """Returns the first tag, zeros; None if no latents are stored."""
  return (
    np.zeros(core.word_size - core.latent_size) if core.latent_size else None
  )


def question(core, parameters, h, x, tag):
  """Computes the word that holds a latent, the read keys and the new tag."""
  latent = x[: core.latent_size]
  inputs = np.concatenate([h, latent])
  word = np.concatenate([latent, tag])
  tag = affine(
    parameters['tag'], np.concatenate([core.controller_weight * h, latent])
  )
  tag_key = np.concatenate([np.zeros_like(latent), tag])
  correction = affine(parameters['read_keys'], inputs)
  keys = tag_key + correction.reshape(core.read_heads, core.word_size)
  return word, keys, tag


def assert_fields_close(carry, expected, t, **close):
  """Compares fields of a core's carry with those of a slow loop at step t."""
  for name, value in expected.items():
    actual = getattr(carry, name)
    if value is None:
      assert actual is None, name
    else:
      np.testing.assert_allclose(
        actual, value, **close, err_msg=f'{name} at {t}'
      )


def squash(core):
  """Returns the activation of keys and vectors that are linear in h_t."""
  return np.tanh if core.key_activation == 'tanh' else np.array


def label(settings: dict) -> str:
  """Names a test's case by its settings."""
  return '-'.join(f'{k}={v}' for k, v in settings.items()) or 'defaults'


def systematic(weights, offset):
  """Draws as many ancestors as there are weights, in float64."""
  weights = np.float64(weights) / np.sum(weights, dtype=np.float64)
  ancestors, ancestor, passed = [], 0, weights[0]
  for number in range(len(weights)):
    while passed <= (number + offset) / len(weights):
      ancestor += 1
      passed += weights[ancestor]
    ancestors.append(ancestor)
  return ancestors
