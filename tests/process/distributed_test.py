"""Flags of several processes: mistakes end before anything starts."""

import pytest
from absl import flags

from gtmm_jax.process import distributed, exchange


@pytest.fixture(scope='module')
def parse():
  """Returns a function that parses the flags of processes."""
  values = flags.FlagValues()

  def parsed(**given):
    values.unparse_flags()
    for name in values:
      values[name].unparse()
    values(['run.py', *(f'--{name}={value}' for name, value in given.items())])
    return values

  with pytest.MonkeyPatch.context() as patch:
    for kind in ('bool', 'string', 'integer'):
      define = getattr(flags, f'DEFINE_{kind}')
      patch.setattr(
        flags,
        f'DEFINE_{kind}',
        lambda *about, define=define: define(*about, flag_values=values),
      )
    distributed.define_flags()
  return parsed


_PLACE = {'coordinator': '127.0.0.1:9876', 'process_id': 0, 'process_count': 2}


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'distributed': True}, '--distributed finds .* leave out --coordinator'),
    ({'process_id': None}, '--coordinator needs --process_id'),
    ({'coordinator': None}, '--process_id needs --coordinator'),
    ({'process_count': None}, '--coordinator needs --process_count'),
    ({'process_id': 2}, '--process_id is 2 and --process_count is 2'),
    ({'process_id': -1}, '--process_id is -1'),
    ({'process_count': 0}, '--process_count is 0'),
    ({'coordinator': 'here'}, "--coordinator is 'here'; it must be HOST:PORT"),
    ({'coordinator': 'here:0'}, 'must be HOST:PORT'),
    ({'coordinator': ':9876'}, 'must be HOST:PORT'),
  ],
)
def test_flags_that_do_not_fit_together_are_mistakes(parse, changes, words):
  given = {**_PLACE, **changes}
  given = {name: value for name, value in given.items() if value is not None}
  with pytest.raises(ValueError, match=words):
    distributed.join(parse(**given))
  assert distributed.count() == 1


def test_without_flags_a_program_is_alone(parse):
  distributed.join(parse())
  distributed.join(parse(**{**_PLACE, 'process_count': 1}))
  assert distributed.count() == 1 and exchange.is_first()
  assert exchange.values({'a': [1]}) == [{'a': [1]}]
  assert exchange.agree((1, 2)) == (1, 2)
