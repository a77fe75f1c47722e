"""One step of the memory of the differentiable neural computer.

Graves et al. 2016, Methods. Pure functions of a state and of what is asked.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gtmm_jax.memory import addressing, allocation, contract
from gtmm_jax.memory.lstm import LSTMState

Array = jax.Array


class DNCGates(NamedTuple):
  """The gates of one step, all in [0, 1].

  Attributes:
    free: whether what was just read may be overwritten, [..., R].
    allocation: whether a write goes to free slots or by content, [..., H].
    write: whether it is written at all, [..., H].
    read_modes: of each head's read, summing to one: backward along each write
      head's links, by content, forward along each, [..., R, H + 1 + H].
  """

  free: Array
  allocation: Array
  write: Array
  read_modes: Array


class DNCInterface(NamedTuple):
  """What the controller asks of the memory in one step, activated.

  Attributes:
    read_keys: [..., R, W].
    read_strengths: >= 0, [..., R].
    write_keys: [..., H, W].
    write_strengths: >= 0, [..., H].
    erase: in [0, 1], [..., H, W].
    write_vectors: [..., H, W].
    gates: see `DNCGates`.
  """

  read_keys: Array
  read_strengths: Array
  write_keys: Array
  write_strengths: Array
  erase: Array
  write_vectors: Array
  gates: DNCGates


class DNCState(NamedTuple):
  """State of a DNC of N slots of W words, R read heads and H write heads.

  Attributes:
    controller: the LSTM's state.
    memory: [..., N, W].
    usage: in [0, 1], [..., N].
    link: [..., H, N, N].
    precedence: [..., H, N].
    read_weights: [..., R, N]; each head's sum is at most one.
    write_weights: [..., H, N]; each head's sum is at most one.
    reads: what was read last, [..., R, W].
    gates: of the last step.
    tag: of the last step, [..., W - Z]; None unless latents are stored.
    calls: how many inputs the core has seen, int32 [...].
  """

  controller: LSTMState
  memory: Array
  usage: Array
  link: Array
  precedence: Array
  read_weights: Array
  write_weights: Array
  reads: Array
  gates: DNCGates
  tag: Array | None
  calls: Array


def access(
  state: DNCState,
  asked: DNCInterface,
  *,
  reads: contract.Reads = 'after',
  usage_gradient: bool = True,
) -> DNCState:
  """One step of the memory: finds room, writes, links, and reads.

  Args:
    state: of the step before; controller, tag and calls are passed on.
    asked: of this step.
    reads: 'after' the write, from M_t and L_t (the DNC's paper), or 'before'
      it, from M_{t-1} and L_{t-1} (Gemici et al. 2017, section 3.2).
    usage_gradient: whether the gradient flows from the usage to the write
      weights before it; DeepMind's program stops it, the paper does not.

  Returns:
    The state after the step.
  """
  if reads == 'after':
    return _read(_write(state, asked, usage_gradient), state, asked)
  weights = _read(state, state, asked)
  written = _write(state, asked, usage_gradient)
  return written._replace(
    read_weights=weights.read_weights, reads=weights.reads
  )


def _write(
  state: DNCState, asked: DNCInterface, usage_gradient: bool
) -> DNCState:
  """The memory after this step's write; reads are left as they were."""
  gates = asked.gates
  written_tm1 = state.write_weights
  if not usage_gradient:
    written_tm1 = jax.lax.stop_gradient(written_tm1)
  usage = allocation.update_usage(
    state.usage, written_tm1, gates.free, state.read_weights
  )
  free = allocation.write_allocation_weights(
    usage, gates.allocation * gates.write
  )
  by_content = addressing.content_weights(
    asked.write_keys, state.memory, asked.write_strengths
  )
  weights = gates.write[..., None] * addressing.interpolate(
    gates.allocation, free, by_content
  )
  return state._replace(
    memory=addressing.erase_and_add(
      state.memory, weights, asked.erase, asked.write_vectors
    ),
    usage=usage,
    link=allocation.update_link(state.link, weights, state.precedence),
    precedence=allocation.update_precedence(state.precedence, weights),
    write_weights=weights,
    gates=gates,
  )


def _read(source: DNCState, state: DNCState, asked: DNCInterface) -> DNCState:
  """`source` with what is read from it, from where `state` read last."""
  modes, heads = asked.gates.read_modes, source.link.shape[-3]
  by_content = addressing.content_weights(
    asked.read_keys, source.memory, asked.read_strengths
  )
  forward, backward = allocation.follow_links(source.link, state.read_weights)
  weights = (
    modes[..., heads, None] * by_content
    + jnp.einsum('...rh,...rhn->...rn', modes[..., :heads], backward)
    + jnp.einsum('...rh,...rhn->...rn', modes[..., heads + 1 :], forward)
  )
  return source._replace(
    read_weights=weights, reads=addressing.read(source.memory, weights)
  )
