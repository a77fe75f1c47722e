"""Characters: from drawn alphabets, or from Omniglot.

`load_characters` takes the value of the flag `--data`:

  bundled        50 invented alphabets, drawn on the device; works offline
  tfds           all of Omniglot, as tensorflow-datasets prepares it
  files:FOLDER   one or more of the zip files in which Omniglot was published

Three characters of each alphabet are held out, by whichever drawer (Gemici et
al. 2017, section 5.3). Names alone decide which: of Omniglot the three whose
ALPHABET/characterNN has the least SHA-256, of the drawn alphabets the last
three.
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

  Labels number the characters from 0, over all alphabets; training and held-out
  characters have no label in common.

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
  training, held_out = glyphs.split()
  return Dataset(
    training,
    held_out,
    f'drawn characters of {alphabets.ALPHABETS} invented alphabets: '
    f'{len(training.labels):,} training and {len(held_out.labels):,} held-out '
    f'characters by {glyphs.DRAWERS} drawers, the last {glyphs.HELD_OUT} of '
    f'each alphabet held out',
    checksum_of_version(f'drawn alphabets, version {alphabets.VERSION}'),
  )


def _split(drawings: omniglot.Drawings, origin: str) -> Dataset[Images]:
  """Numbers the characters, and holds out three of each alphabet."""
  pixels, names = drawings
  # Sorted by name, then content: the same data from every source.
  order = sorted(
    range(len(names)), key=lambda i: (names[i], pixels[i].tobytes())
  )
  pixels, names = pixels[order], [names[i] for i in order]
  characters = sorted(set(names))
  held_out_names = _hold_out(characters, origin)
  numbers = {name: number for number, name in enumerate(characters)}
  labels = np.array([numbers[name] for name in names], np.int32)
  held_out = np.array([name in held_out_names for name in names])
  parts = [Images(pixels[rows], labels[rows]) for rows in (~held_out, held_out)]
  source = (
    f'{origin}: {len(characters) - len(held_out_names):,} training and '
    f'{len(held_out_names):,} held-out characters of '
    f'{len(held_out_names) // glyphs.HELD_OUT} alphabets in {len(labels):,} '
    f'drawings, three of each alphabet held out by the SHA-256 of their names'
  )
  return Dataset(*parts, source, checksum_of(*parts))


def _hold_out(
  characters: list[tuple[str, int]], origin: str
) -> set[tuple[str, int]]:
  """Chooses three characters of each alphabet, by their names alone."""

  def rank(name: tuple[str, int]) -> str:
    text = f'{name[0]}/character{name[1]:02d}'
    return hashlib.sha256(text.encode()).hexdigest()

  alphabet_of: dict[str, list[tuple[str, int]]] = {}
  for name in characters:
    alphabet_of.setdefault(name[0], []).append(name)
  held_out = set()
  for alphabet, names in alphabet_of.items():
    if len(names) <= glyphs.HELD_OUT:
      raise DataError(
        f'{origin}: the alphabet {alphabet!r} has {len(names)} characters; it '
        f'takes at least {glyphs.HELD_OUT + 1}, since {glyphs.HELD_OUT} of '
        f'each alphabet are held out. Fetch the data again.'
      )
    held_out.update(sorted(names, key=rank)[: glyphs.HELD_OUT])
  return held_out
