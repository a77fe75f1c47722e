"""Devices that are dealt out to the runs of a study."""

import pathlib
import time

import pytest

from studies import devices, local
from studies.cell_records import Cell

_LISTED = """\
GPU 0: NVIDIA H200 (UUID: GPU-aa-1)
GPU 1: NVIDIA H200 (UUID: GPU-bb-2)
"""
_DIVIDED = """\
GPU 0: NVIDIA H200 (UUID: GPU-aa-1)
  MIG 3g.71gb     Device  0: (UUID: MIG-cc-3)
  MIG 3g.71gb     Device  1: (UUID: MIG-dd-4)
GPU 1: NVIDIA H200 (UUID: GPU-bb-2)
"""


@pytest.mark.parametrize(
  'environment, installed, listed, found',
  [
    ({}, [], _LISTED, []),
    ({}, ['cuda'], '', []),
    ({}, ['cuda'], _LISTED, ['GPU-aa-1', 'GPU-bb-2']),
    ({}, ['cuda'], _DIVIDED, ['MIG-cc-3', 'MIG-dd-4', 'GPU-bb-2']),
    ({'CUDA_VISIBLE_DEVICES': '3, 1'}, ['cuda'], _LISTED, ['3', '1']),
    ({'CUDA_VISIBLE_DEVICES': 'GPU-bb-2'}, ['cuda'], '', ['GPU-bb-2']),
    ({'CUDA_VISIBLE_DEVICES': ''}, ['cuda'], _LISTED, []),
    ({'CUDA_VISIBLE_DEVICES': '-1'}, ['cuda'], _LISTED, []),
    # CUDA ignores what stands behind a device that is none.
    ({'CUDA_VISIBLE_DEVICES': '2,-1,3'}, ['cuda'], _LISTED, ['2']),
    ({'JAX_PLATFORMS': 'cpu'}, ['cuda', 'tpu'], _LISTED, []),
    (
      {'JAX_PLATFORMS': 'cuda,cpu'},
      ['cuda'],
      _LISTED,
      ['GPU-aa-1', 'GPU-bb-2'],
    ),
  ],
)
def test_gpus_are_those_that_jax_would_use(
  environment, installed, listed, found
):
  assert devices.dealt(environment, installed, lambda: listed) == found


@pytest.mark.parametrize('platforms', ['', 'tpu', 'tpu,cpu'])
def test_a_tpu_is_refused(platforms):
  with pytest.raises(ValueError, match='use --jobs=1'):
    devices.dealt({'JAX_PLATFORMS': platforms}, ['tpu'], lambda: '')


def _run(tmp_path, count, jobs, dealt):
  """Runs cells that print their devices; returns these, and how many ran."""
  program = tmp_path / 'run.py'
  program.write_text(
    'import os, time\n'
    'print(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))\n'
    'time.sleep(0.3)\n'
  )
  left = [
    Cell(str(n), '', {}, tmp_path / str(n), {}, 1, 1, '', False, False, [])
    for n in range(count)
  ]
  executor = local.executor(program, jobs, dealt)
  said, running, most = [], 0, 0
  while left or running:
    while left and running < executor.jobs:
      assert executor.start(left.pop()) == 'begins'
      running += 1
    most = max(most, running)
    # No two runs have the same one.
    for ended in executor.take_ended():
      assert ended.code == 0
      running -= 1
      said += ended.lines
    time.sleep(0.02)
  return said, most


def test_each_run_has_a_device_of_its_own(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  said, most = _run(tmp_path, 4, 3, ['GPU-a', 'GPU-b'])
  assert most == 2
  assert set(said) == {'GPU-a', 'GPU-b'} and len(said) == 4


def test_runs_share_all_devices_where_none_are_dealt_out(tmp_path, monkeypatch):
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  assert _run(tmp_path, 2, 2, []) == (['all', 'all'], 2)
