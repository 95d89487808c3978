"""How an emulated cluster is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from hpctwin.model.input.settings import Duration
from hpctwin.rms.gate import Gate
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.mark import Mark
from hpctwin.rms.settings import ManagerSettings

__all__ = ["EmulatedSettings"]


class EmulatedSettings(ManagerSettings):
    """An emulated cluster in a process of its own.

    Args:
        address: path of its socket.
        timeout: of each call.
    """

    kind: Literal["emulated"] = "emulated"
    address: str
    timeout: Duration = Field(default=5.0, gt=0)

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        from hpctwin.rms.emulated.client import EmulatedManager

        return EmulatedManager(self.address, timeout_s=self.timeout)

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        from hpctwin.rms.emulated.client import EmulatedManager
        from hpctwin.rms.emulated.gate import EmulatedGate

        assert isinstance(manager, EmulatedManager)
        return EmulatedGate(manager)
