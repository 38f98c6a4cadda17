"""A real Slurm of one node, with accounting, in a folder of its own and without systemd."""

import os
import platform
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdParameters=config_overrides
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SchedulerParameters=sched_interval=5,bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={folder}/munge.socket
JobAcctGatherType=jobacct_gather/linux
MinJobAge=3600
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=256000 Gres=gpu:{cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=2
"""

GRES_CONF = """
Name=gpu File={folder}/gpu[1-{cpus}]
"""

SLURMDBD_CONF = """
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadbd}
StorageUser=slurm
StoragePass={password}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""

ACCOUNTS = """\
CREATE DATABASE slurm_acct_db;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED BY '{password}';
"""


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Slurm, up and idle, and found by its commands through SLURM_CONF; at the end all of it is taken down."""
    values = write_settings(folder)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    with ExitStack() as daemons:

        def start(*command: str, ready: Callable[[], bool]) -> None:
            process = daemons.enter_context(daemon(folder, command))
            wait_until(lambda: ready() or process.poll() is not None, f"{command[0]} is not ready, see {folder}")
            assert process.poll() is None, (folder / f"{command[0]}.out").read_text()

        start_munge(folder, start)
        start_database(folder, values["mariadbd"], start)
        start("slurmdbd", "-D", ready=lambda: succeeds("sacctmgr", "-n", "show", "cluster"))
        subprocess.check_call(["sacctmgr", "-Qi", "add", "cluster", "one"], stdout=subprocess.DEVNULL)
        start("slurmctld", "-D", "-i", ready=lambda: succeeds("scontrol", "ping"))
        start("slurmd", "-D", "-N", platform.node(), ready=lambda: "idle" in output("sinfo", "-ho", "%T"))
        try:
            yield
        finally:
            subprocess.call(["scancel", "--user", getuser()])
            wait_until(lambda: not output("squeue", "-h"), "jobs are left in the queue")
    del os.environ["SLURM_CONF"]


def write_settings(folder: Path) -> dict[str, str]:
    """Slurm's files for this machine and user, on free ports; GPUs and memory are only what Slurm believes in."""
    (folder / "spool").mkdir()
    (folder / "state").mkdir()
    ports = dict(zip(("slurmctld", "slurmd", "slurmdbd", "mariadbd"), free_ports(4), strict=True))
    values = {"host": platform.node(), "user": getuser(), "folder": str(folder), "password": secrets.token_hex(16)}
    values |= {"cpus": str(max(4, os.cpu_count() or 1))} | ports
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
    for number in range(int(values["cpus"])):
        (folder / f"gpu{number + 1}").touch()
    (folder / "gres.conf").write_text(GRES_CONF.format(**values))
    (folder / "accounts.sql").write_text(ACCOUNTS.format(**values))
    database = folder / "slurmdbd.conf"
    database.touch(mode=0o600)  # Slurm refuses a password that others can read
    database.write_text(SLURMDBD_CONF.format(**values))
    return values


def start_munge(folder: Path, start: Callable[..., None]) -> None:
    """The keeper of credentials, with a key of its own."""
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    options = [f"--{option}={folder / name}" for option, name in (files | {"log-file": "munge.log"}).items()]
    # --force: it would refuse a socket in a folder that only we can enter
    start("munged", "--foreground", "--force", *options, ready=(folder / "munge.socket").exists)


def start_database(folder: Path, port: str, start: Callable[..., None]) -> None:
    """The database of the accounting, on this machine only."""
    place, user = f"--datadir={folder / 'database'}", f"--user={getuser()}"
    install = ["mariadb-install-db", "--no-defaults", place, user, "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    options = [
        "--bind-address=127.0.0.1",
        f"--port={port}",
        f"--socket={folder / 'sql'}",
        f"--pid-file={folder}/sql.pid",
    ]
    accounts = f"--init-file={folder / 'accounts.sql'}"
    start("mariadbd", "--no-defaults", place, user, *options, accounts, ready=lambda: answers(port))


@contextmanager
def daemon(folder: Path, command: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives as long as the body, and what it says in the folder."""
    program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, f"{command[0]} is missing: `make test-slurm` installs it"
    with (folder / f"{command[0]}.out").open("w") as file:
        process = subprocess.Popen([program, *command[1:]], stdout=file, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[str]:
    """Ports that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]


def answers(port: str) -> bool:
    """Whether something listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def succeeds(*command: str) -> bool:
    """Whether a command ends well; its words are of no interest."""
    return subprocess.run(command, capture_output=True).returncode == 0


def output(*command: str) -> str:
    """What a command prints; nothing where it fails."""
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def wait_until(ready: Callable[[], bool], complaint: str, seconds: float = 60) -> None:
    """Wait for something, not for ever."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, complaint
        time.sleep(0.1)
