r"""Packs recordings into the file of episodes that the task frames reads.

  python experiments/pack_frames.py clips/* episodes.npz --length=20 --size=32
  python experiments/run.py --task=frames --data=files:episodes.npz

All words but the last name recordings: folders of pictures, GIFs, videos (pip
install "gtmm_jax[video]") and .npy files of one recording [T, H, W] or
[T, H, W, C], or of several [N, T, H, W] or [N, T, H, W, C]. The last word is
the file to write. Each recording is cut into as many episodes as fit. The file
has `frames [N, T, H, W, C]`, uint8, and `held_out [N]`: the last tenth of the
episodes, in the order given, is for the test, and the tenth before for
validation. It is written completely or not at all.
"""

import functools
import os
import pathlib
import re
import sys
import zipfile

# The parts are found however this file is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import command, signals

if __name__ == '__main__':
  signals.watch('nothing was written')
  command.import_jax()

import numpy as np
from absl import app, flags

from gtmm_jax.process import places
from gtmm_jax.tasks.sources import doubts, frame_files
from packing import episodes

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_integer('length', None, 'T, frames of an episode, >= 2.')
  flags.DEFINE_string(
    'size',
    None,
    'Height and width of frames in pixels, as 32 or 48x64, multiples of 4, at '
    'least 8: the largest part of this form in the middle of each frame is '
    'resized. Default: that of the recordings.',
  )
  flags.DEFINE_bool(
    'grey', False, 'Make frames grey. Default: as the recordings are.'
  )
  flags.DEFINE_integer('stride', 1, 'Take every n-th frame, >= 1.')


def main(words: list[str]) -> None:
  """Checks the words and flags, packs, writes, and prints what was packed."""
  console = command.console()
  try:
    paths, output, form = check(
      words[1:], FLAGS.length, FLAGS.size, FLAGS.grey, FLAGS.stride
    )
    packed = episodes.pack(paths, form)
    first = packed.episodes[0]
    extremes = [(int(each.min()), int(each.max())) for each in packed.episodes]
    least, greatest = min(x for x, _ in extremes), max(x for _, x in extremes)
    warnings = packed.doubts + doubts.of_bytes('The frames', least, greatest)
    with signals.deferred(f'{output} is written whole or not at all'):
      write(output, packed)
  except (ValueError, OSError, MemoryError) as mistake:
    command.fail(mistake)
  for warning in warnings:
    console.print(f'warning  {warning}')
  shape = ' x '.join(map(str, first.shape[1:]))
  _, *held_out = np.bincount(episodes.held_out(len(packed.episodes)))
  console.print(
    f'{packed.recordings:,} recording(s), {len(packed.episodes):,} episodes of '
    f'{form.length:,} frames, {shape}; {held_out[0]:,} for validation, '
    f'{held_out[1]:,} for the test; {packed.left_over:,} frames left over'
  )
  console.print(f'written  {output}')


def check(
  words: list[str],
  length: int | None,
  size: str | None,
  grey: bool,
  stride: int,
) -> tuple[list[pathlib.Path], pathlib.Path, episodes.Form]:
  """Checks words and flags.

  Returns:
    The recordings, the file to write, and the form of episodes.

  Raises:
    ValueError: one is wrong; tells in one line what, and what to do.
  """
  if len(words) < 2:
    raise ValueError(
      'Name recordings, and after them the file to write: pack_frames.py '
      'FOLDER OUT.npz --length=20.'
    )
  *paths, output = (places.locate(word, 'word') for word in words)
  if output.suffix != '.npz':
    raise ValueError(
      f'{output}, the last word, is not the name of an .npz file to write.'
    )
  if output.exists():
    raise ValueError(f'{output} exists; name another file, or delete it.')
  places.require_writable(output.absolute().parent, str(output))
  if length is None or length < 2:
    raise ValueError(
      f'--length is {length}; give the number of frames of an episode, at '
      f'least 2.'
    )
  if stride < 1:
    raise ValueError(f'--stride is {stride}; it must be at least 1.')
  return paths, output, episodes.Form(length, _read_size(size), grey, stride)


def _read_size(size: str | None) -> tuple[int, int] | None:
  """Returns (height, width) from a text such as 32 or 48x64."""
  if size is None:
    return None
  match = re.fullmatch(r'(\d{1,5})(?:x(\d{1,5}))?', size)
  sides = match and (int(match[1]), int(match[2] or match[1]))
  if not sides or not frame_files.has_room_to_halve(*sides):
    raise ValueError(
      f'--size is {size}; it must be one side or HEIGHTxWIDTH, multiples of 4, '
      f'at least 8.'
    )
  return sides


def write(output: pathlib.Path, packed: episodes.Packed) -> None:
  """Writes the file, uncompressed, so that runs can leave frames in it.

  Raises:
    OSError: it cannot be written.
  """
  output.parent.mkdir(parents=True, exist_ok=True)
  part = output.with_name(f'.{output.name}.{os.getpid()}')
  first, count = packed.episodes[0], len(packed.episodes)
  try:
    with zipfile.ZipFile(part, 'w', zipfile.ZIP_STORED) as archive:
      # One by one: np.savez would take the memory of all episodes again.
      with archive.open('frames.npy', 'w', force_zip64=True) as member:
        header = np.lib.format.header_data_from_array_1_0(first)
        header['shape'] = (count, *first.shape)
        np.lib.format.write_array_header_1_0(member, header)
        for episode in packed.episodes:
          member.write(episode.tobytes())
      with archive.open('held_out.npy', 'w') as member:
        np.save(member, episodes.held_out(count))
    part.replace(output)
  finally:
    part.unlink(missing_ok=True)


if __name__ == '__main__':
  define_flags()
  parse = functools.partial(command.parse_flags, has_words=True)
  app.run(main, flags_parser=parse)
