"""Lets runs of a few steps save a checkpoint with each report."""

import contextlib
from collections.abc import Iterator

import pytest

from gtmm_jax.runs import reports


@contextlib.contextmanager
def at_each_report() -> Iterator[None]:
  """Lets runs in this process save with each report, however near these are."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(reports.Reports, 'save_if_due', reports.Reports.save)
    yield
