"""Drawn alphabets: what is drawn, how often, and whether it looks right."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtmm_jax.tasks.sources import alphabets, glyphs
from gtmm_jax.tasks.sources.alphabets import ALPHABETS, CHARACTERS

DRAWERS = glyphs.DRAWERS
COUNT = ALPHABETS * CHARACTERS
# It runs for longer than these take to compile it.
OPTIMISED = {
  'xla_backend_optimization_level': 3,
  'xla_llvm_disable_expensive_passes': False,
}


@pytest.fixture(scope='module')
def programs() -> alphabets.Program:
  return alphabets.programs()


@pytest.fixture(scope='module')
def parts() -> tuple[glyphs.Glyphs, glyphs.Glyphs]:
  return glyphs.split()


# Each is compiled once, for the shapes that tests share.
render = jax.jit(glyphs.render)
draw = jax.jit(lambda key, part: part.draw(key, 600))


@pytest.fixture(scope='module')
def written(programs) -> list[tuple[np.ndarray, np.ndarray]]:
  """Computes paths and pens of every character by each drawer."""
  write = jax.jit(jax.vmap(glyphs.write, (0, 0, None)))
  return [
    tuple(map(np.asarray, write(programs, np.arange(COUNT), drawer)))
    for drawer in range(DRAWERS)
  ]


@pytest.fixture(scope='module')
def images(written) -> np.ndarray:
  """Renders every image, [alphabet, character, drawer, 28, 28]."""
  render_all = jax.jit(jax.vmap(glyphs.render), compiler_options=OPTIMISED)
  columns = [render_all(*paths_and_width) for paths_and_width in written]
  return np.stack(columns, 1).reshape(ALPHABETS, CHARACTERS, DRAWERS, 28, 28)


def check_frames(frames, labels, images) -> np.ndarray:
  """Holds frames [..., 28, 28, 1] to show their labels; returns the drawers."""
  every = images.reshape(COUNT, DRAWERS, 28, 28)[np.asarray(labels)]
  frames = np.asarray(frames)[..., 0][..., None, :, :]
  distance = np.abs(every - frames).max((-1, -2))
  np.testing.assert_allclose(distance.min(-1), 0, atol=1e-4)
  return distance.argmin(-1)


# Programs.


def test_programs_make_sense(programs):
  for name, field in programs._asdict().items():
    assert field.shape[0] == COUNT, name
    assert np.isfinite(field).all(), name
    kind = np.int32 if name in ('parent', 'count') else np.float32
    assert field.dtype == kind, name
  assert programs.turns.shape == (
    COUNT,
    alphabets.STROKES,
    alphabets.SEGMENTS,
  )
  strokes = np.arange(alphabets.STROKES)
  assert (programs.parent >= 0).all()
  assert (programs.parent < np.maximum(strokes, 1)).all()
  for field in (programs.place, programs.anchor):
    assert (field >= 0).all() and (field <= 1).all()
  assert (programs.length > 0).all()
  assert np.unique(programs.count).tolist() == [1, 2, 3, 4]


def test_no_character_is_one_straight_line(programs):
  straight = ~programs.turns[:, 0].any(-1)
  assert 0.1 < straight.mean() < 0.9
  assert (programs.count[straight] > 1).all()


def test_no_two_characters_have_one_program(programs):
  rows = {
    b''.join(np.ascontiguousarray(x[i]).tobytes() for x in programs)
    for i in range(COUNT)
  }
  assert len(rows) == COUNT


def test_alphabets_have_styles_of_their_own(programs):
  """Checks that numbers of strokes differ between alphabets beyond chance."""
  count = programs.count.reshape(ALPHABETS, CHARACTERS)
  chance = count.var() / CHARACTERS
  assert count.mean(1).var() > 3 * chance
  turning = abs(programs.turns[:, 0]).max(-1).reshape(ALPHABETS, CHARACTERS)
  assert turning.mean(1).var() > 3 * turning.var() / CHARACTERS


def test_what_is_drawn_belongs_to_its_version(programs, images):
  """Fails if characters change: increase `VERSION`, then update the numbers."""
  digest = hashlib.sha256()
  for field in programs:
    digest.update(field.astype(field.dtype.newbyteorder('<')).tobytes())
  ink = images[::10, ::15, 7].mean((-1, -2)).ravel()
  assert alphabets.VERSION == 1
  assert digest.hexdigest() == (
    '388426fad1064979084b484c17485c58f7ba92b0cc875130eacd9f8ad29fb159'
  )
  expected = [
    *(0.09418, 0.09131, 0.06557, 0.07955, 0.10396),
    *(0.06246, 0.08692, 0.07497, 0.05992, 0.06977),
  ]
  np.testing.assert_allclose(ink, expected, atol=2e-5)


# Ink.


def slow_ink(paths: np.ndarray, width: float) -> np.ndarray:
  """Distances to segments, pixel by pixel, in float64."""
  ink = np.zeros((28, 28))
  segments = [
    (path[i].astype(np.float64), path[i + 1].astype(np.float64))
    for path in paths
    for i in range(len(path) - 1)
  ]
  begin, end = np.array(segments).swapaxes(0, 1)
  squared = np.square(end - begin).sum(-1)
  for row, column in np.ndindex(28, 28):
    point = np.array([column + 0.5, row + 0.5])
    part = ((point - begin) * (end - begin)).sum(-1)
    part = np.divide(part, squared, np.zeros_like(part), where=squared > 0)
    nearest = begin + np.clip(part, 0, 1)[:, None] * (end - begin)
    distance = np.linalg.norm(point - nearest, axis=-1).min()
    ink[row, column] = min(max((width + 1) / 2 - distance, 0.0), 1.0)
  return ink


def test_ink_equals_slow_distances(written):
  for label, drawer in ((0, 0), (100, 3), (777, 19), (1499, 8)):
    paths, width = (x[label] for x in written[drawer])
    expected = slow_ink(paths, float(width))
    np.testing.assert_allclose(render(paths, width), expected, atol=1e-4)


def test_ink_of_single_points_and_of_paths_outside():
  paths = np.full((4, 10, 2), 10.5, np.float32)
  paths[1, 1:5] = [[-9, -9], [-9, 40], [-9, 40], [3.25, 20]]
  rendered = render(paths, np.float32(1))
  np.testing.assert_allclose(rendered, slow_ink(paths, 1.0), atol=1e-4)
  assert rendered[10, 10] == 1.0


def test_a_straight_line_has_the_ink_of_its_width():
  for width in (1.0, 1.3):
    for height in (14.5, 14.0):
      paths = np.full((4, 10, 2), height, np.float32)
      paths[..., 0] = np.linspace(4, 24, 10)
      # Its round ends add an area of about width squared.
      ink = float(render(paths, np.float32(width)).sum())
      assert abs(ink - 20 * width) < 1.2 * width**2


def test_strokes_that_a_character_lacks_leave_no_ink(programs, written):
  paths, width = written[0]
  for count in (1, 2, 3):
    for label in np.flatnonzero(programs.count == count)[:2]:
      np.testing.assert_allclose(
        render(paths[label], width[label]),
        slow_ink(paths[label][:count], float(width[label])),
        atol=1e-4,
      )


def test_nothing_is_cut_off(written):
  for paths, width in written:
    assert paths.min() > 1.749
    assert paths.max() < 28 - 1.749
    assert width.min() > 1.1
    # Ink ends half a pen and half a pixel from the path.
    assert (width.max() + 1) / 2 < 1.749 - 0.5


def test_grey_values(images):
  assert images.dtype == np.float32
  assert images.min() == 0
  assert images.max() == 1
  assert (images.max((-1, -2)) > 0.9).all()
  for border in (images[..., 0], images[..., -1], images[..., 0, :]):
    assert not border.any()
  assert not images[..., -1, :].any()


# Characters and drawers.


def test_drawers_differ(images):
  for one, other in ((0, 1), (1, 2), (0, 19), (7, 13)):
    difference = images[:, :, one] - images[:, :, other]
    assert (np.abs(difference).sum((-1, -2)) > 4).all()


def test_characters_differ_more_than_drawers(images):
  """Checks that most images are nearest to one of the same character."""
  # Blurred, so that a stroke meets its neighbour.
  blurred = images[:, :, :4]
  for axis in (-1, -2):
    blurred = sum(np.roll(blurred, shift, axis) for shift in (-1, 0, 1)) / 3
  hits, same, different = [], [], []
  for alphabet in blurred.reshape(ALPHABETS, CHARACTERS, 4, -1):
    distance = np.stack(
      [
        np.linalg.norm(
          alphabet[:, None, 0] - alphabet[None, :, drawer], axis=-1
        )
        for drawer in (1, 2, 3)
      ]
    )
    hits.append(distance.min(0).argmin(1) == np.arange(CHARACTERS))
    own = np.eye(CHARACTERS, dtype=bool)
    same.append(distance[:, own].mean())
    different.append(distance[:, ~own].mean())
    assert different[-1] > same[-1]
  # By chance, one in thirty.
  assert np.mean(hits) > 10 / CHARACTERS
  assert np.mean(different) > 1.1 * np.mean(same)


def test_amount_of_ink_is_that_of_omniglot(images, shared):
  from gtmm_jax.tasks.sources import omniglot

  pytest.importorskip('PIL')
  drawings, _ = omniglot.read(shared / 'data' / 'omniglot')
  real = drawings.pixels[..., 0] / 255
  assert abs(images.mean() - real.mean()) < 0.1 * real.mean()
  for part in (10, 50, 90):
    drawn, written = (
      np.percentile(x.mean((-1, -2)), part) for x in (images, real)
    )
    assert abs(drawn - written) < 0.15 * written
  # Pens of one width: as many pixels are nearly black.
  assert abs((images > 0.8).mean() - (real > 0.8).mean()) < 0.01


def test_noise_is_triangular_and_independent():
  noise = np.asarray(jax.jit(jax.vmap(glyphs._noise))(jnp.arange(10_000)))
  noise = noise.reshape(10_000, -1)
  assert -2 <= noise.min() < -1.99
  assert 1.99 < noise.max() <= 2
  np.testing.assert_allclose(noise.mean(0), 0, atol=0.04)
  np.testing.assert_allclose(noise.var(0), 2 / 3, rtol=0.06)
  beside = np.concatenate([noise[:-1], noise[1:]], 1)
  correlation = np.corrcoef(beside.T) - np.eye(beside.shape[1])
  assert np.abs(correlation).max() < 0.05


# Draws.


def test_split_takes_three_and_three_characters_of_each_alphabet(
  parts, programs
):
  training, validation, test = (part.labels for part in parts)
  assert sorted([*training, *validation, *test]) == list(range(COUNT))
  last = np.arange(ALPHABETS * CHARACTERS).reshape(ALPHABETS, CHARACTERS)
  assert test.tolist() == last[:, 27:].ravel().tolist()
  assert validation.tolist() == last[:, 24:27].ravel().tolist()
  for part in parts:
    for own, every in zip(part.programs, programs, strict=True):
      np.testing.assert_array_equal(own, every[part.labels])


@pytest.mark.parametrize('index', [0, 1, 2])
def test_draws_are_uniform_over_their_own_characters(parts, index):
  part = parts[index]
  draws = 200 * len(part.labels)
  labels = jax.jit(lambda key, x: x.draw(key, draws)[1])(
    jax.random.key(4), part
  )
  assert labels.dtype == jnp.int32
  assert np.isin(labels, part.labels).all()
  counts = np.bincount(labels, minlength=COUNT)[part.labels]
  # Chi-squared: its mean is the degrees of freedom, its variance twice that.
  freedom = len(counts) - 1
  statistic = ((counts - 200) ** 2 / 200).sum()
  assert abs(statistic - freedom) < 5 * (2 * freedom) ** 0.5
  of_alphabets = np.bincount(labels // CHARACTERS)
  expected = draws / ALPHABETS
  assert np.abs(of_alphabets - expected).max() < 5 * expected**0.5


@pytest.mark.parametrize('index', [0, 1])
def test_frames_show_their_labels_by_uniform_drawers(parts, images, index):
  frames, labels = draw(jax.random.key(8), parts[index])
  assert frames.shape == (600, *parts[index].shape) == (600, 28, 28, 1)
  assert frames.dtype == np.float32
  drawers = check_frames(frames, labels, images)
  counts = np.bincount(drawers, minlength=DRAWERS)
  # Chi-squared, as above.
  assert abs(((counts - 30) ** 2 / 30).sum() - 19) < 5 * 38**0.5


def test_same_key_same_draw(parts):
  frames, labels = draw(jax.random.key(1), parts[0])
  again, also = draw(jax.random.key(1), parts[0])
  other, _ = draw(jax.random.key(2), parts[0])
  np.testing.assert_array_equal(frames, again)
  np.testing.assert_array_equal(labels, also)
  assert not np.array_equal(frames, other)


def test_batch_of_keys(parts, images):
  batch = jax.jit(jax.vmap(lambda key, x: x.draw(key, 6), (0, None)))
  keys = jax.random.split(jax.random.key(1), 4)
  frames, labels = batch(keys, parts[0])
  assert frames.shape == (4, 6, 28, 28, 1)
  assert len(np.unique(labels)) > 20
  check_frames(frames, labels, images)


def test_drawing_moves_nothing_between_host_and_device(parts):
  training, key = jax.device_put((parts[0], jax.random.key(2)))
  draw(key, training)
  with jax.transfer_guard('disallow'):
    frames, _ = draw(key, training)
    frames.block_until_ready()
