"""What one time step of each memory core costs, by hand.

Plain numbers, no jax; `arithmetic` adds them up and says what is counted.
"""

from typing import NamedTuple

from arithmetic_layers import Layer, dense, perceptron
from gtmm_jax import presets

_SHIFTS = 3
# Erasing and adding to one number of a memory: (1 - w e) m + w a.
_WRITE_OPERATIONS = 5
# A number of the link: (1 - w_i - w_j) l + w_i p_j, with 1 - w_i at hand.
_LINK_OPERATIONS = 4


class Core(NamedTuple):
  """Layers of a core, for one time step of one sequence.

  Attributes:
    controller: the LSTM, and the linear summary of what it is given.
    addressing: from the controller to weights, the interface included.
    links: of the DNC: its N x N links, and following them.
    memory: reads and writes.
    context_size: P.
  """

  controller: list[Layer]
  addressing: list[Layer]
  links: list[Layer]
  memory: list[Layer]
  context_size: int


def core(
  model: str, preset: presets.Preset, slots: int, condition_size: int
) -> Core:
  """The layers of a model's core.

  Args:
    model: one of `presets.MODELS`.
    preset: its sizes.
    slots: N of its memory.
    condition_size: A, of the paper's c_t.
  """
  hidden = preset.controller_size[model]
  latent, heads = preset.latent_size, preset.read_heads
  condition = Layer(moved=2 * condition_size)
  if model == 'vrnn':
    inputs = 3 * latent + condition_size
    return Core([condition, _lstm(inputs, hidden)], [], [], [], hidden)
  if model == 'introspective':
    context, attention = heads * latent, preset.attention_size
    return Core(
      controller=[condition, _lstm(latent + condition_size, hidden)],
      addressing=[
        *perceptron((hidden, attention, heads * slots)),
        dense(hidden, context),
      ],
      links=[],
      # Words are latents, which the posterior keeps. What was retrieved is kept
      # before its gate and after it.
      memory=[Layer(2 * heads * slots * latent, moved=4 * context)],
      context_size=context,
    )
  if model == 'associative':
    return _associative_core(preset, slots, condition_size)
  return _writing_core(model, preset, slots, condition_size)


def _associative_core(
  preset: presets.Preset, slots: int, condition_size: int
) -> Core:
  """The associative memory, reading all slots by all three addressings."""
  hidden, heads = preset.controller_size['associative'], preset.read_heads
  stored, key = preset.summary_size or preset.latent_size, preset.key_size
  seen, retrieved = stored + condition_size + hidden, heads * stored
  places, keys = heads * slots, slots * key
  return Core(
    controller=[
      Layer(moved=2 * condition_size),
      *_summary(preset),
      _lstm(stored + condition_size, hidden),
    ],
    addressing=[
      *perceptron((seen, preset.attention_size, 2 * places)),
      dense(seen, key, bias=False),
      dense(seen, heads * key),
      # Strengths and successions; shares.
      dense(hidden, 2 * heads),
      dense(hidden, 3 * heads),
      dense(hidden, retrieved),
      # Cosines; weights of each addressing, and what they are mixed to. Cosines
      # times strengths, and what follows the last read, times another, added.
      Layer(2 * heads * keys, moved=2 * 5 * places),
      Layer(3 * places, moved=2 * places),
      Layer(2 * 3 * places),
    ],
    links=[],
    memory=[Layer(2 * places * stored, moved=4 * retrieved)],
    context_size=retrieved + hidden,
  )


def _summary(preset: presets.Preset) -> list[Layer]:
  """The linear map of what is stored, where the preset has one."""
  if not preset.summary_size:
    return []
  return [dense(preset.latent_size, preset.summary_size, bias=False)]


def _writing_core(
  model: str, preset: presets.Preset, slots: int, condition_size: int
) -> Core:
  """NTM, LRU and DNC, which are given words and one linear map of h_t."""
  heads, word = preset.read_heads, preset.word_size
  hidden = preset.controller_size[model]
  stored = preset.summary_size or preset.latent_size
  inputs = stored + condition_size + heads * word
  places, numbers = heads * slots, slots * word
  # The LRU's writes are not addressed by content.
  content_heads = heads if model == 'lru' else heads + 1
  # Weights of all heads; usage, but of the NTM; the DNC's order of the slots.
  weights = places + {'ntm': 1, 'lru': 2, 'dnc': 3}[model] * slots
  links = []
  if model == 'dnc':
    links = [
      Layer(_LINK_OPERATIONS * slots**2, moved=2 * (slots**2 + slots)),
      Layer(4 * heads * slots**2, moved=4 * places),
    ]
  return Core(
    controller=[
      Layer(moved=2 * condition_size),
      *_summary(preset),
      _lstm(inputs, hidden),
    ],
    addressing=[
      dense(hidden, _asked(model, preset)),
      dense(hidden + stored, word - stored),
      dense(hidden + stored, heads * word),
      Layer(
        2 * content_heads * numbers,
        moved=2 * (2 * content_heads * slots + weights),
      ),
      # Norms of the slots.
      Layer(2 * numbers, passes=2),
    ],
    links=links,
    memory=[
      # The LRU's heads all write one word: their weights can be added up first.
      Layer(_WRITE_OPERATIONS * numbers, moved=2 * numbers),
      Layer(2 * heads * numbers, moved=2 * heads * word),
    ],
    context_size=heads * word + hidden,
  )


def _asked(model: str, preset: presets.Preset) -> int:
  """Width of what is asked of a memory beside words, tag and read keys."""
  heads, word = preset.read_heads, preset.word_size
  if model == 'ntm':
    # A strength, gate, power and shifts of all heads; write key and erase.
    return (heads + 1) * (3 + _SHIFTS) + 2 * word
  if model == 'lru':
    return heads * (1 if preset.lru_strength == 'none' else 2)
  # A strength, free gate and three modes of read heads; strength and two gates
  # of the write head, its key and erase.
  return 5 * heads + 3 + 2 * word


def _lstm(inputs: int, hidden: int) -> Layer:
  """One product; four gates, cell and output are kept."""
  gates = dense(inputs + hidden, 4 * hidden)
  return gates._replace(moved=gates.moved + 4 * hidden)
