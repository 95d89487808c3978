"""Resources that a PBS site has created, and whether jobs use them up on vnodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpctwin.errors import CommandError
from hpctwin.rms.commands import Commands
from hpctwin.rms.pbs.listing.request import is_consumable

__all__ = ["SiteResources", "used_up_of"]


class SiteResources:
    """What the server tells of them; they are asked for before the first job asks for one.

    Args:
        commands: runs qmgr.
    """

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.used_up: dict[str, bool] = {}
        self.notes: list[str] = []

    def ask(self, every_s: float) -> None:
        """Ask for them, if that was not done within so long.

        Raises:
            UnreachableError: no answer. That they are refused is a note, and all are as none.
        """
        try:
            said = self.commands.run_at_times("qmgr", ["-c", "print resource"], every_s)
        except CommandError as error:
            self.used_up = {}
            self.notes = [f"resources of the site's are not told ({error}), and not modelled"]
        else:
            self.used_up = used_up_of(said)
            self.notes = []

    def consumables(self) -> list[str]:
        """Those that jobs use up."""
        return [name for name, is_so in self.used_up.items() if is_so]

    def known(self, asked: Iterable[str]) -> frozenset[str]:
        """Those of which more is not to be found out; such as PBS has itself are not told.

        Args:
            asked: what chunks ask for.
        """
        return frozenset(self.used_up if self.notes else {*asked, *self.used_up})


def used_up_of(text: bytes) -> dict[str, bool]:
    """Whether jobs use up each resource of the site's on vnodes, of ``qmgr -c 'print resource'``.

    GPUs (``ngpus``) are a resource that sites create, and in the picture as what they are.
    """
    flags = re.findall(
        r"^set resource (\S+) flag = (\S+)", text.decode(errors="replace"), re.MULTILINE
    )
    names = re.findall(r"^create resource (\S+)", text.decode(errors="replace"), re.MULTILINE)
    found = {**dict.fromkeys(names, False), **{name: {"h", "n"} <= set(of) for name, of in flags}}
    return {name: used for name, used in found.items() if is_consumable(name, "1")}
