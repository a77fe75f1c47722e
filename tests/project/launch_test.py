"""The launch scripts, run with stand-ins for all that they would install.

The PATH of a script under test holds only the few tools that it needs and the
stand-ins of the test, so that nothing of this machine shows through.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import threading
import time

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BASH = shutil.which('bash')
_TOOLS = ('bash', 'cat', 'cp', 'dirname', 'grep', 'mkdir', 'mktemp', 'mv', 'rm')
_TOOLS += ('sleep',)

pytestmark = pytest.mark.skipif(_BASH is None, reason='bash is not installed')

# Notes what it is asked to do as a module, makes an environment that holds
# copies of itself, and is the real Python in everything else.
_PYTHON = f"""\
case "${{0##*/}} $*" in
  *" -m "*) echo "${{0##*/}} $*" >>"$CALLS" ;;
  ruff*|lint-imports*) echo "${{0##*/}} $*" >>"$CALLS" ;;
esac
case "${{0##*/}} $*" in
  *" -m venv "*)
    for folder in "$@"; do :; done
    case "$*" in *--clear*) rm -rf "$folder" ;; esac
    mkdir -p "$folder/bin"
    for name in python ruff lint-imports; do cp "$0" "$folder/bin/$name"; done
    ;;
  *" -m pip "*)
    [ -z "${{KILLED:-}}" ] || kill -9 "$PPID"
    exit "${{PIP_STATUS:-0}}"
    ;;
  "python -c import pip") ;;
  "ruff check"*) exit "${{CHECK_STATUS:-0}}" ;;
  "ruff format"*) exit "${{FORMAT_STATUS:-0}}" ;;
  lint-imports*) exit "${{IMPORTS_STATUS:-0}}" ;;
  *" -m pytest"*) exit "${{PYTEST_STATUS:-0}}" ;;
  *) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""
_OLD_PYTHON = 'exit 1\n'
_PYTHON_WITHOUT_VENV = f"""\
case "$*" in *ensurepip*) exit 1 ;; esac
exec {shlex.quote(sys.executable)} "$@"
"""
_UV = """\
case "$*" in
  --version) echo 'uv 1.0' ;;
  venv*)
    echo "uv $*" >>"$CALLS"
    for folder in "$@"; do :; done
    mkdir -p "$folder/bin"
    cp "$(dirname -- "$0")/python3" "$folder/bin/python"
    ;;
  *) echo "uv $*" >>"$CALLS" ;;
esac
"""
_GPU = 'echo "one GPU"\n'
_NO_DRIVER = 'echo "no driver" >&2\nexit 9\n'


class Project:
  """A copy of the launch scripts in a project of its own, and its PATH."""

  def __init__(self, folder: pathlib.Path) -> None:
    self.root = folder / 'a project'
    self.bin = folder / 'bin'
    self.elsewhere = folder / 'elsewhere'
    self.calls = folder / 'calls'
    shutil.copytree(_ROOT / 'launch', self.root / 'launch')
    for name in ('setup.cfg', 'pyproject.toml'):
      shutil.copy(_ROOT / name, self.root / name)
    self.program = self.root / 'experiments' / 'run.py'
    self.program.parent.mkdir()
    self.program.write_text(
      'import json, os, sys\n'
      'print(json.dumps({"flags": sys.argv[1:], "folder": os.getcwd()}))\n'
      'sys.exit(7 if "--fail" in sys.argv else 0)\n'
    )
    self.bin.mkdir()
    self.elsewhere.mkdir()
    for tool in _TOOLS:
      (self.bin / tool).symlink_to(shutil.which(tool))

  def stand_in(self, name: str, body: str) -> None:
    """Puts a program of this name on the PATH."""
    path = self.bin / name
    path.write_text(f'#!{_BASH}\n{body}')
    path.chmod(0o755)

  def launch(self, script: str, *flags: str, **variables: str):
    """Runs launch/`script` from another folder."""
    return subprocess.run(
      [_BASH, str(self.root / 'launch' / script), *flags],
      cwd=self.elsewhere,
      env={'PATH': str(self.bin), 'CALLS': str(self.calls), **variables},
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
    )

  def dry_run(self, script: str, *flags: str) -> list[list[str]]:
    """Lists the commands that launch/`script` would run, each as words."""
    result = self.launch(script, *flags, GTMM_DRY_RUN='1')
    assert result.returncode == 0, result.stderr
    return [shlex.split(line) for line in result.stdout.splitlines()]

  def installations(self) -> list[str]:
    """Lists what the stand-ins made and installed since the last call."""
    lines = self.calls.read_text().splitlines() if self.calls.exists() else []
    self.calls.unlink(missing_ok=True)
    return [line.replace(str(self.root), 'ROOT') for line in lines]


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Project:
  project = Project(tmp_path.resolve())
  project.stand_in('python3', _PYTHON)
  return project


_MADE = 'python3 -m venv ROOT/.venv'
_MADE_ANEW = 'python3 -m venv --clear ROOT/.venv'
_INSTALLED = 'python -m pip install --editable ROOT'


@pytest.mark.parametrize(
  'script',
  ['.ci/run', *(f'launch/{p.name}' for p in _ROOT.glob('launch/*.sh'))],
)
def test_script_is_bash_without_syntax_errors(script: str):
  result = subprocess.run(
    [_BASH, '-n', str(_ROOT / script)], capture_output=True, text=True
  )
  assert (result.returncode, result.stderr) == (0, '')


def test_ci_script_can_be_executed():
  assert os.access(_ROOT / '.ci' / 'run', os.X_OK)


def test_dry_run_shows_every_command_and_runs_none(project: Project):
  flags = ['--task=perfect recall', "--note=it's $HOME", '', '--k=5']
  python = str(project.root / '.venv' / 'bin' / 'python')
  assert project.dry_run('local.sh', *flags) == [
    [str(project.bin / 'python3'), '-m', 'venv', str(project.root / '.venv')],
    [python, '-m', 'pip', 'install', '--editable', str(project.root)],
    [python, str(project.program), *flags],
  ]
  assert project.installations() == []
  assert not (project.root / '.venv').exists()
  assert not (project.root / '.venv-unfinished').exists()


def test_dry_run_shows_the_program_alone_where_all_is_installed(
  project: Project,
):
  project.launch('local.sh')
  python = str(project.root / '.venv' / 'bin' / 'python')
  assert project.dry_run('local.sh') == [[python, str(project.program)]]


@pytest.mark.parametrize(
  ('driver', 'script', 'extras'),
  [
    (_GPU, 'local.sh', '[cuda]'),
    (_NO_DRIVER, 'local.sh', ''),
    (None, 'local.sh', ''),
    (_GPU, 'test.sh', '[test,cuda]'),
    (_NO_DRIVER, 'test.sh', '[test]'),
  ],
)
def test_a_gpu_that_answers_brings_its_packages(
  project: Project, driver: str | None, script: str, extras: str
):
  if driver is not None:
    project.stand_in('nvidia-smi', driver)
  assert project.launch(script).returncode == 0
  assert project.installations()[:2] == [_MADE, f'{_INSTALLED}{extras}']


def test_flags_and_folder_reach_the_program(project: Project):
  flags = ['--task=perfect recall', "--note=it's $HOME *", '']
  result = project.launch('local.sh', *flags)
  assert result.returncode == 0, result.stderr
  # What installers print is not mixed with what the program prints.
  assert json.loads(result.stdout) == {
    'flags': flags,
    'folder': str(project.elsewhere),
  }


def test_exit_code_of_the_program_is_handed_on(project: Project):
  assert project.launch('local.sh', '--fail').returncode == 7


def test_second_call_installs_nothing(project: Project):
  project.launch('local.sh')
  assert project.installations() == [_MADE, _INSTALLED]
  second = project.launch('local.sh')
  assert (second.returncode, second.stderr) == (0, '')
  assert project.installations() == []


@pytest.mark.parametrize('name', ['setup.cfg', 'pyproject.toml'])
def test_changed_declarations_are_installed_again(project: Project, name: str):
  project.launch('local.sh')
  project.installations()
  with open(project.root / name, 'a') as file:
    file.write('\n# changed\n')
  project.launch('local.sh')
  assert project.installations() == [_INSTALLED]


def test_extras_are_installed_beside_each_other(project: Project):
  project.launch('local.sh')
  project.launch('test.sh')
  assert f'{_INSTALLED}[test]' in project.installations()
  project.launch('local.sh')
  assert project.installations() == []
  project.launch('test.sh')
  assert not any('install' in call for call in project.installations())


def test_moved_project_is_installed_again(project: Project):
  project.launch('local.sh')
  project.installations()
  project.root = project.root.rename(project.root.with_name('moved'))
  project.launch('local.sh')
  assert project.installations() == [_INSTALLED]


@pytest.mark.parametrize('cut', [{'PIP_STATUS': '1'}, {'KILLED': 'yes'}])
def test_installation_cut_short_is_made_anew(
  project: Project, cut: dict[str, str]
):
  first = project.launch('local.sh', **cut)
  assert first.returncode != 0
  assert first.stdout == ''
  project.installations()
  second = project.launch('local.sh')
  assert second.returncode == 0
  assert project.installations() == [_MADE_ANEW, _INSTALLED]


def test_failed_installation_names_the_command(project: Project):
  result = project.launch('local.sh', PIP_STATUS='1')
  assert result.returncode == 1
  assert '-m pip install' in result.stderr.splitlines()[-1]


def test_failed_later_installation_does_not_pass_for_a_finished_one(
  project: Project,
):
  project.launch('local.sh')
  project.installations()
  assert project.launch('test.sh', PIP_STATUS='1').returncode == 1
  project.installations()
  project.launch('local.sh')
  assert project.installations() == [_MADE_ANEW, _INSTALLED]


def test_call_waits_for_another_that_installs(project: Project):
  other = subprocess.Popen([shutil.which('sleep'), '1.5'])
  (project.root / '.venv-unfinished').write_text(f'{other.pid}\n')
  # A process that has ended stays known until its parent asks for it.
  threading.Thread(target=other.wait, daemon=True).start()
  result = project.launch('local.sh')
  assert other.poll() == 0
  assert f'Waiting for process {other.pid}' in result.stderr
  assert result.returncode == 0


@pytest.mark.skipif(not shutil.which('flock'), reason='needs flock')
def test_first_calls_at_once_install_once(project: Project):
  (project.bin / 'flock').symlink_to(shutil.which('flock'))
  with concurrent.futures.ThreadPoolExecutor() as pool:
    results = list(pool.map(lambda _: project.launch('local.sh'), range(4)))
  assert [result.returncode for result in results] == [0] * 4
  assert project.installations() == [_MADE, _INSTALLED]


def test_the_program_does_not_hold_the_lock(project: Project):
  # With its lock held, the first program would keep the second from starting,
  # until `launch` gives up.
  if shutil.which('flock'):
    (project.bin / 'flock').symlink_to(shutil.which('flock'))
  started, end = (project.elsewhere / name for name in ('started', 'end'))
  project.program.write_text(
    'import pathlib, time\n'
    f'pathlib.Path({str(started)!r}).touch()\n'
    f'while not pathlib.Path({str(end)!r}).exists():\n'
    '  time.sleep(0.05)\n'
  )
  with concurrent.futures.ThreadPoolExecutor() as pool:
    first = pool.submit(project.launch, 'local.sh')
    try:
      while not started.exists():
        assert not first.done()
        time.sleep(0.01)
      second = project.launch('test.sh')
      assert second.returncode == 0 and not first.done()
    finally:
      end.touch()


def test_uv_is_used_where_it_is_found(project: Project):
  project.stand_in('uv', _UV)
  result = project.launch('local.sh', '--k=5')
  assert json.loads(result.stdout)['flags'] == ['--k=5']
  assert project.installations() == [
    f'uv venv --quiet --python {project.bin / "python3"} ROOT/.venv',
    'uv pip install --python ROOT/.venv/bin/python --editable ROOT',
  ]


def test_the_lowest_versions_are_tested_in_an_environment_of_their_own(
  project: Project,
):
  missing = project.launch('lowest.sh')
  assert missing.returncode == 1 and 'uv is missing' in missing.stderr
  project.stand_in('uv', _UV)
  result = project.launch('lowest.sh', '-k', 'a or b')
  assert result.returncode == 0, result.stderr
  calls = project.installations()
  assert any('lowest-direct ROOT[test]' in call for call in calls)
  assert calls[-1].startswith('python -m pytest ')
  assert calls[-1].endswith(' -k a or b')
  scratch = calls[0].split()[-1]
  assert scratch.startswith('/') and not pathlib.Path(scratch).exists()
  assert not (project.root / '.venv').exists()


def test_uv_needs_no_venv_module(project: Project):
  project.stand_in('python3', _PYTHON_WITHOUT_VENV)
  project.stand_in('uv', _UV)
  assert project.dry_run('local.sh')[0][:2] == ['uv', 'venv']


@pytest.mark.parametrize('body', [_OLD_PYTHON, None])
def test_newer_python_under_another_name_is_found(
  project: Project, body: str | None
):
  if body is None:
    (project.bin / 'python3').unlink()
  else:
    project.stand_in('python3', body)
  # A version manager's name for a version that is not active.
  project.stand_in('python3.14', 'exit 127\n')
  project.stand_in('python3.12', _PYTHON)
  command = project.dry_run('local.sh')[0]
  assert command[0] == str(project.bin / 'python3.12')


@pytest.mark.parametrize(
  ('body', 'remedy'),
  [
    (None, 'install Python 3.11'),
    (_OLD_PYTHON, 'install Python 3.11'),
    (_PYTHON_WITHOUT_VENV, 'install python3-venv'),
  ],
)
@pytest.mark.parametrize('dry', ['0', '1'])
@pytest.mark.parametrize('script', ['local.sh', 'test.sh'])
def test_python_that_will_not_do_is_one_line_that_says_what_will(
  project: Project, body: str | None, remedy: str, dry: str, script: str
):
  (project.bin / 'python3').unlink()
  if body is not None:
    project.stand_in('python3', body)
  result = project.launch(script, GTMM_DRY_RUN=dry)
  assert result.returncode == 1
  assert result.stdout == ''
  messages = [s for s in result.stderr.splitlines() if 'Installing' not in s]
  assert len(messages) == 1
  assert remedy in messages[0]
  assert not (project.root / '.venv').exists()


def test_checks_run_in_order_with_the_arguments_for_pytest(project: Project):
  result = project.launch('test.sh', '-m', 'slow', '-k', 'a or b')
  assert result.returncode == 0, result.stderr
  assert project.installations()[2:] == [
    'ruff check',
    'ruff format --check',
    'lint-imports ',
    'python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile '
    '-m slow -k a or b',
  ]


@pytest.mark.parametrize('check', ['CHECK', 'FORMAT', 'IMPORTS', 'PYTEST'])
def test_one_failed_check_fails_the_script_and_stops_no_other(
  project: Project, check: str
):
  result = project.launch('test.sh', **{f'{check}_STATUS': '1'})
  assert result.returncode == 1
  assert len(project.installations()[2:]) == 4


def test_dry_run_of_the_checks(project: Project):
  folder = project.root / '.venv' / 'bin'
  assert project.dry_run('test.sh', '-m', 'slow')[1:] == [
    [str(folder / 'python')]
    + ['-m', 'pip', 'install', '--editable', f'{project.root}[test]'],
    ['cd', str(project.root)],
    [str(folder / 'ruff'), 'check'],
    [str(folder / 'ruff'), 'format', '--check'],
    [str(folder / 'lint-imports')],
    [str(folder / 'python'), '-m', 'pytest', '--numprocesses=auto']
    + ['--maxprocesses=4', '--dist=loadfile', '-m', 'slow'],
  ]


def test_the_image_gets_what_its_file_names():
  launch = _ROOT / 'launch'
  lines = (launch / 'Dockerfile').read_text().splitlines()
  copied = {
    word
    for line in lines
    if line.startswith('COPY')
    for word in line.split()[1:-1]
  }
  ignored = (launch / 'Dockerfile.dockerignore').read_text().splitlines()
  sent = {line.removeprefix('!') for line in ignored if line.startswith('!')}
  assert copied == sent and {'setup.cfg', 'gtmm_jax', 'experiments'} <= copied
  assert all((_ROOT / name).exists() for name in copied)
