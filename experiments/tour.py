# %% [markdown]
"""A tour of a trained run: look at its memory, measure it, dream with it.

Open this file as a notebook (VS Code, PyCharm, Spyder and jupytext read its
cells), or run it: `python experiments/tour.py`. It takes about a minute on two
CPU cores. Figures are shown in the notebook, and are in `runs/tour/pictures/`.
"""

# %%
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import gtmm_jax
from gtmm_jax import figures
from gtmm_jax.runs import prepare, session
from gtmm_jax.runs.settings import Settings
from gtmm_jax.trained import dreams, sheets

# Constants to change: more steps learn more.
WORKDIR = pathlib.Path('runs/tour')
STEPS = 800
EPISODES = 50
SAMPLES = 20


def show(figure: figures.Figure, name: str) -> figures.Figure:
  """Writes a figure as PNG and PDF, and returns it for the notebook."""
  figures.save(figure, WORKDIR / 'pictures' / name)
  plt.close(figure)
  return figure


# %% [markdown]
# ## Train a model
#
# The task is perfect recall: ten random digits, then the first five again, in
# the same order. The model is the introspection network, which stores the
# latent of every frame and reads them by their age. A run that is complete is
# not trained again.

# %%
request = Settings(
  task='perfect_recall',
  model='introspective',
  preset='small',
  replicas=1,
  steps=STEPS,
  evaluate_every=0,
  evaluation_episodes=EPISODES,
  workdir=str(WORKDIR),
)
session.complete(prepare.prepare(request))

# %% [markdown]
# ## Load it
#
# `load` needs the folder alone. What it returns has the model, its variables,
# the task and the data, and functions that work under `jax.jit`.

# %%
run = gtmm_jax.load(WORKDIR, replica=0)
print(f'{run.settings.model} after {run.step:,} steps; {run.task}')

# %% [markdown]
# ## Look at an episode
#
# Episodes are drawn from digits that the model has never seen. Axes are time
# first, then the episodes. Underlined frames repeat an earlier one.

# %%
episodes = dreams.draw(run, jax.random.key(0), EPISODES)
frames, is_known = episodes.frames, episodes.predictable[:, 0]
print('frames', frames.shape)
row = figures.Row('episode 1', frames[:, 0], is_known)
show(figures.strip_figure([row]), 'episode')

# %% [markdown]
# ## Look at its memory
#
# `watch` returns all that the memory does with an episode. The weights of a
# read head are drawn here: a row for each frame, a column for each slot. From
# frame 11 on they are on slot 10, which holds the latent of ten frames before.

# %%
watched = run.watch(frames[:, 0])
weights = watched.core.read_weights
print('read weights: frames, heads, slots', weights.shape)
head = int(weights[10:].max(axis=-1).mean(axis=0).argmax())
count, _, slots = weights.shape
figure, axes = plt.subplots(figsize=(4, 4), layout='constrained')
ends = (0.5, slots + 0.5, count + 0.5, 0.5)
picture = axes.imshow(weights[:, head], cmap='Blues', vmin=0, extent=ends)
axes.set(xlabel='slot, 1: of the frame before', ylabel='frame')
axes.set_xticks(range(1, slots + 1, 3))
axes.set_title(f'read weights of head {head + 1}')
figure.colorbar(picture, shrink=0.7)
show(figure, 'read_weights')

# %% [markdown]
# The figure of the run has all heads, what is in the slots, and the gates.

# %%
show(run.figure('memory'), 'memory')

# %% [markdown]
# ## Measure what it remembers
#
# The KL of a frame is what the model did not know before it saw the frame. If
# it remembers, the KL falls where frames come back.

# %%
state, terms = run.observe(jax.random.key(1), frames)
kl = terms.kl.mean(axis=1)
print(f'KL of new frames       {kl[~is_known].mean():6.2f} nats')
print(f'KL of repeated frames  {kl[is_known].mean():6.2f} nats')
figure, axes = plt.subplots(figsize=(6, 3), layout='constrained')
colours = ['tab:orange' if known else 'tab:blue' for known in is_known]
axes.bar(range(1, len(kl) + 1), kl, color=colours)
axes.set(xlabel='frame', ylabel='KL, nats')
axes.set_title('what the model did not know (orange: repeated frames)')
show(figure, 'kl')

# %% [markdown]
# With more samples of the posterior the bound on the log-likelihood is tighter:
# importance-weighted, or a particle filter's, which resamples whole memories.

# %%
few = frames[:, :5]
for bound in ('elbo', 'iwae', 'particle'):
  nats = run.log_likelihood(jax.random.key(2), few, None, bound, SAMPLES)
  print(
    f'log-likelihood, {bound:8} {nats.mean():9.1f} nats an episode, at least'
  )

# %% [markdown]
# ## Dream
#
# After ten frames the model goes on alone. If it remembers, what it dreams is
# what it has seen. The share of dreamt frames whose nearest observed frame is
# the right one is the retrieval accuracy; by chance it is a tenth.

# %%
observed = run.task.prefix
dreamt = dreams.dream(run, jax.random.key(3), episodes, observed, samples=3)
seen = frames[:observed]
distance = jnp.abs(dreamt.frames[:, :, None] - seen).mean(axis=(-3, -2, -1))
right = distance.argmin(axis=2) == dreamt.episode.source[observed:]
print(f'retrieval accuracy {right.mean():.0%}')

# %%
show(sheets.sheet(run, dreams.first(dreamt, 2)), 'dreams')

# %% [markdown]
# From nothing it dreams a whole episode: ten digits of its own, then the first
# five again.

# %%
dreamt = dreams.dream(run, jax.random.key(4), episodes, observed=0, samples=3)
show(sheets.sheet(run, dreams.first(dreamt, 1)), 'dreams_from_nothing')

# %% [markdown]
# ## Go on
#
# `experiments/generate.py` writes such sheets, animations and arrays for any
# run, and walks through what a model of navigation remembers.
# `experiments/evaluate.py` measures a run on other episodes, such as longer
# ones, with means and errors over replicas. `experiments/README.md` has all
# programs.
