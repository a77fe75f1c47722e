"""The preset `small`: two CPU cores learn a task in minutes.

It keeps the paper's models and 28x28 frames, and takes dense networks and short
episodes. All models have the same number of parameters.
"""

import dataclasses

from gtmm_jax.presets.preset import (
  KEY_STRENGTH,
  MODELS,
  Preset,
  by_model,
  episodes,
  frozen,
)

SMALL = Preset(
  networks='dense',
  dense_hidden=(256, 256),
  patches=(),
  latent_size=32,
  prior_hidden=(128,),
  prior_components=1,
  posterior='additive',
  read_heads=5,
  controller_size=by_model(204, 205, 72, 72, 69, 128, 105, 100),
  attention_size=128,
  word_size=64,
  key_size=64,
  summary_size=0,
  key_strength=KEY_STRENGTH,
  lru_strength='softplus',
  condition_scale='sqrt',
  # The NTM has the paper's words and keys; with tags it learns no map.
  options=frozen(ntm=frozen(tag=False)),
  store=frozen(
    vrnn='sample',
    introspective='sample',
    ntm='denoised',
    lru='denoised',
    dnc='denoised',
    associative='denoised',
    transformer='denoised',
    ssm='sample',
  ),
  batch_size=10,
  learning_rate=2e-3,
  long_learning_rate=1e-4,
  schedule='decay',
  warmup_steps=0,
  fall_share=0.2,
  gradient_norm=None,
  average=0.0,
  replicas=3,
  steps=frozen(
    perfect_recall=2_000,
    parity_recall=10_000,
    one_shot_recall=3_000,
    dynamic_dependency=6_000,
    similarity_cued_recall=4_000,
    navigation=8_000,
    mixture=10_000,
    rotation=2_400,
    frames=5_000,
  ),
  episodes=episodes(pre_recall=10, length=20),
  report_every=100,
)

SMALL_COLOUR = dataclasses.replace(
  SMALL,
  dense_hidden=(256,),
  patches=((4, 32), (2, 64)),
  latent_size=128,
  prior_hidden=(256,),
  controller_size=by_model(230, 128, 145, 149, 143, 194, 163, 171),
  summary_size=48,
  store=frozen(
    **dict.fromkeys(MODELS, 'denoised') | {'vrnn': 'sample', 'ssm': 'sample'}
  ),
)
