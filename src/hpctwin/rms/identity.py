"""Which cluster a resource manager is of, by its own word and not by the name that settings give it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from hpctwin.errors import CommandError
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.polling import PolledManager
from hpctwin.rms.slurm.manager import SlurmManager

__all__ = ["cluster_identity"]

DAY_S = 86_400.0


def cluster_identity(manager: ResourceManager) -> str:
    """The same text for any two managers of one cluster on one host, another for any other.

    Raises:
        UnreachableError: it does not answer.
    """
    if isinstance(manager, PolledManager):
        return cluster_identity(manager.manager)
    if isinstance(manager, SlurmManager):
        return f"slurm {_slurm(manager)}"
    if isinstance(manager, PbsManager):
        return f"pbs {_pbs(manager)}"
    if isinstance(manager, EmulatedManager):
        return f"emulated {Path(manager.path).absolute()}"
    # One that lives in this process is nobody else's.
    return f"process {os.getpid()}, object {id(manager)}"


def _slurm(manager: SlurmManager) -> str:
    try:
        said = manager.commands.run_at_times("scontrol", ["show", "config"], DAY_S).decode(
            errors="replace"
        )
    except CommandError:
        return manager.cluster
    found = dict(
        re.findall(r"^(ClusterName|SlurmctldHost\[0\]|SlurmctldPort)\s*=\s*(\S+)", said, re.M)
    )
    return " ".join(f"{key}={found[key]}" for key in sorted(found)) or manager.cluster


def _pbs(manager: PbsManager) -> str:
    try:
        said = manager.commands.run("qstat", ["-B", "-f", "-F", "json"])
        names = sorted(json.loads(said)["Server"])
    except (CommandError, ValueError, KeyError, TypeError):
        return manager.cluster
    return names[0] if names else manager.cluster
