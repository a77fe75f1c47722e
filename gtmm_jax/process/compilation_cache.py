"""Compiled programs, kept from one start of a program to the next.

jax reads and writes them: this file chooses where, and keeps out what is not to
be run. XLA's programs are of one CPU: those of another are in another folder.
Of damaged ones XLA's CPU backend makes crashes, or wrong numbers: each entry
has its SHA-256 beside it, and one that has not is soon deleted. The bits of a
run are the same with and without.
"""

import atexit
import contextlib
import hashlib
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import warnings

from absl import flags

# Bytes of all entries, for whatever machine; a run makes one to ten million.
_LARGEST = 256 * 10**6
# Seconds of compiling from which on a program is kept.
_WORTHWHILE = 0.1
# Seconds after which an entry without its SHA-256 is of a program that died.
_UNFINISHED = 3600
_ENTRY, _SEAL = '-cache', '.sha256'
# What /proc/cpuinfo says of a kind of CPU, on x86, ARM and RISC-V.
_KIND = (
  'vendor_id',
  'cpu family',
  'model',
  'model name',
  'stepping',
  'flags',
  'features',
  'cpu implementer',
  'cpu architecture',
  'cpu variant',
  'cpu part',
  'cpu revision',
  'isa',
)


def define_flag() -> None:
  """Defines the flag that turns this off."""
  flags.DEFINE_bool(
    'compilation_cache',
    True,
    'Keep compiled programs for the next start, in ~/.cache/gtmm_jax (or '
    '$XDG_CACHE_HOME/gtmm_jax; on macOS ~/Library/Caches/gtmm_jax), a folder '
    'that may be deleted at any time and holds at most '
    f'{_LARGEST // 10**6} MB. JAX_COMPILATION_CACHE_DIR names another, which '
    'is used as it is.',
  )


def use(is_wanted: bool) -> None:
  """Makes jax keep compiled programs in the user's cache folder.

  A folder that the user has given jax (`JAX_COMPILATION_CACHE_DIR`) is left to
  them. To be called before anything is compiled. Where programs cannot be kept,
  a line says why.

  Args:
    is_wanted: whether programs are to be kept at all.
  """
  import jax
  import jaxlib

  if not is_wanted:
    jax.config.update('jax_enable_compilation_cache', False)
    return
  if jax.config.jax_compilation_cache_dir is not None:
    return
  try:
    root = _root()
    folder = root / machine(cpu(), jax.__version__, jaxlib.__version__)
    _require_own(folder)
    _tidy(root)
    check(folder)
  # Where a user has no folder of their own, it is a RuntimeError.
  except (OSError, RuntimeError, ValueError) as error:
    print(f'Compiled programs are not kept ({error}).')
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  name = 'jax_persistent_cache_min_compile_time_secs'
  if name.upper() not in os.environ:
    jax.config.update(name, _WORTHWHILE)
  # A full disk, say, costs speed alone.
  warnings.filterwarnings(
    'ignore', 'Error (reading|writing) persistent compilation cache entry'
  )
  atexit.register(seal, folder, time.time())


def machine(cpu: str, *versions: str) -> str:
  """Names the folder for one kind of CPU and one version of jax.

  Args:
    cpu: all that is known of the CPU.
    *versions: of jax and its parts, jax's own first.
  """
  kind = '\n'.join((platform.machine(), cpu, *versions))
  digest = hashlib.sha256(kind.encode()).hexdigest()[:16]
  return f'{platform.machine()}-jax-{versions[0]}-{digest}'


def cpu() -> str:
  """Reads what kind of CPU this is, down to its instructions.

  Raises:
    OSError: if the system does not tell.
  """
  if sys.platform == 'darwin':
    words = ('sysctl', 'machdep.cpu.brand_string', 'hw.optional')
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = found.stdout.splitlines()
  else:
    text = pathlib.Path('/proc/cpuinfo').read_text()
    lines = [line for line in text.splitlines() if _tells_kind(line)]
  if not lines:
    raise OSError('the system does not say which CPU this is')
  # Each once, however many cores there are.
  return '\n'.join(sorted(set(lines)))


def _tells_kind(line: str) -> bool:
  return line.partition(':')[0].strip().lower() in _KIND


def check(folder: pathlib.Path) -> None:
  """Deletes entries that are not as they were sealed, and old unsealed ones."""
  for entry in folder.glob(f'*{_ENTRY}'):
    seal = entry.with_name(entry.name + _SEAL)
    with contextlib.suppress(FileNotFoundError):
      if seal.exists():
        is_good = seal.read_bytes() == _digest(entry)
      else:
        # Of a program that runs beside this one, perhaps.
        is_good = time.time() - entry.stat().st_mtime < _UNFINISHED
      if not is_good:
        _delete(entry)


def seal(folder: pathlib.Path, since: float) -> None:
  """Puts its SHA-256 beside each entry that was written since a time."""
  for entry in folder.glob(f'*{_ENTRY}'):
    seal = entry.with_name(entry.name + _SEAL)
    # Another program may delete one meanwhile.
    with contextlib.suppress(OSError):
      if entry.stat().st_mtime >= since and not seal.exists():
        seal.write_bytes(_digest(entry))


def _digest(entry: pathlib.Path) -> bytes:
  return hashlib.sha256(entry.read_bytes()).hexdigest().encode()


def _delete(entry: pathlib.Path) -> None:
  entry.unlink(missing_ok=True)
  entry.with_name(entry.name + _SEAL).unlink(missing_ok=True)


def _root() -> pathlib.Path:
  """Returns the folder of a user's caches, as the system has it."""
  if sys.platform == 'darwin':
    return pathlib.Path.home() / 'Library' / 'Caches' / 'gtmm_jax'
  given = os.environ.get('XDG_CACHE_HOME', '')
  # A relative one counts as none.
  base = given if os.path.isabs(given) else pathlib.Path.home() / '.cache'
  return pathlib.Path(base) / 'gtmm_jax'


def _require_own(folder: pathlib.Path) -> None:
  """Makes the folder, which nobody else may write to: what it holds is run.

  Raises:
    OSError: if it cannot be written, or is another user's.
  """
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  if folder.stat().st_uid != os.geteuid():
    raise PermissionError(f'{folder} belongs to another user')
  with tempfile.TemporaryFile(dir=folder):
    pass


def _tidy(root: pathlib.Path) -> None:
  """Deletes the oldest entries, of all machines, where they are too large."""
  entries = []
  for entry in root.glob(f'*/*{_ENTRY}'):
    with contextlib.suppress(FileNotFoundError):
      found = entry.stat()
      entries.append((found.st_mtime, found.st_size, entry))
  size = sum(size for _, size, _ in entries)
  for _, own, entry in sorted(entries):
    if size <= _LARGEST:
      return
    _delete(entry)
    size -= own
