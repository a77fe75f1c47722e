"""Characters: from drawn alphabets, or from Omniglot.

`load_characters` takes the value of the flag `--data`:

  bundled        50 invented alphabets, drawn on the device; works offline
  tfds           all of Omniglot, as tensorflow-datasets prepares it
  files:FOLDER   one or more of the zip files in which Omniglot was published

Three characters of each alphabet are for the test and three others for
validation, by whichever drawer (Gemici et al. 2017, section 5.3). Names alone
decide which: of Omniglot the test takes the three whose ALPHABET/characterNN
has the least SHA-256 and validation the next three; of the drawn alphabets the
test takes the last three and validation the three before.
"""

import hashlib

import numpy as np

from gtmm_jax.tasks.sources import alphabets, data_flag, glyphs, omniglot, tfds
from gtmm_jax.tasks.sources.dataset import (
  DataError,
  Dataset,
  Images,
  checksum_of,
  checksum_of_version,
)


def load_characters(
  data: str, data_dir: str | None = None
) -> Dataset[Images] | Dataset[glyphs.Glyphs]:
  """Loads characters, 28 x 28 grey values.

  Labels number the characters from 0, over all alphabets; the three parts have
  no label in common.

  Args:
    data: 'bundled', 'tfds' or 'files:FOLDER'.
    data_dir: for 'tfds', the folder where tensorflow-datasets keeps prepared
      data sets, None for its default; other sources ignore it.

  Returns:
    Of Omniglot, pixels uint8 [N, 28, 28, 1] and labels int32 [N], sorted by
    alphabet, character and pixels; of the drawn alphabets, glyphs.

  Raises:
    DataError: `data` is none of these, a package that it needs is missing,
      or the data are missing, damaged or wrong.
  """
  source = data_flag.read(
    data,
    'for characters it must be bundled, tfds or files:FOLDER, where FOLDER '
    "holds Omniglot's zip files as published.",
  )
  match source:
    case 'bundled':
      return _load_drawn()
    case 'tfds':
      return _split(*tfds.read_omniglot(data_dir))
    case folder:
      return _split(*omniglot.read(folder))


def describe_more_characters() -> str:
  """Returns a sentence for users of 'bundled' on Omniglot and how to get it."""
  return (
    'The bundled characters are of invented alphabets, drawn by the computer; '
    'for the handwriting of Omniglot use --data=files:FOLDER with its zip '
    'files, as published, in FOLDER, or --data=tfds.'
  )


def _load_drawn() -> Dataset[glyphs.Glyphs]:
  """Returns the drawn characters."""
  training, validation, test = glyphs.split()
  counts = [len(part.labels) for part in (training, validation, test)]
  return Dataset(
    training,
    validation,
    test,
    f'drawn characters of {alphabets.ALPHABETS} invented alphabets: '
    f'{_in_words(counts)} characters by {glyphs.DRAWERS} drawers; test is the '
    f'last {glyphs.HELD_OUT} of each alphabet, and validation the '
    f'{glyphs.HELD_OUT} before',
    checksum_of_version(
      f'drawn alphabets, version {alphabets.VERSION}, {_in_words(counts)}'
    ),
  )


def _split(drawings: omniglot.Drawings, origin: str) -> Dataset[Images]:
  """Numbers the characters, and takes three and three of each alphabet."""
  pixels, names = drawings
  # Sorted by name, then content: the same data from every source.
  order = sorted(
    range(len(names)), key=lambda i: (names[i], pixels[i].tobytes())
  )
  pixels, names = pixels[order], [names[i] for i in order]
  part_of = _parts(sorted(set(names)), origin)
  labels_of = {name: label for label, name in enumerate(part_of)}
  labels = np.array([labels_of[name] for name in names], np.int32)
  part = np.array([part_of[name] for name in names])
  parts = [
    Images(pixels[part == number], labels[part == number])
    for number in range(3)
  ]
  counts = np.bincount([*part_of.values()]).tolist()
  source = (
    f'{origin}: {_in_words(counts)} characters of '
    f'{counts[2] // glyphs.HELD_OUT} alphabets in {len(labels):,} drawings; '
    f'test is {glyphs.HELD_OUT} of each alphabet, and validation '
    f'{glyphs.HELD_OUT} others, by the SHA-256 of their names'
  )
  return Dataset(*parts, source, checksum_of(*parts))


def _in_words(counts: list[int]) -> str:
  training, validation, test = counts
  return f'{training:,} training, {validation:,} validation and {test:,} test'


def _parts(
  characters: list[tuple[str, int]], origin: str
) -> dict[tuple[str, int], int]:
  """Assigns characters to parts, by their names alone.

  Args:
    characters: pairs of alphabet and number, each once.
    origin: of the characters, in words.

  Returns:
    The part of each, in the same order: 0 for training, 1 for validation, 2 for
    the test.

  Raises:
    DataError: an alphabet has too few characters for three parts.
  """

  def digest(name: tuple[str, int]) -> str:
    text = f'{name[0]}/character{name[1]:02d}'
    return hashlib.sha256(text.encode()).hexdigest()

  alphabet_of: dict[str, list[tuple[str, int]]] = {}
  for name in characters:
    alphabet_of.setdefault(name[0], []).append(name)
  part_of = dict.fromkeys(characters, 0)
  each = glyphs.HELD_OUT
  for alphabet, names in alphabet_of.items():
    if len(names) <= 2 * each:
      raise DataError(
        f'{origin}: the alphabet {alphabet!r} has {len(names)} characters; it '
        f'takes at least {2 * each + 1}, since {each} of each alphabet are for '
        f'validation and {each} for the test. Fetch the data again.'
      )
    ranked = sorted(names, key=digest)
    part_of |= dict.fromkeys(ranked[:each], 2)
    part_of |= dict.fromkeys(ranked[each : 2 * each], 1)
  return part_of
