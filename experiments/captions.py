"""Captions below the frames of a sheet of episodes, and notes on them."""

from typing import Any

# For navigation's actions, in their order.
_ARROWS = '↑↓←→'
_REPEAT = '=n: frame n again'
NOTES = {
  'perfect_recall': f'{_REPEAT}, in the same order',
  'parity_recall': 'a 0, a 1: any image of that class; the first one tells '
  'whether the first digit is even (0) or odd (1), and so on',
  'one_shot_recall': f'{_REPEAT}, in the same order',
  'dynamic_dependency': f'{_REPEAT}; from the last new digit on, digit d sends '
  'to frame d + 1',
  'similarity_cued_recall': f'{_REPEAT}; the first one is the cue, which '
  'nothing predicts, and what followed it before follows it',
  'rotation': 'views of the second turn lie between those of the first',
  'frames': 'episodes of your own file, marked as it has them',
  'navigation': 'arrow: the action that led here; ·: the start; =n: the cell '
  'of frame n again, which was its last visit',
}


def below(episode: Any) -> list[str]:
  """Returns the captions of the frames of an `Episode` of arrays [T, ...].

  A caption has the action that led to the frame, where the condition [T, A]
  has actions; '=n' for a repeat of frame n, counted from 1; 'a c' where any
  image of class c is right.
  """
  texts = []
  for action, source, label in zip(
    episode.condition, episode.source, episode.label, strict=True
  ):
    words = []
    if len(action):
      words.append(_ARROWS[int(action.argmax())] if action.any() else '·')
    if source >= 0:
      words.append(f'={source + 1}')
    if label >= 0:
      words.append(f'a {label}')
    texts.append(' '.join(words))
  return texts
