"""Logits by position: one for each slot, or a function of the position.

Pure functions. A position p = 0, 1, 2 .. is an age or a number of arrival. In
the form 'table' a head's query has one logit for each slot. In the form
'fourier' it has numbers a, b [F], o, r and s, however many slots there are:

  logit(p) = sum_j (a_j cos(w_j p) + b_j sin(w_j p)) / sqrt(F) + o
             - slope max(p - reach, 0),   w_j = pi (j / F)^1.5,  j = 1 .. F
  reach = INITIAL_REACH softplus(r) / log 2,   slope likewise of s

The sum is the product of a query and sinusoidal features of p (Vaswani et al.
2017, section 3.5, https://arxiv.org/abs/1706.03762). One for position q, a_j =
cos(w_j q) and b_j = sin(w_j q), depends on p - q alone: in a ring buffer it is
turned by the number of what has arrived, as rotary embeddings are (Su et al.
2021, https://arxiv.org/abs/2104.09864), and so need not be computed anew for
each sequence's numbers. Their frequencies are powers, by which neighbours look
alike; with ours the features of any 25 successive positions are independent
(condition number 2), so that a head can read one slot or several as sharply as
with a table.

Beyond the positions of training a sum of waves is small, but not zero: below a
fourth of its peak over 100 positions. So beyond a head's reach its logit falls
by its slope for each further position, and can have no peak far away. Both are
the head's own and depend on the state, as the spans of Sukhbaatar et al. 2019
do (https://arxiv.org/abs/1905.07799).
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from gtmm_jax.memory import addressing, derivatives, gradients

Array = jax.Array
Positions = Literal['table', 'fourier']

# F.
FREQUENCIES = 32
# In positions, and for each position, where r and s are zero.
INITIAL_REACH = 10.0
INITIAL_SLOPE = 0.15


def query_size(form: Positions, slots: int) -> int:
  """Returns how many numbers a head's query has, Q."""
  return slots if form == 'table' else 2 * FREQUENCIES + 3


def by_age(form: Positions, slots: int, query: Array) -> Array:
  """Computes logits by age.

  Args:
    form: of the logits.
    slots: N.
    query: of each head, [..., R, Q].

  Returns:
    Logits [..., R, N]: at n, of what arrived n steps before the newest.
  """
  if form == 'table':
    return query
  ages = addressing.counting(slots, query[..., :1])
  return _waves(query[..., : 2 * FREQUENCIES], slots) + _ramp(query, ages)


def by_arrival(
  form: Positions, slots: int, query: Array, stored: Array
) -> Array:
  """Computes logits by number of arrival, over the slots of a ring buffer.

  Args:
    form: of the logits.
    slots: N.
    query: of each head, [..., R, Q].
    stored: how many have arrived, int32 [...].

  Returns:
    Logits [..., R, N]: at n, of what slot n holds (`contract.write_to_ring`).
    The first to arrive has position 0; a table starts again after N. Mask the
    slots that are empty.
  """
  if form == 'table':
    return query
  newest = (stored - 1)[..., None, None]
  numbers = newest - addressing.counting(slots, newest)
  logits = _waves(_turned(query, newest), slots)
  return by_slot(logits + _ramp(query, numbers.astype(query.dtype)), stored)


def frequencies() -> np.ndarray:
  """Returns w [F] in radians for each position, ascending to pi, float64."""
  return np.pi * (np.arange(1, FREQUENCIES + 1) / FREQUENCIES) ** 1.5


def _waves(coefficients: Array, slots: int) -> Array:
  """Sums waves of coefficients [..., 2 F] at 0 .. N - 1, [..., N]."""
  angles = np.arange(slots)[:, None] * frequencies()
  features = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
  features = jnp.asarray(features / FREQUENCIES**0.5, coefficients.dtype)
  return jnp.einsum('...f,nf->...n', coefficients, features)


def _turned(query: Array, newest: Array) -> Array:
  """Returns coefficients by age, [..., 2 F], for waves by `newest` - age."""
  # bfloat16 has too few digits for angles.
  precise = newest.astype(addressing.at_least_single(query.dtype))
  w = addressing.aligned(jnp.asarray(frequencies(), precise.dtype), precise)
  cos, sin = (f(w * precise).astype(query.dtype) for f in (jnp.cos, jnp.sin))
  a, b = query[..., :FREQUENCIES], query[..., FREQUENCIES : 2 * FREQUENCIES]
  return jnp.concatenate([a * cos + b * sin, a * sin - b * cos], axis=-1)


def _ramp(query: Array, position: Array) -> Array:
  """Computes o - slope max(p - reach, 0) at positions [..., N]."""
  offset, r, s = (query[..., n, None] for n in (-3, -2, -1))
  reach = INITIAL_REACH / math.log(2) * jax.nn.softplus(r)
  slope = INITIAL_SLOPE / math.log(2) * jax.nn.softplus(s)
  return offset - slope * jax.nn.relu(position - reach)


def by_slot(by_age: Array, stored: Array) -> Array:
  """Reorders values by age into values by slot; [..., R, N] both.

  Slot n holds the latent that is (stored - 1 - n) mod N steps old.
  """
  slots, stored = by_age.shape[-1], stored[..., None]
  age = (stored - 1 - addressing.counting(slots, stored)) % slots
  return _take_by_age(by_age, age[..., None, :])


@derivatives.with_backward(gradients.take_by_age)
def _take_by_age(by_age: Array, age: Array) -> Array:
  return jnp.take_along_axis(by_age, age, axis=-1)
