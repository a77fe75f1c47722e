"""Captions of the frames of an episode, and notes that explain them."""

from gtmm_jax.tasks.episode import Episode
from gtmm_jax.tasks.navigation import ACTIONS

# Of navigation's actions, in their order.
_ARROWS = dict(zip(ACTIONS, '↑↓←→', strict=True))
_REPEAT = '=n: frame n again'
# Notes on the captions of a task's frames.
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
  'mixture': f'{_REPEAT}; the four tasks have the notes of their own sheets',
  'navigation': 'arrow: the action that led here; ·: the start; =n: the cell '
  'of frame n again, which was its last visit',
}


def of_frames(episode: Episode, is_walk: bool) -> list[str]:
  """Returns the captions of the frames of one episode of arrays [T, ...].

  A caption has the action that led to the frame, if the episode is a walk of
  navigation; '=n' for a repeat of frame n, counted from 1; 'a c' where any
  image of class c is right.

  Args:
    episode: of any task.
    is_walk: whether the condition begins with navigation's actions.
  """
  arrows = list(_ARROWS.values())
  texts = []
  for action, source, label in zip(
    episode.condition[:, : len(arrows)],
    episode.source,
    episode.label,
    strict=True,
  ):
    words = []
    if is_walk:
      words.append(arrows[int(action.argmax())] if action.any() else '·')
    if source >= 0:
      words.append(f'={source + 1}')
    if label >= 0:
      words.append(f'a {label}')
    texts.append(' '.join(words))
  return texts
