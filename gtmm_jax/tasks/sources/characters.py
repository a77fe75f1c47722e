"""Where characters come from: drawn alphabets, or Omniglot.

`load_characters` takes the value of the flag `--data`:

  bundled        50 invented alphabets, drawn where they are used; offline
  tfds           all of Omniglot, as tensorflow-datasets prepares it
  files:FOLDER   one or more of the zip files in which Omniglot was published

Three characters of each alphabet are held out, whoever drew them (Gemici et al.
2017, section 5.3). Which ones is settled by names alone: of Omniglot those
whose ALPHABET/characterNN has the least SHA-256, of the drawn alphabets the
last three.
"""

import hashlib
import os
import pathlib
from typing import NamedTuple

import numpy as np

from gtmm_jax.tasks.sources import alphabets, glyphs, omniglot, tfds
from gtmm_jax.tasks.sources.dataset import DataError, Images
from gtmm_jax.tasks.sources.glyphs import HELD_OUT


class Characters(NamedTuple):
  """Characters to train on, and characters that are never trained on.

  Attributes:
    training: characters of training episodes.
    held_out: characters of held-out episodes; they have no label in common with
      `training`.
    source: one line for people: what this is, where it is from, how many
      training and held-out characters, how they were split.
    checksum: SHA-256, hexadecimal. Of Omniglot over the data as used: the bytes
      of training pixels, training labels, held-out pixels, held-out labels in
      that order, labels as little-endian int32. Of drawn alphabets, which are
      not stored, over the number of their version.
    doubts: none: what is likely to be wrong is refused.
  """

  training: Images | glyphs.Glyphs
  held_out: Images | glyphs.Glyphs
  source: str
  checksum: str
  doubts: tuple[str, ...] = ()


def load_characters(data: str, data_dir: str | None = None) -> Characters:
  """Loads characters, 28 x 28 grey values.

  Labels are running numbers of characters, from 0 over all of them.

  Args:
    data: 'bundled', 'tfds' or 'files:FOLDER'.
    data_dir: for 'tfds' the folder where tensorflow-datasets keeps prepared
      data sets, None for its default; the other sources do not use it.

  Returns:
    Of Omniglot, pixels uint8 [N, 28, 28, 1] and labels int32 [N] in the order
    of alphabets, characters and pixels; of the drawn alphabets, what draws
    them.

  Raises:
    DataError: if `data` is none of these, a package that it needs is missing,
      or what is found is not what it should be.
  """
  if data == 'bundled':
    return _load_drawn()
  if data == 'tfds':
    return _split(*tfds.read_omniglot(data_dir))
  kind, _, folder = data.partition(':')
  if kind == 'files' and folder:
    return _split(*omniglot.read(pathlib.Path(os.path.expanduser(folder))))
  raise DataError(
    f'--data is {data!r}; for characters it must be bundled, tfds or '
    f"files:FOLDER, where FOLDER holds Omniglot's zip files as published."
  )


def describe_more_characters() -> str:
  """One sentence for users of 'bundled': what it lacks, how to get it."""
  return (
    'The bundled characters are of invented alphabets, drawn by the computer; '
    'for the handwriting of Omniglot use --data=files:FOLDER with its zip '
    'files, as published, in FOLDER, or --data=tfds.'
  )


def _load_drawn() -> Characters:
  training, held_out = glyphs.split()
  version = f'drawn alphabets, version {alphabets.VERSION}'
  return Characters(
    training,
    held_out,
    f'drawn characters of {alphabets.ALPHABETS} invented alphabets: '
    f'{len(training.labels):,} training and {len(held_out.labels):,} held-out '
    f'characters by {glyphs.DRAWERS} drawers, the last {HELD_OUT} of '
    f'each alphabet held out',
    hashlib.sha256(version.encode()).hexdigest(),
  )


def _split(drawings: omniglot.Drawings, origin: str) -> Characters:
  """Numbers the characters, and holds out three of each alphabet."""
  pixels, names = drawings
  # By name, then by content, so that the data are the same from every source.
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
  digest = hashlib.sha256()
  for images in parts:
    digest.update(images.pixels.data)
    digest.update(images.labels.astype('<i4').data)
  source = (
    f'{origin}: {len(characters) - len(held_out_names):,} training and '
    f'{len(held_out_names):,} held-out characters of '
    f'{len(held_out_names) // HELD_OUT} alphabets in {len(labels):,} drawings, '
    f'three of each alphabet held out by the SHA-256 of their names'
  )
  return Characters(*parts, source, digest.hexdigest())


def _hold_out(
  characters: list[tuple[str, int]], origin: str
) -> set[tuple[str, int]]:
  """Three characters of each alphabet, by their names alone."""

  def rank(name: tuple[str, int]) -> str:
    text = f'{name[0]}/character{name[1]:02d}'
    return hashlib.sha256(text.encode()).hexdigest()

  alphabet_of: dict[str, list[tuple[str, int]]] = {}
  for name in characters:
    alphabet_of.setdefault(name[0], []).append(name)
  held_out = set()
  for alphabet, names in alphabet_of.items():
    if len(names) <= HELD_OUT:
      raise DataError(
        f'{origin}: the alphabet {alphabet!r} has {len(names)} characters; it '
        f'takes at least {HELD_OUT + 1}, since {HELD_OUT} of each alphabet are '
        f'held out. Fetch the data again.'
      )
    held_out.update(sorted(names, key=rank)[:HELD_OUT])
  return held_out
