"""Marks cases of a test as slow, but for those of the fast suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def but_for(quick: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
  """Returns the cases of a test; all that are not in `quick` are slow.

  Args:
    quick: the cases of the fast suite, some of `cases`.
    cases: values of one argument, or tuples of values of several.
  """
  quick, cases = list(quick), list(cases)
  assert all(case in cases for case in quick), quick
  return [case if case in quick else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
  values = case if isinstance(case, tuple) else (case,)
  return pytest.param(*values, marks=pytest.mark.slow)
