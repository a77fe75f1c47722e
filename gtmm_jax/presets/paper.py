"""The preset `paper`: section 4.1 and appendix B of Gemici et al. 2017."""

import dataclasses

from gtmm_jax.presets.preset import (
  KEY_STRENGTH,
  MODELS,
  TASKS,
  Preset,
  by_model,
  episodes,
  frozen,
)

# Section 3.2: keys are functions of h_t alone.
_PAPER_WIRING = frozen(tag=False, controller_weight=1.0)

PAPER = Preset(
  networks='digit',
  dense_hidden=(),
  patches=(),
  latent_size=32,
  prior_hidden=(64,),
  prior_components=1,
  posterior='additive',
  read_heads=5,
  controller_size=by_model(299, 422, 124, 127, 122, 179, 193, 204),
  attention_size=128,
  word_size=48,
  key_size=64,
  summary_size=0,
  key_strength=KEY_STRENGTH,
  lru_strength='none',
  condition_scale=1.0,
  options=frozen(**dict.fromkeys(('ntm', 'lru', 'dnc'), _PAPER_WIRING)),
  store=frozen(**dict.fromkeys(MODELS, 'sample')),
  batch_size=10,
  learning_rate=1e-3,
  long_learning_rate=1e-4,
  schedule='constant',
  warmup_steps=0,
  fall_share=2 / 3,
  gradient_norm=None,
  average=0.0,
  replicas=20,
  steps=frozen(**dict.fromkeys(TASKS, 100_000)),
  episodes=episodes(pre_recall=20, length=25),
  report_every=1_000,
)

# The 3D tasks: section 4.1 and the second half of appendix B.
PAPER_COLOUR = dataclasses.replace(
  PAPER,
  networks='colour',
  latent_size=256,
  prior_hidden=(128,),
  controller_size=by_model(353, 111, 351, 362, 350, 425, 291, 334),
  word_size=64,
  summary_size=48,
)
