r"""Trains one of the paper's models on one of its tasks, and draws the figures.

  python experiments/run.py --task=dynamic_dependency --model=introspective

The same command again goes on where the run ended, or prints its results if it
is complete; a larger --steps trains further. What is not given comes from the
preset. Results lie in the workdir: config.json, metrics.jsonl, evaluation.json,
checkpoints/ and figures/; no second program is let into it meanwhile.
"""

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch(signals.GOES_ON)

from gtmm_jax import runs

if __name__ == '__main__':
  runs.main()
