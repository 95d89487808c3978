"""How PBS is reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from hpctwin.rms.gate import Gate
from hpctwin.rms.manager import ResourceManager, Way
from hpctwin.rms.mark import Mark
from hpctwin.rms.probe import Probe, is_here
from hpctwin.rms.settings import PolledSettings

__all__ = ["PbsSettings"]


class PbsSettings(PolledSettings):
    """A PBS server, by its commands.

    Args:
        folder: where ``qstat``, ``pbsnodes``, ``qalter`` and ``qrun`` are; found on the path if left out.
        server: name of the server, where it is not the default one.
        conf: value of ``PBS_CONF_FILE``, where it is not the default one.
        heartbeat: file that says that the twin is in charge; the hook gives leases only then.
        news: what the hook of `hpctwin rms pbs install` notes.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "start", "priority")

    kind: Literal["pbs"]
    cluster: str = "pbs"
    folder: str = ""
    server: str = ""
    conf: Path | None = None

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        from hpctwin.rms.pbs.manager import PbsManager

        return PbsManager(
            self.cluster,
            folder=self.folder,
            server=self.server,
            conf=self.conf,
            timeout_s=self.timeout,
            heartbeat_file=self.heartbeat,
        )

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        from hpctwin.rms.pbs.gate import PbsGate
        from hpctwin.rms.pbs.manager import PbsManager

        assert isinstance(manager, PbsManager)
        # Commands of its own: the mirror's poller runs them in another thread.
        return PbsGate(manager.commands.again(), mark, options, changed)

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """See `ManagerSettings`."""
        from hpctwin.rms.pbs.probe import probe_pbs

        return probe_pbs(folder) if is_here(folder, "qstat", "pbsnodes") else None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """See `ManagerSettings`."""
        found: dict[str, tuple[str, ...]] = {}
        if self.conf is None:
            found["conf"] = ("PBS_CONF_FILE",)
        if not self.server:
            found["server"] = ("PBS_SERVER", "PBS_DEFAULT")
        return found
