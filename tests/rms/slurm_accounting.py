"""slurmdbd with a MariaDB of its own, for a `SlurmCluster`, in its folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress

from tests.rms import slurm_roots
from tests.rms.slurm_cluster import (
    SlurmCluster,
    begin_munge,
    chosen,
    free_ports,
    missing,
    search_path,
)

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb", "sacctmgr")
DEBIAN = "slurmdbd mariadb-server-core mariadb-client-core"

CONF = """
AuthType=auth/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
{plugins}
"""
OF_SLURM = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=127.0.0.1",
    "AccountingStorageTRES=gres/gpu",
    "AccountingStorageEnforce=associations,limits,qos",
    "JobAcctGatherType=jobacct_gather/none",
)


def missing_accounting(version: str | None = None) -> list[str]:
    """What this machine lacks for a cluster of a version with accounting."""
    if lacks := missing(version):
        return lacks
    path = search_path(slurm_roots.bin_folder(chosen(version)))
    lacks = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return [f"{', '.join(lacks)} (Debian: {DEBIAN})"] if lacks else []


def settings_of(port: int) -> tuple[str, ...]:
    """What slurm.conf says besides, where slurmdbd listens on a port."""
    return (*OF_SLURM, f"AccountingStoragePort={port}")


class Accounting:
    """Starts and stops both; to be begun before the cluster, whose slurm.conf has `settings_of`."""

    def __init__(self, slurm: SlurmCluster, port: int) -> None:
        self.slurm = slurm
        self.folder = slurm.folder / "accounting"
        self.folder.mkdir()
        self.port = port
        self.database = free_ports(1)
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        begin_munge()
        data = self.folder / "data"
        self._run(
            "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        )  # fmt: skip
        socket = self.folder / "socket"
        self._start(
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}",
            f"--port={self.database}", "--bind-address=127.0.0.1", "--skip-log-bin",
            "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        ask = ("mariadb", "--no-defaults", "-u", "root", f"--socket={socket}", "-e", "select 1")
        self.slurm.wait(lambda: bool(self.slurm.say(*ask)), 60)
        conf = self.slurm.folder / "slurmdbd.conf"
        plugins = slurm_roots.plugin_folder(self.slurm.version)
        conf.write_text(
            CONF.format(
                folder=self.folder, dbd=self.port, database=self.database,
                plugins=f"PluginDir={plugins}" if plugins else "",
            )
        )  # fmt: skip
        conf.chmod(0o600)
        self._start("slurmdbd", "-D")
        self.slurm.wait(lambda: bool(self.slurm.say("sacctmgr", "-n", "show", "qos")), 60)
        self.tell("add", "cluster", "emul")

    def wait_for_controller(self) -> None:
        """Until slurmctld has registered: slurmdbd sends no change to a controller that it does not know."""
        port = ("sacctmgr", "-nP", "show", "cluster", "format=ControlPort")
        self.slurm.wait(lambda: self.slurm.say(*port).strip() not in ("", "0"), 60)

    def tell(self, *words: str) -> None:
        """Have sacctmgr change something."""
        self._run("sacctmgr", "-i", *words)

    def end(self) -> None:
        for process in reversed(self.processes):
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self.slurm.env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-500:])

    def _start(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, env=self.slurm.env, stdout=log, stderr=log)
            )
