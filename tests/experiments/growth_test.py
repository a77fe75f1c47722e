"""The values of --grow, and the settings that they give."""

import pytest
from absl import flags

from benchmarking import growth
from gtmm_jax.runs import flags as run_flags


@pytest.fixture
def values():
  """Returns a function that parses words by flags as those of a run."""
  defined = flags.FlagValues()
  flags.DEFINE_string('model', 'dnc', '', defined)
  flags.DEFINE_string('order', None, '', defined)
  flags.DEFINE_multi_string('set', [], '', defined)
  for name in ('replicas', 'batch_size', 'pre_recall', 'seconds'):
    flags.DEFINE_integer(name, None, '', flag_values=defined)

  def parse(*words: str) -> flags.FlagValues:
    defined(['benchmark.py', *words])
    return defined

  return parse


def test_replicas_grow_unless_another_setting_does():
  assert growth.read(None, None) == ('replicas', (1, 4))
  assert growth.read(None, 7) == ('replicas', (7,))
  assert growth.read('slots=64,8,08', 3) == ('slots', (8, 64))


@pytest.mark.parametrize(
  'text', ['', 'slots', 'slots=', 'slots=0', 'slots=-1', 'slots=1,,2', '=1,2']
)
def test_what_is_no_growth_is_refused(text):
  with pytest.raises(ValueError, match='from 1 on'):
    growth.read(text, None)


def test_each_value_is_set_as_its_flag_or_as_a_size(values):
  parsed = values('--replicas=2', '--set=latent_size=8')
  assert run_flags.read(parsed).replicas == 2
  batches = growth.settings(growth.Growth('batch_size', (3, 5)), parsed)
  assert [each.batch_size for each in batches] == [3, 5]
  lengths = growth.settings(growth.Growth('pre_recall', (6, 9)), parsed)
  assert [each.episode for each in lengths] == [
    {'pre_recall': 6},
    {'pre_recall': 9},
  ]
  slots = growth.settings(growth.Growth('slots', (16,)), parsed)
  assert (slots[0].slots, slots[0].sizes) == (16, {'latent_size': 8})
  for each in (*batches, *lengths, *slots):
    assert each.replicas == 2
  # What was parsed stays as it was.
  assert parsed['batch_size'].value is None
  assert parsed['set'].value == ['latent_size=8']


def test_without_replicas_there_is_one(values):
  grown = growth.settings(growth.Growth('batch_size', (3,)), values())
  assert grown[0].replicas == 1


@pytest.mark.parametrize('name', ['floors', 'seconds', 'v'])
def test_a_setting_that_is_not_there_is_refused(values, name):
  with pytest.raises(ValueError, match=f'{name}: there is no such setting'):
    growth.settings(growth.Growth(name, (1, 2)), values())
