"""The workdir of a run: what was set, what was measured, what came out.

`config.json` and `evaluation.json` are replaced as a whole, so that a reader
finds the old file or the new one, never half of one. `metrics.jsonl` grows by
a line a report; a crash can tear its last line only, and readers pass over a
torn last line. A line that was lost otherwise is made up for by one that says
`lost` and holds nulls. Arrays are written as lists, and what is not a finite
number as null, so every file is JSON to any reader. Nats throughout.
"""

from gtmm_jax.records import history
from gtmm_jax.records.summary import (
  MeanAndError,
  by_replica,
  failed_replicas,
  pool,
  settled_at,
  summarise,
)
from gtmm_jax.records.workdir import (
  SettingsDiffer,
  append_metrics,
  drop_metrics_after,
  read_config,
  read_evaluation,
  read_metrics,
  require_same_settings,
  write_config,
  write_evaluation,
)

__all__ = [
  'MeanAndError',
  'SettingsDiffer',
  'append_metrics',
  'by_replica',
  'drop_metrics_after',
  'failed_replicas',
  'history',
  'pool',
  'read_config',
  'read_evaluation',
  'read_metrics',
  'require_same_settings',
  'settled_at',
  'summarise',
  'write_config',
  'write_evaluation',
]
