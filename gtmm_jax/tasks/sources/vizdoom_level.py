"""A level of ViZDoom as a still world: free places, and views from them."""

import contextlib
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

# Scenarios that come with ViZDoom and have rooms to look at.
SCENARIOS = ('my_way_home', 'deathmatch', 'health_gathering_supreme')
# Levels of the two free games that come with it.
_GAMES = {
  'freedoom1.wad': re.compile('E[1-4]M[1-9]'),
  'freedoom2.wad': re.compile('MAP(0[1-9]|[12][0-9]|3[0-2])'),
}
LEVELS = f'{", ".join(SCENARIOS)}, E1M1 to E4M9, MAP01 to MAP32'
# Frames are rendered in 320 x 240, and of those the middle square is kept:
# 74 degrees of the 90.
SIDE = 240
_LEFT = 40
# Tics after the start, in which a level places the player and lets nobody turn,
# and tics after a jump, in which the view finds its height.
_START, _SETTLE = 35, 8
# Height of the player, in the level's units.
_HEIGHT = 56
# Rows about the horizon, and how near something may be in them, in the depth
# buffer's units: one is about 8 of the level's, and a player is 32 wide.
_HORIZON = slice(SIDE // 2 - 8, SIDE // 2 + 8)
_NEAREST = 5
# How many draws in a row may fail before a level counts as one without room.
_ATTEMPTS = 20_000
_JUMPS = 200


class Plan(NamedTuple):
  """What is seen of a level from above.

  Attributes:
    lines: `[L, 4]`, edges of sectors, from (x, y) to (x, y).
    sector: `[L]`, whose edge it is.
    high: `[S]` bool, where a player can stand upright.
  """

  lines: np.ndarray
  sector: np.ndarray
  high: np.ndarray


def resolve(name: str) -> tuple[str | None, str | None, str]:
  """The game file, the scenario file and the map that a name stands for.

  Either file is None where it is the default one.

  Raises:
    ValueError: for a name that is not one of `LEVELS`.
  """
  if name in SCENARIOS:
    return None, f'{name}.wad', 'map01'
  for game, pattern in _GAMES.items():
    if pattern.fullmatch(name):
      return game, None, name.lower()
  raise ValueError(f'--level is {name!r}; there are {LEVELS}.')


def is_inside(plan: Plan, point: np.ndarray) -> bool:
  """Whether `point`, (x, y), lies in one sector that a player can stand in.

  A point is in a sector if a ray from it crosses an odd number of its edges.
  """
  x, y = point
  x1, y1, x2, y2 = plan.lines.T
  crosses = (y1 > y) != (y2 > y)
  slope = (x2 - x1)[crosses] / (y2 - y1)[crosses]
  right = x1[crosses] + slope * (y - y1[crosses]) > x
  counts = np.bincount(plan.sector[crosses][right], minlength=len(plan.high))
  inside = np.flatnonzero(counts % 2)
  return len(inside) == 1 and bool(plan.high[inside[0]])


def draw_place(rng: np.random.Generator, plan: Plan) -> np.ndarray:
  """Whole (x, y), evenly from what `is_inside` accepts.

  Raises:
    ValueError: if the level has no such place.
  """
  corners = plan.lines.reshape(-1, 2)
  low, high = corners.min(0), corners.max(0)
  for _ in range(_ATTEMPTS):
    point = np.rint(rng.uniform(low, high))
    # Off the grid that edges are drawn on.
    if is_inside(plan, point + 0.5):
      return point
  raise ValueError(
    'the level has no place to stand in; choose another --level.'
  )


class Level:
  """A running game in which nothing moves but the view and some textures."""

  def __init__(self, game: Any) -> None:
    self._game = game
    self._begin()
    self._plan = _read_plan(game.get_state().sectors)

  def _begin(self) -> None:
    """Makes a new start harmless and still."""
    self._wait(_START)
    for cheat in ('god', 'freeze'):
      self._game.send_game_command(cheat)
    self._wait(_SETTLE)

  def _wait(self, tics: int) -> None:
    self._game.make_action([0.0], tics)

  def record(
    self, rng: np.random.Generator, turned: np.ndarray, size: int
  ) -> tuple[np.ndarray, float]:
    """What a camera sees that turns to the right at a random free place.

    Args:
      rng: source of the place and of the first heading.
      turned: `[T]`, how far it has turned in each frame, in degrees; a full
        turn at least, else what is behind it is not known to be free.
      size: height and width of the frames.

    Returns:
      Frames `[T, size, size, 3]` uint8, and the largest error of a heading, in
      degrees.

    Raises:
      ValueError: if no place of the level has a free view.
    """
    for _ in range(_JUMPS):
      place = draw_place(rng, self._plan)
      headings = rng.uniform(0, 360) - turned
      self._game.send_game_command('warp {:.0f} {:.0f}'.format(*place))
      self._wait(_SETTLE)
      seen = self._turn(place, headings, size)
      if seen is not None:
        return seen
      if self._game.is_episode_finished():
        self._game.new_episode()
        self._begin()
    raise ValueError(
      'the level has no place with a free view; choose another --level.'
    )

  def _turn(
    self, place: np.ndarray, headings: np.ndarray, size: int
  ) -> tuple[np.ndarray, float] | None:
    """What `record` returns; None if the player is not there or sees too near.

    Each turn starts from where the last one ended, so that errors do not add
    up. The first heading is taken twice: to get there, and to stand still.
    """
    frames, worst = [], 0.0
    square = slice(_LEFT, _LEFT + SIDE)
    state = self._game.get_state()
    for heading in (headings[0], *headings):
      if state is None:
        return None
      self._game.make_action([_difference(state.game_variables[0], heading)])
      state = self._game.get_state()
      if state is None:
        return None
      angle, *position = state.game_variables
      nearest = state.depth_buffer[_HORIZON, square].min()
      if nearest < _NEAREST or np.abs(position - place).max() > 0.1:
        return None
      worst = max(worst, abs(_difference(angle, heading)))
      picture = Image.fromarray(state.screen_buffer[:, square])
      frames.append(picture.resize((size, size), Image.Resampling.BOX))
    return np.stack([np.asarray(frame) for frame in frames[1:]]), worst


def _difference(one: float, other: float) -> float:
  """`one - other` in degrees, the short way round."""
  return float((one - other + 180) % 360 - 180)


def _read_plan(sectors: Any) -> Plan:
  """The plan of what the game tells about a level."""
  edges = [
    (line.x1, line.y1, line.x2, line.y2, index)
    for index, sector in enumerate(sectors)
    for line in sector.lines
  ]
  table = np.array(edges, np.float64)
  high = [
    sector.ceiling_height - sector.floor_height >= _HEIGHT for sector in sectors
  ]
  return Plan(table[:, :4], table[:, 4].astype(int), np.array(high))


# ViZDoom's exceptions are not of one family.
_FAILURES = (
  'FileDoesNotExistException',
  'MessageQueueException',
  'SharedMemoryException',
  'ViZDoomErrorException',
  'ViZDoomIsNotRunningException',
  'ViZDoomNoOpenALSoundException',
  'ViZDoomUnexpectedExitException',
)


@contextlib.contextmanager
def open_level(name: str, seed: int) -> Iterator[Level]:
  """Starts a level without a window, and ends it; leaves no file behind.

  Raises:
    ValueError: for an unknown name, where ViZDoom is not installed, or where it
      does not start.
  """
  game_file, scenario, map_name = resolve(name)
  vizdoom = import_vizdoom()
  game = vizdoom.DoomGame()
  if game_file:
    here = pathlib.Path(vizdoom.__file__).parent
    game.set_doom_game_path(str(here / game_file))
  if scenario:
    folder = pathlib.Path(vizdoom.scenarios_path)
    game.set_doom_scenario_path(str(folder / scenario))
  game.set_doom_map(map_name)
  game.set_seed(seed)
  _hide_all_but_the_world(game, vizdoom)
  with tempfile.TemporaryDirectory() as scratch:
    # The game keeps its configuration in a file that can be named, and makes a
    # folder where it is started.
    game.set_doom_config_path(str(pathlib.Path(scratch) / 'vizdoom.ini'))
    try:
      with contextlib.chdir(scratch):
        game.init()
      yield Level(game)
    except tuple(getattr(vizdoom, name) for name in _FAILURES) as error:
      raise ValueError(f'ViZDoom failed: {error}') from error
    finally:
      game.close()


def import_vizdoom() -> Any:
  """The module; raises `ValueError`, naming the extra, where it is missing."""
  try:
    import vizdoom
  except ImportError as error:
    raise ValueError(
      'ViZDoom is not installed; pip install "gtmm_jax[vizdoom]".'
    ) from error
  return vizdoom


def _hide_all_but_the_world(game: Any, vizdoom: Any) -> None:
  """No window, no sound; no monster, weapon, text or flash in the picture."""
  game.set_window_visible(False)
  game.set_sound_enabled(False)
  for hide in (
    game.set_render_hud,
    game.set_render_weapon,
    game.set_render_crosshair,
    game.set_render_messages,
    game.set_render_decals,
    game.set_render_particles,
    game.set_render_effects_sprites,
    game.set_render_screen_flashes,
  ):
    hide(False)
  game.add_game_args('-nomonsters')
  game.set_mode(vizdoom.Mode.PLAYER)
  game.set_episode_timeout(0)
  game.set_screen_resolution(vizdoom.ScreenResolution.RES_320X240)
  game.set_screen_format(vizdoom.ScreenFormat.RGB24)
  game.set_depth_buffer_enabled(True)
  game.set_sectors_info_enabled(True)
  game.set_available_buttons([vizdoom.Button.TURN_LEFT_RIGHT_DELTA])
  variable = vizdoom.GameVariable
  game.set_available_game_variables(
    [variable.ANGLE, variable.POSITION_X, variable.POSITION_Y]
  )
