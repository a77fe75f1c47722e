"""A cache of compiled programs for the next start of a program.

jax reads and writes the cache. This module chooses its folder and removes
entries that must not be run. XLA compiles for one kind of CPU: other kinds have
other folders. XLA's CPU backend may crash or compute wrong numbers with a
damaged entry: each entry has its SHA-256 in a file beside it, and entries
without it are soon deleted. A run has the same bits with and without the cache.
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

import jax
import jaxlib
from absl import flags

# Makes --helpshort of a program show the flag that is defined here.
flags.disclaim_key_flags()

# Greatest size of all entries, of all machines, in bytes; a run writes one to
# ten million.
_LARGEST = 256 * 10**6
# Programs that compile for at least these seconds are cached.
_WORTHWHILE = 0.1
# After these seconds an entry without its SHA-256 was left by a program that
# was killed.
_UNFINISHED = 3600
_ENTRY, _SEAL = '-cache', '.sha256'
# Fields of /proc/cpuinfo that identify a kind of CPU, on x86, ARM and RISC-V.
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
  """Defines the flag that turns the cache on or off."""
  flags.DEFINE_bool(
    'compilation_cache',
    True,
    'Keep compiled programs for the next start, in ~/.cache/gtmm_jax (or '
    '$XDG_CACHE_HOME/gtmm_jax; on macOS ~/Library/Caches/gtmm_jax), a folder '
    'that may be deleted at any time and has at most '
    f'{_LARGEST // 10**6} MB. JAX_COMPILATION_CACHE_DIR names another folder, '
    'which is used unchanged.',
  )


def use(is_wanted: bool) -> None:
  """Makes jax cache compiled programs in the user's cache folder.

  Must be called before anything is compiled. A folder that the user has set
  with `JAX_COMPILATION_CACHE_DIR` is used unchanged. If there can be no cache,
  prints one line with the reason.

  Args:
    is_wanted: False turns jax's cache off.
  """
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
  # A RuntimeError means that the user has no home folder.
  except (OSError, RuntimeError, ValueError) as error:
    print(f'Compiled programs are not cached ({error}).')
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  name = 'jax_persistent_cache_min_compile_time_secs'
  if name.upper() not in os.environ:
    jax.config.update(name, _WORTHWHILE)
  # Errors of the cache, such as a full disk, only cost speed.
  warnings.filterwarnings(
    'ignore', 'Error (reading|writing) persistent compilation cache entry'
  )
  atexit.register(seal, folder, time.time())


def machine(cpu: str, *versions: str) -> str:
  """Names the folder for one kind of CPU and one version of jax.

  Args:
    cpu: description of the CPU.
    *versions: of jax and its parts, jax's first.
  """
  kind = '\n'.join((platform.machine(), cpu, *versions))
  digest = hashlib.sha256(kind.encode()).hexdigest()[:16]
  return f'{platform.machine()}-jax-{versions[0]}-{digest}'


def cpu() -> str:
  """Describes the kind of CPU, including its instruction sets.

  Raises:
    OSError: the system does not describe it.
  """
  if sys.platform == 'darwin':
    words = ('sysctl', 'machdep.cpu.brand_string', 'hw.optional')
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
  else:
    text = pathlib.Path('/proc/cpuinfo').read_text()
    lines = [line for line in text.splitlines() if _tells_kind(line)]
  if not lines:
    raise OSError('the system does not say which CPU this is')
  # Each line once: every core repeats them.
  return '\n'.join(sorted(set(lines)))


def _tells_kind(line: str) -> bool:
  return line.partition(':')[0].strip().lower() in _KIND


def check(folder: pathlib.Path) -> None:
  """Deletes entries that differ from their SHA-256, and old ones without it."""
  for entry in folder.glob(f'*{_ENTRY}'):
    seal = entry.with_name(entry.name + _SEAL)
    with contextlib.suppress(FileNotFoundError):
      if seal.exists():
        is_good = seal.read_bytes() == _digest(entry)
      else:
        # A running program may have written it and not yet its SHA-256.
        is_good = time.time() - entry.stat().st_mtime < _UNFINISHED
      if not is_good:
        _delete(entry)


def seal(folder: pathlib.Path, since: float) -> None:
  """Writes the SHA-256 beside each entry that is newer than a time."""
  for entry in folder.glob(f'*{_ENTRY}'):
    seal = entry.with_name(entry.name + _SEAL)
    # Another program may delete the entry at the same time.
    with contextlib.suppress(OSError):
      if entry.stat().st_mtime >= since and not seal.exists():
        seal.write_bytes(_digest(entry))


def _digest(entry: pathlib.Path) -> bytes:
  return hashlib.sha256(entry.read_bytes()).hexdigest().encode()


def _delete(entry: pathlib.Path) -> None:
  entry.unlink(missing_ok=True)
  entry.with_name(entry.name + _SEAL).unlink(missing_ok=True)


def _root() -> pathlib.Path:
  """Returns the project's cache folder, by the system's convention."""
  if sys.platform == 'darwin':
    return pathlib.Path.home() / 'Library' / 'Caches' / 'gtmm_jax'
  base = os.environ.get('XDG_CACHE_HOME', '')
  # By the XDG specification, relative paths are ignored.
  if not os.path.isabs(base):
    base = pathlib.Path.home() / '.cache'
  return pathlib.Path(base) / 'gtmm_jax'


def _require_own(folder: pathlib.Path) -> None:
  """Makes the folder, to which nobody else may write: its programs are run.

  Raises:
    OSError: the folder cannot be written or belongs to another user.
  """
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  if folder.stat().st_uid != os.geteuid():
    raise PermissionError(f'{folder} belongs to another user')
  with tempfile.TemporaryFile(dir=folder):
    pass


def _tidy(root: pathlib.Path) -> None:
  """Deletes the oldest entries of all machines while all are too large."""
  entries = []
  for entry in root.glob(f'*/*{_ENTRY}'):
    with contextlib.suppress(FileNotFoundError):
      status = entry.stat()
      entries.append((status.st_mtime, status.st_size, entry))
  total = sum(size for _, size, _ in entries)
  for _, size, entry in sorted(entries):
    if total <= _LARGEST:
      return
    _delete(entry)
    total -= size
