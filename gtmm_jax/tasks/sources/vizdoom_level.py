"""A level of ViZDoom in which nothing moves: free places and their views."""

import contextlib
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

# Scenarios of ViZDoom that have rooms to look at.
SCENARIOS = ('my_way_home', 'deathmatch', 'health_gathering_supreme')
# Levels of the two free games that ViZDoom contains.
_GAMES = {
  'freedoom1.wad': re.compile('E[1-4]M[1-9]'),
  'freedoom2.wad': re.compile('MAP(0[1-9]|[12][0-9]|3[0-2])'),
}
LEVELS = f'{", ".join(SCENARIOS)}, E1M1 to E4M9, MAP01 to MAP32'
# Frames are rendered as 320 x 240 pixels and cropped to the square in the
# middle, 74 of the 90 degrees.
SIDE = 240
_LEFT = 40
# Tics after the start, while the level places the player and no turn works; and
# tics after a jump, while the camera moves to its height.
_START, _SETTLE = 35, 8
# Height of the player, in the level's units.
_HEIGHT = 56
# Rows around the horizon, and the least distance of anything in them, in the
# depth buffer's units: one is about 8 of the level's units, and a player is 32
# units wide.
_HORIZON = slice(SIDE // 2 - 8, SIDE // 2 + 8)
_NEAREST = 5
# Numbers of failed draws in a row after which a level counts as without room.
_ATTEMPTS = 20_000
_JUMPS = 200


class Plan(NamedTuple):
  """A level's floor plan.

  Attributes:
    lines: `[L, 4]`, edges of sectors, from (x, y) to (x, y).
    sector: `[L]`, index of the sector that the edge belongs to.
    high: `[S]` bool, whether a sector is high enough for a player.
  """

  lines: np.ndarray
  sector: np.ndarray
  high: np.ndarray


def resolve(name: str) -> tuple[str | None, str | None, str]:
  """Returns the game file, the scenario file and the map of a level's name.

  A file is None if it is the default.

  Raises:
    ValueError: the name is not one of `LEVELS`.
  """
  if name in SCENARIOS:
    return None, f'{name}.wad', 'map01'
  for game, pattern in _GAMES.items():
    if pattern.fullmatch(name):
      return game, None, name.lower()
  raise ValueError(f'--level is {name!r}; there are {LEVELS}.')


def is_inside(plan: Plan, point: np.ndarray) -> bool:
  """Tells whether a point (x, y) is in exactly one sector, a high enough one.

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
  """Draws integers (x, y), uniformly from the points that `is_inside` accepts.

  Raises:
    ValueError: the level has no such place.
  """
  corners = plan.lines.reshape(-1, 2)
  low, high = corners.min(0), corners.max(0)
  for _ in range(_ATTEMPTS):
    point = np.rint(rng.uniform(low, high))
    # Edges have integer coordinates: half a unit aside, no point is on an edge.
    if is_inside(plan, point + 0.5):
      return point
  raise ValueError(
    'the level has no place to stand in; choose another --level.'
  )


class Level:
  """A running game in which only the camera and some textures move."""

  def __init__(self, game: Any) -> None:
    self._game = game
    self._begin()
    self._plan = _read_plan(game.get_state().sectors)

  def _begin(self) -> None:
    """Waits for a new game, makes the player safe and stops all motion."""
    self._wait(_START)
    for cheat in ('god', 'freeze'):
      self._game.send_game_command(cheat)
    self._wait(_SETTLE)

  def _wait(self, tics: int) -> None:
    self._game.make_action([0.0], tics)

  def record(
    self, rng: np.random.Generator, turned: np.ndarray, size: int
  ) -> tuple[np.ndarray, float]:
    """Records a camera that turns to the right at a random free place.

    Args:
      rng: random generator of the place and the first heading.
      turned: `[T]`, angle turned until each frame, in degrees; a full turn at
        least, because only frames show that a direction has a free view.
      size: height and width of the frames in pixels.

    Returns:
      Frames `[T, size, size, 3]` uint8, and the largest error of a heading, in
      degrees.

    Raises:
      ValueError: no place of the level has a free view.
    """
    for _ in range(_JUMPS):
      place = draw_place(rng, self._plan)
      headings = rng.uniform(0, 360) - turned
      self._game.send_game_command('warp {:.0f} {:.0f}'.format(*place))
      self._wait(_SETTLE)
      frames_and_error = self._turn(place, headings, size)
      if frames_and_error is not None:
        return frames_and_error
      if self._game.is_episode_finished():
        self._game.new_episode()
        self._begin()
    raise ValueError(
      'the level has no place with a free view; choose another --level.'
    )

  def _turn(
    self, place: np.ndarray, headings: np.ndarray, size: int
  ) -> tuple[np.ndarray, float] | None:
    """Records a turn at a place; None if the view is not free.

    Also None if the player is not at the place. Each step is computed from the
    heading so far, so that errors do not accumulate. The first heading is used
    twice: to turn there, and then to stand still.
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
  """Computes `one - other` in degrees, from -180 to 180."""
  return float((one - other + 180) % 360 - 180)


def _read_plan(sectors: Any) -> Plan:
  """Reads a level's plan from the game's sectors."""
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


# ViZDoom's exceptions have no common base class.
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
  """Starts a level without a window, and ends it at the end of the context.

  Leaves no files behind.

  Raises:
    ValueError: the name is unknown, ViZDoom is not installed, or it fails.
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
    # The game writes its configuration to a file with this path, and makes a
    # folder in the current folder.
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
  """Imports ViZDoom; without it, raises `ValueError` that names the extra."""
  try:
    import vizdoom
  except ImportError as error:
    raise ValueError(
      'ViZDoom is not installed; pip install "gtmm_jax[vizdoom]".'
    ) from error
  return vizdoom


def _hide_all_but_the_world(game: Any, vizdoom: Any) -> None:
  """Sets up a game without window and sound, and with nothing but the level.

  There are no monsters, weapons, texts and flashes in the pictures.
  """
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
