"""Words for flags and their values in figures and tables."""

from __future__ import annotations

_NAMES = {
  'vrnn': 'VRNN',
  'introspective': 'introspection network',
  'ntm': 'NTM',
  'lru': 'LRU',
  'dnc': 'DNC',
  'associative': 'associative memory',
  'ssm': 'state-space model',
  'one_shot_recall': 'one-shot recall',
  'similarity_cued_recall': 'similarity-cued recall',
  # A core of the copy task.
  'lstm': 'LSTM',
}
_PARTS = {
  'age': 'reads by age',
  'arrival': 'reads by order of arrival',
  'content': 'reads by content',
  'shared_keys': 'a map common to keys and queries',
  'controller_keys': "the controller's state in keys",
  'succession': 'going on from the last read',
}
_STORED = {
  'sample': 'given samples',
  'mean': 'given means',
  'denoised': 'given denoised latents',
}


def in_print(label: str) -> str:
  """Puts a label made of flags, such as a study's cell, into words.

  Args:
    label: values of `--model` and FLAG=VALUE, joined by '-'.

  Returns:
    The names of models and words for flags; a label without any is unchanged.
  """
  pieces: list[str] = []
  for piece in label.split('-'):
    # The hyphen of a number, as in 5e-05 or -1, belongs to the value before it.
    is_number = not piece.isidentifier() and '=' not in piece
    if is_number and pieces and '=' in pieces[-1]:
      piece = f'{pieces.pop()}-{piece}'
    pieces.append(piece)
  words = [_piece(piece) for piece in pieces]
  # In labels without flags, hyphens stay.
  return ', '.join(words) if words != pieces else label


def _piece(piece: str) -> str:
  """Puts the name of a model, or FLAG=VALUE, into words."""
  flag, is_flag, value = piece.partition('=')
  match flag:
    case 'without' if value == 'none':
      return 'nothing left out'
    case 'without':
      parts = [_PARTS.get(part, part) for part in value.split(',')]
      return f'without {" and ".join(parts)}'
    case 'top_k' if value == '0':
      return 'reading all slots'
    case 'top_k':
      return f'reading {value} slots by each addressing'
    case 'store':
      return _STORED.get(value, piece)
  if is_flag:
    return f'{flag.replace("_", " ")} {value}'
  return _NAMES.get(piece, piece)
