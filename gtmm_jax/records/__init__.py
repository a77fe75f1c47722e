"""The files of a run's workdir: its settings, metrics and evaluation.

`config.json`, `evaluation.json` and `evaluation.npz` are replaced as a whole: a
reader finds the old file or the new one, never a part. `metrics.jsonl` grows by
one line per report; a crash can tear its last line only, and readers skip a
torn last line. A line that was lost in another way is replaced by one that is
marked `lost` and holds nulls. JSON has arrays as lists, and null for numbers
that are not finite, so that every file is valid. All values are in nats.
"""

from gtmm_jax.records import history
from gtmm_jax.records.episode_arrays import (
  EpisodeArrays,
  read_episodes,
  write_episodes,
)
from gtmm_jax.records.long_table import to_frame
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
  'EpisodeArrays',
  'MeanAndError',
  'SettingsDiffer',
  'append_metrics',
  'by_replica',
  'drop_metrics_after',
  'failed_replicas',
  'history',
  'pool',
  'read_config',
  'read_episodes',
  'read_evaluation',
  'read_metrics',
  'require_same_settings',
  'settled_at',
  'summarise',
  'to_frame',
  'write_config',
  'write_episodes',
  'write_evaluation',
]
