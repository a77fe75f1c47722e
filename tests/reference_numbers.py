"""Comparison with reference numbers of other programs."""

import functools

import jax
import numpy as np

TIGHT = {'rtol': 1e-9, 'atol': 1e-12}
OTHER_EPSILON = {'rtol': 0.0, 'atol': 2e-6}


def in_double(function, *arguments):
  """Calls a function in float64 and returns its results as NumPy arrays."""
  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, compiled(function)(*arguments))


@functools.cache
def compiled(function):
  """Compiles a function once for all tests."""
  return jax.jit(function)


class Reference:
  """The arrays of one file under a prefix, and the names of those compared."""

  def __init__(self, arrays, prefix='', compared=None):
    self.arrays, self.prefix = arrays, prefix
    self.compared = set() if compared is None else compared

  def under(self, prefix):
    return Reference(self.arrays, self.prefix + prefix, self.compared)

  def __getitem__(self, name):
    return self.arrays[self.prefix + name]

  def agrees(self, name, actual, tolerance=TIGHT, at=...):
    self.compared.add(self.prefix + name)
    expected = self[name]
    assert actual.dtype == expected.dtype, name
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(
      actual[at], expected[at], err_msg=name, **tolerance
    )

  def differs(self, name, actual, by=1e-3, at=...):
    expected = self[name]
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected)[at].max() > by, name


def long(vectors):
  """Scales vectors to length 1e4; zeros stay zeros."""
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return 1e4 * vectors / np.where(lengths > 0, lengths, 1.0)


def compare_all(checks, load, paths, inputs, prefixes):
  """Runs checks, which must compare every array of the files at `paths`.

  Arrays that `inputs` lists, by file, are not compared.
  """
  references = {}

  def load_once(name):
    return references.setdefault(name, load(name))

  for check in checks:
    check(load_once)
  assert {path.stem for path in paths} == set(references) == set(inputs)
  for name, reference in references.items():
    left = set(reference.arrays.files) - reference.compared
    for prefix in prefixes:
      left = {key.removeprefix(prefix) for key in left}
    assert left == inputs[name], name
