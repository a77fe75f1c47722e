"""A Slurm cluster of two nodes on this machine, which ends with its test."""

import contextlib
import getpass
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun', 'squeue')
# Their places on Debian, which are not on every user's PATH.
_PATH = os.pathsep.join([os.environ.get('PATH', ''), '/usr/sbin', '/sbin'])

# No cgroups and no accounting; two jobs on a node. A node that does not answer
# is down after ten seconds, and a job that is queued again waits for five.
_CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdTimeout=10
KillWait=10
MinJobAge=30
OverTimeLimit=0
ReturnToService=2
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=60 State=UP
"""
_NODE = (
  'NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} '
  'CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1'
)


def missing() -> list[str]:
  """Returns the names of programs of Slurm that are not installed here."""
  return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


class Cluster:
  """The cluster, whose commands find it by `environment`."""

  def __init__(self, folder: pathlib.Path, nodes: Sequence[str]) -> None:
    self.folder = folder
    self._nodes = nodes
    self.environment = {
      **os.environ,
      'PATH': _PATH,
      'SLURM_CONF': str(folder / 'slurm.conf'),
    }
    self._daemons: dict[str, subprocess.Popen] = {}

  def start(self) -> None:
    """Starts the controller and both nodes, and waits until these are idle."""
    munge = self.folder / 'munge'
    for name in ('munge', 'state'):
      (self.folder / name).mkdir(mode=0o700)
    (munge / 'key').touch(0o600)
    (munge / 'key').write_bytes(secrets.token_bytes(128))
    controller, *ports = _free_ports(1 + len(self._nodes))
    lines = [
      _NODE.format(name=name, port=port)
      for name, port in zip(self._nodes, ports, strict=True)
    ]
    conf = _CONF.format(
      controller=controller,
      user=getpass.getuser(),
      folder=self.folder,
      nodes='\n'.join(lines),
      names=','.join(self._nodes),
    )
    (self.folder / 'slurm.conf').write_text(conf)
    files = [
      f'--{word}-file={munge / word}' for word in ('key', 'pid', 'log', 'seed')
    ]
    # Forced: it doubts folders below those of all users.
    self._run(
      'munged',
      '--foreground',
      '--force',
      *files,
      f'--socket={munge / "socket"}',
    )
    wait_for((munge / 'socket').exists, 'munged')
    self._run('slurmctld', '-D')
    for node in self._nodes:
      self.start_node(node)
    wait_for(
      lambda: self.ask('sinfo', '-h', '-t', 'idle', '-o', '%D') == '2',
      'two idle nodes',
    )

  def start_node(self, node: str) -> None:
    """Starts the daemon of a node."""
    # So that its steps can be told from those of the other node, too.
    self._run('slurmd', '-D', '-N', node, SLURMD_NODENAME=node)

  def break_node(self, node: str) -> None:
    """Kills all that runs on a node at once, as if its power failed."""
    self._daemons.pop(f'slurmd {node}').kill()
    for pid in self._processes(SLURMD_NODENAME=node):
      _kill(pid)

  def ask(self, *command: str) -> str:
    """Runs a command of Slurm; returns what it prints, '' if it fails."""
    return subprocess.run(
      command, env=self.environment, capture_output=True, text=True
    ).stdout.strip()

  def stop(self) -> None:
    """Kills all processes of the cluster."""
    for daemon in self._daemons.values():
      daemon.kill()
    for pid in self._processes():
      _kill(pid)
    for daemon in self._daemons.values():
      daemon.wait()

  def _run(self, program: str, *words: str, **variables: str) -> None:
    """Starts a daemon in the foreground, with further variables."""
    name = f'{program} {words[-1]}' if program == 'slurmd' else program
    with (self.folder / f'{name}.out').open('ab') as output:
      self._daemons[name] = subprocess.Popen(
        [shutil.which(program, path=_PATH), *words],
        env={**self.environment, **variables},
        stdout=output,
        stderr=output,
        start_new_session=True,
      )

  def _processes(self, **variables: str) -> list[int]:
    """Returns the processes that have this cluster's variables, and others."""
    asked = {'SLURM_CONF': self.environment['SLURM_CONF'], **variables}
    words = {f'{name}={value}'.encode() for name, value in asked.items()}
    own = os.getpid()
    return [
      pid
      for pid, found in _environments().items()
      if words <= found and pid != own
    ]


@contextlib.contextmanager
def started(nodes: Sequence[str] = ('a', 'b')) -> Iterator[Cluster]:
  """Starts a cluster; kills it, and deletes its files, at the end."""
  # A socket's path must be short.
  with tempfile.TemporaryDirectory(prefix='slurm') as name:
    cluster = Cluster(pathlib.Path(name).resolve(), nodes)
    try:
      cluster.start()
      yield cluster
    finally:
      cluster.stop()


def wait_for(
  is_so: Callable[[], object], what: str, seconds: float = 300.0
) -> None:
  """Waits until a condition holds; fails if it does not within the time."""
  until = time.monotonic() + seconds
  while not is_so():
    assert time.monotonic() < until, f'waited in vain for {what}'
    time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
  """Returns ports of the loopback that are free now."""
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for each in sockets:
      each.bind(('127.0.0.1', 0))
    return [each.getsockname()[1] for each in sockets]


def _environments() -> Mapping[int, set[bytes]]:
  """Returns the variables of all processes that tell them."""
  found = {}
  for folder in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      words = (folder / 'environ').read_bytes().split(b'\0')
      found[int(folder.name)] = set(words)
  return found


def _kill(pid: int) -> None:
  with contextlib.suppress(OSError):
    os.kill(pid, signal.SIGKILL)
