"""Versions and device, as every record of a measurement or a run has them."""

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jax

import gtmm_jax


def versions(packages: Sequence[str]) -> dict[str, str]:
  """Of Python, of this library, and of `packages`, which are installed."""
  return {
    'python': platform.python_version(),
    'gtmm_jax': gtmm_jax.__version__,
    **{name: metadata.version(name) for name in packages},
  }


def device(of: jax.Device) -> dict[str, Any]:
  """What a device is, and how many cores the machine has."""
  return {
    'platform': of.platform,
    'kind': of.device_kind,
    'cores': os.cpu_count(),
  }
