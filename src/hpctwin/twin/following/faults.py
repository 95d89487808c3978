"""The faults of a live twin: each has a name and is in force until it is mended."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["FaultsInForce"]

logger = logging.getLogger(__name__)


class FaultsInForce(dict[str, str]):
    """What is wrong now, by name.

    Args:
        changed: called after each change, with whether it was for the worse.
        where: said before each in the log.
    """

    def __init__(self, changed: Callable[[bool], None], where: str = "") -> None:
        super().__init__()
        self._changed = changed
        self._where = f"{where}: " if where else ""

    @property
    def text(self) -> str | None:
        """All of them in words; None if there is none."""
        return "; ".join(f"{what}: {says}" for what, says in self.items()) or None

    def set(self, what: str, says: str) -> None:
        """Something is wrong."""
        if what not in self:
            logger.error("%s%s: %s; observing until it is mended", self._where, what, says)
        self[what] = says
        self._changed(True)

    def mended(self, what: str) -> None:
        """It is not wrong any more, if it was."""
        if what in self:
            logger.info("%smended: %s: %s", self._where, what, self.pop(what))
            self._changed(False)
