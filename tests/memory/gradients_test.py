"""Without the written-out backward passes every value stays the same."""

import ast
import importlib
import pathlib

import jax
import jax.numpy as jnp
import pytest

from gtmm_jax import memory

CORES = {
  'LSTM': {'size': 3},
  'Introspective': {'latent_size': 2, 'slots': 4, 'controller_size': 3},
  'Associative': {'latent_size': 2, 'slots': 4, 'controller_size': 3},
  'NTM': {'slots': 4, 'word_size': 3, 'controller_size': 3},
  'LRU': {'slots': 4, 'word_size': 3, 'controller_size': 3},
  'DNC': {'slots': 4, 'word_size': 3, 'controller_size': 3},
}


class _Remover(ast.NodeTransformer):
  """Takes out decorators and imports that name `gradients`."""

  def __init__(self):
    self.removed = 0

  def visit_FunctionDef(self, node):
    rest = [
      x for x in node.decorator_list if 'gradients.' not in ast.unparse(x)
    ]
    self.removed += len(node.decorator_list) - len(rest)
    node.decorator_list = rest
    return node

  def visit_ImportFrom(self, node):
    node.names = [x for x in node.names if x.name != 'gradients']
    return node


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
  """Imports the package of cores without gradients.py and all that names it."""
  folder = tmp_path_factory.mktemp('copy')
  (folder / 'plain_memory').mkdir()
  removed = 0
  for path in pathlib.Path(memory.__file__).parent.glob('*.py'):
    if path.name != 'gradients.py':
      remover = _Remover()
      source = ast.unparse(remover.visit(ast.parse(path.read_text())))
      source = source.replace('gtmm_jax.memory', 'plain_memory')
      (folder / 'plain_memory' / path.name).write_text(source)
      removed += remover.removed
  # Products, cosines, softmax, ages, and four of the DNC.
  assert removed == 8
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(folder)
    yield importlib.import_module('plain_memory')


def _program(core) -> str:
  """Returns what is compiled for three steps of a core."""
  carry = core.initialize_carry(jax.random.key(0), (2, 5))
  inputs = jnp.zeros((3, 2, 5))
  variables = jax.eval_shape(core.init, jax.random.key(0), carry, inputs[0])

  def run(variables, carry, inputs):
    def step(carry, x):
      return core.apply(variables, carry, x)

    return jax.lax.scan(step, carry, inputs)

  return jax.jit(run).lower(variables, carry, inputs).as_text()


@pytest.mark.parametrize('name', CORES)
def test_without_gradients_the_same_program_computes_all_values(plain, name):
  settings = CORES[name]
  program = _program(getattr(plain, name)(**settings))
  assert program == _program(getattr(memory, name)(**settings))
  assert 'stablehlo.while' in program
