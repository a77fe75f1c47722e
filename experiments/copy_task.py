r"""Teaches memory cores to copy a sequence, and draws how fast and how well.

  python experiments/copy_task.py --core=ntm,dnc --seed=0,1,2

A core reads random vectors and a delimiter, then recalls the vectors from blank
input (Graves et al. 2014, section 4.1). Results lie in the workdir, in place of
those of the same command, and of no others: config.json, metrics.jsonl (a line
a report), evaluation.json (fresh sequences, longer ones than trained included),
copy_task.png and copy_task.pdf; a lock keeps a second program out. Where only
the figure of finished results is missing, it is drawn and nothing is trained.
All errors are in bits for each bit that is to be recalled: guessing costs 1.
"""

import pathlib
import sys
import time
from typing import Any

# Its parts lie beside it, however it is started.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from gtmm_jax.process import signals

if __name__ == '__main__':
  signals.watch('what was not finished is lost; the same command begins anew')

from absl import app, flags
from rich.console import Console

from gtmm_jax import folds
from gtmm_jax.process import command, jax_settings
from gtmm_jax.runs import workdirs

# jax is imported after the flags are read: --help and mistakes cost no time.

FLAGS = flags.FLAGS

CORES = ('ntm', 'lru', 'dnc', 'introspective', 'lstm')
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy')
# A core has learned to copy where its error in training is below.
LEARNED = 0.05
_LARGEST_SEED = 2**32 - 1
_NUMBERS = {
  'length': (10, 'Most vectors of a sequence in training; the fewest are 1.'),
  'bits': (6, 'Bits of a vector.'),
  'steps': (2000, 'Updates.'),
  'batch_size': (32, 'Sequences in a batch.'),
  'slots': (32, 'Slots of the memory, N; the LSTM has none.'),
  'word_size': (16, 'Words of a slot, W; introspective stores its inputs.'),
  'controller_size': (100, 'Units of the LSTM that every core has.'),
  'report_every': (100, 'Updates between two lines of metrics.jsonl.'),
  'evaluation_episodes': (200, 'Fresh sequences of each length at the end.'),
}


def define_flags() -> None:
  """Defines every flag of this program."""
  flags.DEFINE_list(
    'core', ['ntm'], f'One or more of {", ".join(CORES)}, with commas between.'
  )
  flags.DEFINE_list(
    'seed', ['0'], 'One or more seeds, 0 to 2^32 - 1, with commas between.'
  )
  for name, (default, text) in _NUMBERS.items():
    flags.DEFINE_integer(name, default, text, lower_bound=1)
  flags.DEFINE_integer(
    'longest',
    None,
    'Most vectors of a sequence in the evaluation. Default: twice --length.',
    lower_bound=1,
  )
  flags.DEFINE_float(
    'learning_rate',
    3e-3,
    "Adam's, above 0, below 1; it falls to 0 over the last third of the steps.",
  )
  flags.DEFINE_string('workdir', 'runs/copy_task', 'Folder of the results.')


def main(_: list[str]) -> None:
  """Checks the flags; trains each core with each seed; writes and draws."""
  try:
    settings = _settings()
    workdir = workdirs.usable(FLAGS.workdir)
    command.import_jax()
    command.require_device()
    settings |= jax_settings.in_force()
    problems = {name: _problem(name, settings) for name in settings['core']}
    _require_same(workdir, settings)
  except (ValueError, OSError) as error:
    command.fail(error)
  try:
    with workdirs.alone(workdir):
      _run(problems, settings, workdir, command.console())
  except (workdirs.CannotGoOn, OSError) as error:
    command.fail(error)


def _settings() -> dict[str, Any]:
  """What the flags say; raises `ValueError` where it makes no sense."""
  for name in FLAGS.core:
    if name not in CORES:
      raise ValueError(
        f'--core has {name!r} in it; there are {", ".join(CORES)}.'
      )
  for text in FLAGS.seed:
    if not text.isdecimal() or int(text) > _LARGEST_SEED:
      raise ValueError(
        f'--seed has {text!r} in it; it must be whole numbers from 0 to '
        f'2^32 - 1 with commas between, as in --seed=0,1,2.'
      )
  for name in ('core', 'seed'):
    if not FLAGS[name].value:
      raise ValueError(f'--{name} is empty; give one or more.')
  longest = FLAGS.longest or 2 * FLAGS.length
  if longest < FLAGS.length:
    raise ValueError(
      f'--longest is {longest}; it must be at least --length, {FLAGS.length}.'
    )
  # Written so that "not a number" fails, too.
  if not 0 < FLAGS.learning_rate < 1:
    raise ValueError(
      f'--learning_rate is {FLAGS.learning_rate}; it must lie between 0 and 1.'
    )
  return {
    # Each once, in the order given.
    'core': list(dict.fromkeys(FLAGS.core)),
    'seed': list(dict.fromkeys(int(text) for text in FLAGS.seed)),
    **{name: FLAGS[name].value for name in _NUMBERS},
    'longest': longest,
    'learning_rate': FLAGS.learning_rate,
  }


def _require_same(workdir: pathlib.Path, settings: dict[str, Any]) -> None:
  """Raises `ValueError` where results would take the place of others."""
  from gtmm_jax import records

  old = records.read_config(workdir)
  if old is not None:
    was = jax_settings.BEFORE | old.get('settings', {})
    records.require_same_settings(was, settings, (), jax_settings.remedies(was))
  elif records.read_metrics(workdir):
    raise ValueError(
      f'{workdir} has records of something else; name another --workdir.'
    )


def _problem(name: str, settings: dict[str, Any]) -> Any:
  """What one core trains; raises `ValueError` for sizes that it refuses."""
  from copying import training

  sizes = ('bits', 'slots', 'word_size', 'controller_size')
  core = training.build_core(name, **{size: settings[size] for size in sizes})
  problem = training.Problem(
    training.Copier(core, settings['bits']),
    training.CopyTask(settings['bits'], settings['length']),
    settings['batch_size'],
    settings['steps'],
    settings['learning_rate'],
  )
  training.require_room(problem, settings['longest'])
  return problem


def _run(
  problems: dict[str, Any],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> None:
  """Trains where results are not finished; draws, and prints the table."""
  from copying import report
  from gtmm_jax import records

  stem = workdir / 'copy_task'
  rows = report.finished(records.read_evaluation(workdir), settings)
  drawn = [stem.with_suffix(kind) for kind in ('.png', '.pdf')]
  if rows is None or all(path.exists() for path in drawn):
    for path in drawn:
      path.unlink(missing_ok=True)
    rows = _train(problems, settings, workdir, console)
  lines = records.read_metrics(workdir)
  written = command.attempt_drawing(
    lambda: report.draw(rows, lines, settings, stem), stem
  )
  console.print(report.table(rows, settings))
  console.print(f'results  {workdir}')
  if written:
    console.print(f'figure   {written[0]}')


def _train(
  problems: dict[str, Any],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> list[dict[str, Any]]:
  """Trains every core with every seed; returns what each came to."""
  import jax

  from gtmm_jax import records
  from gtmm_jax.process import provenance
  from gtmm_jax.runs import starts

  config = {
    'settings': settings,
    'versions': provenance.versions(_PACKAGES),
    'device': provenance.device(jax.devices()[0]),
  }
  about = {**config, **provenance.published()}
  rows: list[dict[str, Any]] = []
  # Results take the place of those of earlier starts.
  with starts.recorded(workdir, config, earlier=()):
    records.drop_metrics_after(workdir, -1)
    for name, problem in problems.items():
      program, seconds = _compile(problem)
      console.print(f'{name}: compiled in {seconds:.1f} s')
      for seed in settings['seed']:
        row = {'core': name, 'seed': seed, 'compile_seconds': seconds}
        row |= _learn(problem, program, row, settings, workdir, console)
        rows.append(row)
        records.write_evaluation(workdir, {**about, 'runs': rows})
  return rows


def _compile(problem: Any) -> tuple[Any, float]:
  """The training program of a core, and the seconds that compiling took."""
  import jax

  from copying import training

  began = time.perf_counter()
  key = jax.random.key(0)
  state = training.initial_state(problem, key)
  program = training.train.lower(problem, state, key, 1).compile()
  return program, time.perf_counter() - began


def _learn(
  problem: Any,
  program: Any,
  run: dict[str, Any],
  settings: dict[str, Any],
  workdir: pathlib.Path,
  console: Console,
) -> dict[str, Any]:
  """Trains one core with one seed; what came out, as evaluation.json has it."""
  import jax

  from copying import training
  from gtmm_jax import records
  from gtmm_jax.runs import progress

  key = jax_settings.key(run['seed'])
  state = training.initial_state(problem, key)
  learned_at, step, began = None, 0, time.perf_counter()
  title = f'{run["core"]}, seed {run["seed"]}'
  with progress.Training(console, step, settings['steps']) as shown:
    while step < settings['steps']:
      count = min(settings['report_every'], settings['steps'] - step)
      state, bits = program(state, key, count)
      bits, step = float(bits), step + count
      seconds = time.perf_counter() - began
      if learned_at is None and bits < LEARNED:
        learned_at = step
      line = {'core': run['core'], 'seed': run['seed'], 'step': step}
      records.append_metrics(
        workdir, {**line, 'seconds': seconds, 'bits': bits}
      )
      shown.report(step, f'{title}: {bits:.4f} bits a bit')
  by_length = training.evaluate(
    problem.copier,
    state.variables,
    training.CopyTask(settings['bits'], settings['longest']),
    jax.random.fold_in(key, folds.EVALUATION),
    settings['evaluation_episodes'],
  ).tolist()
  trained = range(1, settings['length'] + 1)
  return {
    'parameters': sum(leaf.size for leaf in jax.tree.leaves(state.variables)),
    'seconds': seconds,
    'learned_at': learned_at,
    # As in training: of sequences of all lengths, a long one has more bits.
    'bits': sum(n * by_length[n - 1] for n in trained) / sum(trained),
    'bits_by_length': by_length,
  }


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=command.parse_flags)
