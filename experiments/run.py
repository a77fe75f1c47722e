r"""Trains one of the paper's models on one of its tasks, and draws the figures.

  python experiments/run.py --task=dynamic_dependency --model=introspective

The same command continues a run where it stopped, or prints the results of a
complete one; a larger --steps trains further. The preset decides flags that are
not set. Results are in the workdir: config.json, metrics.jsonl,
evaluation.json, checkpoints/ and figures/. It is locked against other programs.
"""

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)

from gtmm_jax import runs

if __name__ == '__main__':
  runs.main()
