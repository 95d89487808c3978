"""How Slurm is reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from hpctwin.errors import FormatError
from hpctwin.model.cluster.node_group import Sleep
from hpctwin.model.cluster.racks import Watts
from hpctwin.model.input.settings import Duration, Settings
from hpctwin.model.text.hostlist import expand
from hpctwin.rms.gate import Gate
from hpctwin.rms.manager import ResourceManager, Way
from hpctwin.rms.mark import Mark
from hpctwin.rms.probe import Probe, is_here
from hpctwin.rms.settings import PolledSettings
from hpctwin.rms.site.cluster import Sleeping

__all__ = ["SleepingNodes", "SlurmSettings"]


class SleepingNodes(Settings):
    """Nodes that Slurm switches off and on, as it does by itself with ``SuspendTime``.

    Args:
        nodes: their names, as in ``cn[1-64]``; all where left out.
        power_w: drawn while a job runs, W.
        idle_w: drawn while none does, W.
        sleep: how they go off, and come back; times as they usually are, not as Slurm bounds them.
    """

    nodes: str = ""
    power_w: Watts
    idle_w: Watts
    sleep: Sleep

    @field_validator("nodes")
    @classmethod
    def _readable(cls, value: str) -> str:
        try:
            expand(value)
        except FormatError as error:
            raise ValueError(str(error)) from error
        return value


class SlurmSettings(PolledSettings):
    """A Slurm controller, by its commands.

    Args:
        folder: where ``squeue``, ``sinfo`` and ``scontrol`` are; found on the path if left out.
        conf: value of ``SLURM_CONF``, where it is not the default.
        heartbeat: file that the submit rule looks at: it is renewed while the twin is in charge.
        first_lease: how long the lease is that the submit rule gives; `hpctwin rms slurm rule -c` takes
            it from here.
        news: what `hpctwin rms slurm events` notes.
        power: nodes that sleep; without, all that Slurm has switched off count as on. The first that names a
            node holds.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "priority")
    drifting: ClassVar[bool] = True

    kind: Literal["slurm"]
    cluster: str = "slurm"
    folder: str = ""
    conf: Path | None = None
    poll_floor: Duration = Field(default=0.3, gt=0)
    first_lease: Duration = Field(default=20.0, ge=1, le=3600)
    power: tuple[SleepingNodes, ...] = ()

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        from hpctwin.rms.slurm.manager import SlurmManager

        return SlurmManager(
            self.cluster,
            folder=self.folder,
            conf=self.conf,
            timeout_s=self.timeout,
            heartbeat_file=self.heartbeat,
            longest_lease_s=longest_lease_s,
            first_lease_s=self.first_lease,
            sleeping=[
                (one.nodes, Sleeping(one.power_w, one.idle_w, one.sleep)) for one in self.power
            ],
        )

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        from hpctwin.rms.slurm.gate import SlurmGate
        from hpctwin.rms.slurm.manager import SlurmManager

        assert isinstance(manager, SlurmManager)
        # Commands of its own: the mirror's poller runs them in another thread.
        return SlurmGate(manager.commands.again(), mark, options, changed)

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """See `ManagerSettings`."""
        from hpctwin.rms.slurm.probe import probe_slurm

        return probe_slurm(folder, conf) if is_here(folder, "squeue") else None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """See `ManagerSettings`."""
        return {} if self.conf is not None else {"conf": ("SLURM_CONF",)}
