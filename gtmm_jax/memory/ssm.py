"""A state-space model: layers of diagonal linear recurrences.

Orvieto et al. 2023, "Resurrecting recurrent neural networks for long
sequences", https://arxiv.org/abs/2303.06349. They call the recurrence Linear
Recurrent Unit, LRU; here `LRU` is the memory with least recently used access,
so that the core is named for its family.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gtmm_jax.memory import addressing, contract, scan

Array = jax.Array

# Below every radius and phase, with a finite logarithm.
_TINY = 1e-30


class SSMState(NamedTuple):
  """State of L layers with S complex numbers each.

  Attributes:
    real: real parts of s_t, [..., L, S].
    imaginary: imaginary parts of s_t, [..., L, S].
  """

  real: Array
  imaginary: Array


class SSM(nn.RNNCellBase):
  """Diagonal linear recurrences with nonlinear maps between them.

  The input becomes a vector x of C features. Each of L layers has a state s of
  S complex numbers, which it advances without a nonlinearity, and adds to x
  what a gated layer makes of the state (Orvieto et al. 2023, section 3 and
  figure 1):

    u_t = norm(x_t)
    s_t = lambda * s_{t-1} + gamma * (B u_t)
    y_t = Re(C s_t) + d * u_t
    x_t <- x_t + W_1 gelu(y_t) * sigmoid(W_2 gelu(y_t) + b)

  where norm(x) = g x / sqrt(mean(x^2)), and g is learned. The context is
  norm(x_t) after the last layer. All of s_t's absolute eigenvalues |lambda| =
  exp(-exp(nu)) are below 1, so that the state is bounded for bounded inputs,
  however long the sequence.

  At the start |lambda| is uniform on a ring between `least_radius` and
  `greatest_radius`, the phase of lambda uniform from 0 to `greatest_phase`, and
  gamma = sqrt(1 - |lambda|^2) lets all numbers of the state have the same
  variance (sections 3.3 and 3.4). nu, the logarithm of the phase, and that of
  gamma are learned. B and C are Gaussian with variances 1 / (2 C) and 1 / S for
  each of their two parts.

    core = SSM(size=64)
    carry = core.initialize_carry(key, (batch, features))
    carry, context = core.apply(variables, carry, inputs)

  Attributes:
    size: C, features of the context.
    state_size: S.
    layers: L.
    least_radius: of eigenvalues at the start, in [0, greatest_radius).
    greatest_radius: of eigenvalues at the start, below 1.
    greatest_phase: of eigenvalues at the start, in radians, above 0, at most
      2 pi.
  """

  size: int
  state_size: int = 128
  layers: int = 4
  least_radius: float = 0.9
  greatest_radius: float = 0.999
  greatest_phase: float = 6.28

  num_feature_axes = 1

  @nn.compact
  def __call__(self, carry: SSMState, inputs: Array) -> tuple[SSMState, Array]:
    """Advances one step: `inputs [..., I]` -> context `[..., C]`."""
    inputs = contract.check_call(self, carry, inputs)
    x = scan.dense(self.size, dtype=inputs.dtype, name='embedding')(inputs)
    parts = []
    for layer in range(self.layers):
      name = f'layer_{layer}'
      u = contract.normalise(self, x, f'{name}_norm')
      y, *state = self._advance(
        carry.real[..., layer, :], carry.imaginary[..., layer, :], u, name
      )
      parts.append(state)
      x = x + self._mixed(nn.gelu(y), name)
    real, imaginary = (
      jnp.stack(part, axis=-2) for part in zip(*parts, strict=True)
    )
    return SSMState(real, imaginary), contract.normalise(
      self, x, 'context_norm'
    )

  def _advance(
    self, real: Array, imaginary: Array, u: Array, name: str
  ) -> tuple[Array, Array, Array]:
    """Returns y_t [..., C] and both parts of s_t, [..., S]."""
    turn_real, turn_imaginary, gamma = (
      addressing.aligned(part, u) for part in self._recurrence(u.dtype, name)
    )
    # Both parts of B u_t, from one product.
    given = scan.dense(
      2 * self.state_size,
      use_bias=False,
      kernel_init=_gaussian(0.5),
      dtype=u.dtype,
      name=f'{name}_B',
    )(u)
    given_real, given_imaginary = jnp.split(given, 2, axis=-1)
    real, imaginary = (
      turn_real * real - turn_imaginary * imaginary + gamma * given_real,
      turn_real * imaginary + turn_imaginary * real + gamma * given_imaginary,
    )
    # Re(C s) is a real product with both parts of s, one sign in C.
    y = scan.dense(
      self.size,
      use_bias=False,
      kernel_init=_gaussian(2.0),
      dtype=u.dtype,
      name=f'{name}_C',
    )(jnp.concatenate([real, imaginary], axis=-1))
    d = self.param(
      f'{name}_d', nn.initializers.normal(1.0), (self.size,), jnp.float32
    )
    return y + addressing.aligned(d.astype(u.dtype), u) * u, real, imaginary

  def _recurrence(self, dtype: Any, name: str) -> list[Array]:
    """Returns both parts of lambda, and gamma, all [S], in a dtype."""
    least, greatest = self.least_radius**2, self.greatest_radius**2

    def first_nu(key):
      square = jax.random.uniform(
        key, (self.state_size,), jnp.float32, least, greatest
      )
      # The logarithm of a radius of 0 would not be finite.
      return jnp.log(-0.5 * jnp.log(jnp.maximum(square, _TINY)))

    def first_log_phase(key):
      return jnp.log(
        jax.random.uniform(
          key, (self.state_size,), jnp.float32, _TINY, self.greatest_phase
        )
      )

    def first_log_gamma(_):
      return 0.5 * jnp.log(-jnp.expm1(-2.0 * jnp.exp(nu)))

    nu = self.param(f'{name}_nu', first_nu)
    log_phase = self.param(f'{name}_log_phase', first_log_phase)
    log_gamma = self.param(f'{name}_log_gamma', first_log_gamma)
    # An eigenvalue near 1 in absolute value needs more digits than bfloat16's.
    wide = addressing.at_least_single(dtype)
    radius = jnp.exp(-jnp.exp(nu.astype(wide)))
    phase = jnp.exp(log_phase.astype(wide))
    parts = (
      radius * jnp.cos(phase),
      radius * jnp.sin(phase),
      jnp.exp(log_gamma.astype(wide)),
    )
    return [part.astype(dtype) for part in parts]

  def _mixed(self, x: Array, name: str) -> Array:
    """Mixes the features of x [..., C] by a gated linear layer."""
    both = scan.dense(2 * self.size, dtype=x.dtype, name=f'{name}_mixing')(x)
    value, gate = jnp.split(both, 2, axis=-1)
    return value * nn.sigmoid(gate)

  @nn.nowrap
  def initialize_carry(
    self, rng: Array, input_shape: tuple[int, ...]
  ) -> SSMState:
    """Makes zeros with the leading axes of `input_shape`; ignores `rng`.

    Raises:
      ValueError: a setting is wrong; names it and what is allowed.
    """
    del rng
    contract.check_settings(self)
    if not 0 <= self.least_radius < self.greatest_radius < 1:
      raise ValueError(
        f'least_radius is {self.least_radius} and greatest_radius '
        f'{self.greatest_radius}; they must rise, from 0 on and below 1.'
      )
    if not 0 < self.greatest_phase <= 2 * math.pi:
      raise ValueError(
        f'greatest_phase is {self.greatest_phase}; it must be above 0 and at '
        f'most 2 pi.'
      )
    shape = (*input_shape[:-1], self.layers, self.state_size)
    return SSMState(contract.zeros(*shape), contract.zeros(*shape))


def _gaussian(variance: float) -> nn.initializers.Initializer:
  """Returns a Gaussian initializer of variance `variance` / inputs."""
  return nn.initializers.variance_scaling(variance, 'fan_in', 'normal')
