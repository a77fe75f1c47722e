"""Characters from every source, against slow readings of the same bytes."""

import hashlib
import io
import logging
import pathlib
import shutil
import sys
import zipfile

import numpy as np
import pytest

from data_sources import check_form, hide_package, slow_checksum
from gtmm_jax.tasks.sources import characters, glyphs
from gtmm_jax.tasks.sources.characters import load_characters
from gtmm_jax.tasks.sources.dataset import DataError, Dataset, Images

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = ROOT.parent / 'shared' / 'data' / 'omniglot'
FILES = (
  'images_background.zip',
  'images_evaluation.zip',
  'images_background_small1.zip',
  'images_background_small2.zip',
)
needs_real = pytest.mark.skipif(
  not REAL.is_dir(), reason='files of Omniglot are not beside the tree'
)


def test_more_characters_are_described_in_one_sentence():
  text = characters.describe_more_characters()
  for word in ('Omniglot', '--data=files:FOLDER', '--data=tfds'):
    assert word in text
  assert text.endswith('.')
  assert text.count('. ') == 0
  assert '\n' not in text


# Drawn.


def test_bundled_characters_are_drawn():
  loaded = load_characters('bundled')
  assert isinstance(loaded.training, glyphs.Glyphs)
  labels = [set(part.labels.tolist()) for part in loaded[:3]]
  assert len(set().union(*labels)) == sum(map(len, labels)) == 1_500
  for words in (
    '50',
    '1,200 training, 150 validation and 150 test characters',
    '20 drawers',
    'test is the last 3 of each alphabet, and validation the 3 before',
  ):
    assert words in loaded.source
  assert '\n' not in loaded.source
  assert loaded.checksum == (
    '2064744d6c34b36ccd9a9ce0c7b9bcc0ee473f1f7ff34578f0518ac9bb21cf97'
  )
  assert load_characters('bundled').checksum == loaded.checksum


# Files.


Inks = dict[tuple[str, int, int], np.ndarray]


@pytest.fixture(scope='module')
def inks() -> Inks:
  """Draws the ink of two alphabets of 9 and 7 characters by 3 drawers."""
  generator = np.random.default_rng(2)
  drawings = {}
  for alphabet, count in (('Nordic_(old)', 9), ('Abc', 7)):
    for number in range(1, count + 1):
      for drawer in range(1, 4):
        coarse = generator.random((15, 15)) < 0.2
        ink = np.kron(coarse, np.ones((7, 7), bool))
        ink[generator.integers(105, size=40), generator.integers(105)] ^= True
        drawings[alphabet, number, drawer] = ink
  return drawings


def png(ink: np.ndarray, mode: str = '1') -> bytes:
  image = pytest.importorskip('PIL.Image')
  file = io.BytesIO()
  grey = np.where(ink, 0, 255).astype(np.uint8)
  image.fromarray(grey).convert(mode).save(file, 'png')
  return file.getvalue()


def paths_of(inks: Inks, top: str, mode: str = '1') -> dict[str, bytes]:
  contents = {}
  for (alphabet, number, drawer), ink in inks.items():
    file = f'{7 + number:04d}_{drawer:02d}.png'
    path = f'{top}/{alphabet}/character{number:02d}/{file}'
    contents[path] = png(ink, mode)
  return contents


def write_zip(
  file: pathlib.Path, contents: dict[str, bytes], packing=zipfile.ZIP_DEFLATED
) -> str:
  with zipfile.ZipFile(file, 'w', packing) as archive:
    for name, content in contents.items():
      archive.writestr(name, content)
  return f'files:{file.parent}'


def slow_pixels(ink: np.ndarray) -> np.ndarray:
  """Averages over the area of each of 28 x 28 pixels, in quarters of 105."""
  fine = np.kron(ink.astype(int), np.ones((4, 4), int))
  pixels = np.zeros((28, 28), np.uint8)
  for row, column in np.ndindex(28, 28):
    area = fine[15 * row : 15 * row + 15, 15 * column : 15 * column + 15]
    # Rounded, halves up.
    pixels[row, column] = (2 * 255 * int(area.sum()) + 225) // (2 * 225)
  return pixels


def slow_split(inks: Inks) -> tuple[list, list, list]:
  """Pairs (pixels, label) of drawings for training, validation and test."""
  names = sorted({(alphabet, number) for alphabet, number, _ in inks})
  part_of = dict.fromkeys(names, 0)
  for alphabet in {name[0] for name in names}:
    digests = sorted(
      (hashlib.sha256(f'{a}/character{n:02d}'.encode()).hexdigest(), (a, n))
      for a, n in names
      if a == alphabet
    )
    for rank, (_, name) in enumerate(digests[:6], 1):
      part_of[name] = 2 if rank <= 3 else 1
  parts = ([], [], [])
  for (alphabet, number, _), ink in inks.items():
    name = alphabet, number
    parts[part_of[name]].append((slow_pixels(ink), names.index(name)))
  return parts


def as_pairs(part: Images) -> list[tuple[bytes, int]]:
  return sorted((x.tobytes(), int(y)) for x, y in zip(*part, strict=True))


@pytest.mark.parametrize('mode', ['1', 'L', 'RGB'])
@pytest.mark.parametrize('name', FILES[:2])
def test_files_equal_a_slow_reading(tmp_path, inks, mode, name):
  contents = paths_of(inks, name.removesuffix('.zip'), mode)
  loaded = load_characters(write_zip(tmp_path / name, contents))
  for part in loaded.parts.values():
    check_form(part, 3 * len(set(part.labels)))
  for part, expected in zip(loaded[:3], slow_split(inks), strict=True):
    assert as_pairs(part) == sorted((x.tobytes(), y) for x, y in expected)
    part.pixels[0] = 0  # What is returned may be written to.


def test_source_and_checksum(tmp_path, inks):
  data = write_zip(tmp_path / FILES[0], paths_of(inks, 'images_background'))
  loaded = load_characters(data)
  for word in (
    'checksum is not the published one',
    FILES[0],
    str(tmp_path),
    '4 training, 6 validation and 6 test characters',
    '2 alphabets',
    '48 drawings',
    'test is 3 of each alphabet, and validation 3 others, by the SHA-256',
  ):
    assert word in loaded.source
  assert '\n' not in loaded.source
  assert loaded.checksum == slow_checksum(loaded)


def test_labels_are_running_numbers_over_all_characters(tmp_path, inks):
  data = write_zip(tmp_path / FILES[0], paths_of(inks, 'x'))
  loaded = load_characters(data)
  labels = [set(part.labels.tolist()) for part in loaded[:3]]
  assert set().union(*labels) == set(range(16))
  # Abc's seven characters, 0 to 6, and nine others.
  assert [len(part & set(range(7))) for part in labels] == [1, 3, 3]
  assert [len(part & set(range(7, 16))) for part in labels] == [3, 3, 3]


def test_order_packing_and_litter_change_nothing(tmp_path, inks):
  contents = paths_of(inks, 'images_background')
  plain = tmp_path / 'plain'
  other = tmp_path / 'other {0} folder'
  plain.mkdir()
  other.mkdir()
  first = load_characters(write_zip(plain / FILES[0], contents))
  shuffled = {
    'images_background/': b'',
    'images_background/Abc/': b'',
    '__MACOSX/images_background/._Abc': b'x',
    'images_background/.DS_Store': b'x',
  } | dict(sorted(contents.items(), reverse=True))
  second = load_characters(
    write_zip(other / FILES[0], shuffled, zipfile.ZIP_STORED)
  )
  assert first.checksum == second.checksum
  assert str(other) in second.source


def test_parts_make_a_whole_and_what_is_twice_is_read_once(tmp_path, inks):
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  whole.mkdir()
  parts.mkdir()
  one = load_characters(write_zip(whole / FILES[0], paths_of(inks, 'a')))
  some = {k: v for k, v in inks.items() if k[0] == 'Abc' or k[1] < 5}
  rest = {k: v for k, v in inks.items() if k[0] != 'Abc'}
  write_zip(parts / FILES[2], paths_of(some, 'b'))
  both = load_characters(write_zip(parts / FILES[3], paths_of(rest, 'c')))
  assert one.checksum == both.checksum
  (whole / FILES[2]).write_bytes((parts / FILES[2]).read_bytes())
  assert load_characters(f'files:{whole}').checksum == one.checksum


def test_the_part_of_a_character_depends_on_nothing_but_its_name(
  tmp_path, inks
):
  """Checks fewer drawers, other drawings and a further alphabet."""

  def parts(drawings: Inks, folder: str) -> list[set[tuple[str, int]]]:
    (tmp_path / folder).mkdir()
    data = write_zip(tmp_path / folder / FILES[0], paths_of(drawings, 'x'))
    names = sorted({(a, n) for a, n, _ in drawings})
    return [
      {names[x] for x in part.labels if names[x][0] == 'Abc'}
      for part in load_characters(data)[:3]
    ]

  expected = parts(inks, 'all')
  fewer = {k: ~np.roll(~v, 9) for k, v in inks.items() if k[2] == 1}
  more = fewer | {('Aaa', n, 1): inks['Abc', 1, 2] for n in range(1, 8)}
  assert [len(part) for part in expected] == [1, 3, 3]
  assert parts(fewer, 'fewer') == parts(more, 'more') == expected


def test_folder_absent_or_a_file(tmp_path):
  (tmp_path / 'file').write_bytes(b'')
  for name, words in (('none', 'does not exist'), ('file', 'not a folder')):
    with pytest.raises(DataError, match=words) as caught:
      load_characters(f'files:{tmp_path / name}')
    assert str(tmp_path / name) in str(caught.value)
    for file in FILES:
      assert file in str(caught.value)


def test_folder_without_the_files(tmp_path):
  (tmp_path / 'other.zip').write_bytes(b'')
  (tmp_path / FILES[0]).mkdir()  # A folder of that name is no file.
  with pytest.raises(DataError, match='has none of') as caught:
    load_characters(f'files:{tmp_path}')
  assert 'unpacked there' not in str(caught.value)
  for file in FILES:
    assert file in str(caught.value)
  (tmp_path / 'images_evaluation').mkdir()
  with pytest.raises(DataError, match='images_evaluation is unpacked there'):
    load_characters(f'files:{tmp_path}')


def spoil(content: bytes) -> bytes:
  """Alters what the first picture is packed into."""
  start = 30 + int.from_bytes(content[26:28], 'little') + 40
  return content[:start] + bytes(12) + content[start + 12 :]


@pytest.mark.parametrize(
  ('damage', 'words'),
  [
    (lambda content: b'', 'is not a zip file'),
    (lambda content: b'<!DOCTYPE html><html></html>', 'is not a zip file'),
    (lambda content: content[: len(content) // 2], 'is not a zip file'),
    (spoil, 'cannot be unpacked'),
    (lambda content: content.replace(b'PK\3\4', b'PK\0\0'), 'be unpacked'),
  ],
)
def test_damaged_file_is_named(tmp_path, inks, damage, words):
  data = write_zip(tmp_path / FILES[1], paths_of(inks, 'images_evaluation'))
  content = damage((tmp_path / FILES[1]).read_bytes())
  (tmp_path / FILES[1]).write_bytes(content)
  with pytest.raises(DataError, match=words) as caught:
    load_characters(data)
  assert str(tmp_path / FILES[1]) in str(caught.value)
  assert '\n' not in str(caught.value)


def encrypt(content: bytes) -> bytes:
  """Marks every entry as encrypted."""
  content = bytearray(content)
  for sign, place in ((b'PK\3\4', 6), (b'PK\1\2', 8)):
    start = content.find(sign)
    while start >= 0:
      content[start + place] |= 1
      start = content.find(sign, start + 4)
  return bytes(content)


def test_encrypted_file(tmp_path, inks):
  data = write_zip(tmp_path / FILES[1], paths_of(inks, 'images_evaluation'))
  file = tmp_path / FILES[1]
  file.write_bytes(encrypt(file.read_bytes()))
  with pytest.raises(DataError, match=r'encrypted.*fetch the file again'):
    load_characters(data)


def test_file_that_may_not_be_read(tmp_path, inks, monkeypatch):
  data = write_zip(tmp_path / FILES[0], paths_of(inks, 'images_background'))

  def refuse(self):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(pathlib.Path, 'read_bytes', refuse)
  with pytest.raises(DataError, match='Permission denied') as caught:
    load_characters(data)
  assert str(tmp_path / FILES[0]) in str(caught.value)


@pytest.mark.parametrize(
  'name',
  [
    'Abc/character01/0008_01.png',
    'images_background/Abc/0008_01.png',
    'images_background/Abc/letter01/0008_01.png',
    'images_background/Abc/character/0008_01.png',
    'images_background/Abc/character01/0008.png',
    'images_background/Abc/character01/0008_01.jpg',
    'images_background/Abc/character01/old/0008_01.png',
    'images_background/readme.txt',
  ],
)
def test_unexpected_name(tmp_path, inks, name):
  contents = paths_of(inks, 'images_background') | {name: b'x'}
  data = write_zip(tmp_path / FILES[0], contents)
  with pytest.raises(DataError, match='all names should be') as caught:
    load_characters(data)
  assert repr(name) in str(caught.value)
  assert 'images_background/ALPHABET/character01' in str(caught.value)


@pytest.mark.parametrize('contents', [{}, {'images_background/': b''}])
def test_no_pictures(tmp_path, contents):
  with pytest.raises(DataError, match='holds no pictures'):
    load_characters(write_zip(tmp_path / FILES[0], contents))


def changed(ink: np.ndarray, shape: tuple[int, int]) -> bytes:
  return png(np.resize(ink, shape))


@pytest.mark.parametrize(
  ('make', 'words'),
  [
    (lambda ink: changed(ink, (28, 28)), 'it is 28 x 28, not 105 x 105'),
    (lambda ink: changed(ink, (105, 104)), 'it is 104 x 105, not 105 x 105'),
    (lambda ink: png(~ink), 'not black ink on white'),
    (lambda ink: png(ink & False), 'not black ink on white'),
    (lambda ink: b'', 'cannot be read as a PNG picture'),
    (lambda ink: png(ink)[:-30], 'cannot be read as a PNG picture'),
    (lambda ink: b'GIF89a' + png(ink), 'cannot be read as a PNG picture'),
  ],
)
def test_wrong_picture_is_named(tmp_path, inks, make, words):
  contents = paths_of(inks, 'images_background')
  name = 'images_background/Abc/character02/0009_03.png'
  contents[name] = make(inks['Abc', 2, 3])
  data = write_zip(tmp_path / FILES[0], contents)
  with pytest.raises(DataError, match=words) as caught:
    load_characters(data)
  assert name in str(caught.value)
  assert str(tmp_path / FILES[0]) in str(caught.value)


@pytest.mark.parametrize('count', [1, 6])
def test_alphabet_with_too_few_characters(tmp_path, inks, count):
  few = {k: v for k, v in inks.items() if k[0] != 'Abc' or k[1] <= count}
  data = write_zip(tmp_path / FILES[0], paths_of(few, 'images_background'))
  with pytest.raises(DataError, match=f"'Abc' has {count} char") as caught:
    load_characters(data)
  assert 'at least 7' in str(caught.value)
  assert str(tmp_path) in str(caught.value)


def test_files_that_contradict_each_other(tmp_path, inks):
  write_zip(tmp_path / FILES[0], paths_of(inks, 'images_background'))
  other = inks | {('Abc', 1, 1): inks['Abc', 1, 2]}
  data = write_zip(tmp_path / FILES[3], paths_of(other, 'small'))
  with pytest.raises(DataError, match='different pictures') as caught:
    load_characters(data)
  for word in (FILES[0], FILES[3], 'small/Abc/character01/0008_01.png'):
    assert word in str(caught.value)


def test_missing_package_is_named(tmp_path, inks, monkeypatch):
  data = write_zip(tmp_path / FILES[0], paths_of(inks, 'images_background'))
  monkeypatch.setitem(sys.modules, 'PIL', None)
  with pytest.raises(DataError, match='pip install pillow') as caught:
    load_characters(data)
  assert '--data=bundled' in str(caught.value)


# The published files.


@pytest.fixture(scope='module')
def published() -> Dataset:
  return load_characters(f'files:{REAL}')


@needs_real
def test_published_files(published):
  check_form(published.training, 194 * 20)
  check_form(published.validation, 24 * 20)
  check_form(published.test, 24 * 20)
  every = np.concatenate([part.labels for part in published[:3]])
  assert np.bincount(every).tolist() == [20] * 242
  # Alphabets by name: Balinese, Early_Aramaic, Greek, Japanese_(katakana),
  # Korean, Latin, Sanskrit, Tagalog.
  sizes = np.cumsum([0, 24, 22, 24, 47, 40, 26, 42, 17])
  for part in (published.validation, published.test):
    numbers = np.unique(part.labels)
    assert np.histogram(numbers, sizes - 0.5)[0].tolist() == [3] * 8
  for word in (
    'the published Omniglot',
    '194 training, 24 validation and 24 test characters of 8 alphabets',
    '4,840 drawings',
    str(REAL),
  ):
    assert word in published.source


@needs_real
def test_published_drawings_are_ink_on_nothing(published):
  for part in published[:3]:
    grey = part.pixels / 255
    assert 0.07 < grey.mean() < 0.09
    assert np.median(grey) == 0
    assert grey.max((1, 2, 3)).min() > 0.4
    assert grey.max((1, 2, 3)).mean() > 0.99


@needs_real
def test_published_drawings_equal_a_slow_reading(published):
  image = pytest.importorskip('PIL.Image')
  with zipfile.ZipFile(REAL / FILES[2]) as archive:
    names = [x for x in archive.namelist() if '/Balinese/' in x and 'png' in x]
    names = names[::60]
    inks = [~np.asarray(image.open(archive.open(name))) for name in names]
  every = {
    (pixels.tobytes(), int(label))
    for part in published[:3]
    for pixels, label in zip(*part, strict=True)
  }
  for name, ink in zip(names, inks, strict=True):
    label = int(name.split('/')[2].removeprefix('character')) - 1
    assert (slow_pixels(ink).tobytes(), label) in every


@needs_real
def test_published_checksum_and_parts_stay(published):
  assert published.checksum == slow_checksum(published)
  assert published.checksum == (
    '8e0c60dc45b7aaf6d04abd1d4e1b2ff91aa740d321554b5549ee300267c0e5f6'
  )
  # Three of Balinese, of Early_Aramaic, of Greek, and so on.
  assert np.unique(published.validation.labels).tolist() == [
    *(4, 9, 18, 26, 37, 42, 46, 57, 59, 94, 98, 114),
    *(119, 148, 149, 163, 168, 179, 190, 200, 207, 228, 229, 239),
  ]
  assert np.unique(published.test.labels).tolist() == [
    *(1, 12, 23, 30, 39, 41, 48, 58, 67, 91, 108, 109),
    *(124, 130, 152, 160, 167, 178, 195, 204, 216, 226, 235, 236),
  ]


# Prepared by tensorflow-datasets.


def prepare(
  folder: pathlib.Path,
  inks: Inks,
  *,
  names: bool = True,
  size: int = 105,
  splits: tuple[str, ...] = ('train', 'test'),
) -> None:
  """Prepares a data set named omniglot, without TensorFlow."""
  tfds = pytest.importorskip('tensorflow_datasets')
  pytest.importorskip('array_record')
  alphabets = sorted({alphabet for alphabet, _, _ in inks})
  labels = sorted({(alphabet, number) for alphabet, number, _ in inks})
  # As in the published one, an alphabet is in one of the splits.
  part_of = dict(zip(alphabets, splits, strict=True))

  class Omniglot(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version('3.0.0')

    def _info(self):
      class_label = tfds.features.ClassLabel
      features = {
        'image': tfds.features.Image(
          shape=(size, size, 3), encoding_format='png'
        ),
        'alphabet': class_label(names=alphabets)
        if names
        else class_label(num_classes=2),
        'alphabet_char_id': np.int64,
        'label': class_label(num_classes=len(labels)),
      }
      return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features)
      )

    def _split_generators(self, dl_manager):
      return {
        split: self._generate_examples(alphabet)
        for alphabet, split in part_of.items()
      }

    def _generate_examples(self, split):
      for (alphabet, number, drawer), ink in inks.items():
        if alphabet == split:
          yield (
            f'{alphabet}_{number}_{drawer}',
            {
              'image': io.BytesIO(png(ink[:size, :size])),
              'alphabet': alphabets.index(alphabet),
              'alphabet_char_id': number - 1,
              'label': labels.index((alphabet, number)),
            },
          )

  Omniglot(
    data_dir=str(folder), file_format='array_record'
  ).download_and_prepare()


@pytest.fixture(scope='module')
def prepared(inks, tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('prepared')
  prepare(folder, inks)
  return folder


def test_prepared_characters_are_those_of_the_files(prepared, inks, tmp_path):
  loaded = load_characters('tfds', str(prepared))
  for part in loaded.parts.values():
    check_form(part, 3 * len(set(part.labels)))
  files = load_characters(
    write_zip(tmp_path / FILES[0], paths_of(inks, 'images_background'))
  )
  assert loaded.checksum == files.checksum == slow_checksum(loaded)
  for word in (
    'tensorflow-datasets',
    str(prepared),
    '4 training, 6 validation and 6 test',
  ):
    assert word in loaded.source


def test_nothing_prepared_and_no_tensorflow(tmp_path, monkeypatch):
  pytest.importorskip('tensorflow_datasets')
  hide_package(monkeypatch, 'tensorflow')
  logger = logging.getLogger('absl')
  before = logger.level
  with pytest.raises(DataError) as caught:
    load_characters('tfds', str(tmp_path))
  assert logger.level == before
  for word in (
    'no Omniglot prepared',
    str(tmp_path),
    f'tfds build omniglot --file_format=array_record --data_dir={tmp_path}',
    '--data=files:FOLDER with its zip files',
    '--data=bundled',
  ):
    assert word in str(caught.value)
  assert 'MNIST' not in str(caught.value)
  assert not list(tmp_path.iterdir())


def test_format_that_takes_tensorflow(prepared, tmp_path):
  shutil.copytree(prepared / 'omniglot', tmp_path / 'omniglot')
  info = tmp_path / 'omniglot' / '3.0.0' / 'dataset_info.json'
  info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
  with pytest.raises(DataError, match='format tfrecord') as caught:
    load_characters('tfds', str(tmp_path))
  assert 'tfds build omniglot' in str(caught.value)


@pytest.mark.parametrize('damage', ['absent', 'spoilt'])
def test_damaged_preparation(prepared, tmp_path, damage):
  shutil.copytree(prepared / 'omniglot', tmp_path / 'omniglot')
  folder = tmp_path / 'omniglot' / '3.0.0'
  (file,) = folder.glob('omniglot-train.array_record*')
  if damage == 'absent':
    file.unlink()
  else:
    content = bytearray(file.read_bytes())
    content[1_000:4_000] = b'\x55' * 3_000
    file.write_bytes(content)
  with pytest.raises(DataError, match='be read as Omniglot') as caught:
    load_characters('tfds', str(tmp_path))
  assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
  ('settings', 'words'),
  [
    ({'size': 28}, 'it is 28 x 28, not 105 x 105'),
    ({'names': False}, 'its alphabets have no names'),
  ],
)
def test_preparation_of_another_kind(tmp_path, inks, settings, words):
  prepare(tmp_path, inks, **settings)
  with pytest.raises(DataError, match=words):
    load_characters('tfds', str(tmp_path))
