"""Which cluster a resource manager is of, by its own word and not by the name that settings give it."""

from __future__ import annotations

import os

from hpctwin.rms.manager import Identified, ResourceManager
from hpctwin.rms.polling.poller import PolledManager

__all__ = ["cluster_identity"]


def cluster_identity(manager: ResourceManager) -> str:
    """The same text for any two managers of one cluster on one host, another for any other.

    Raises:
        UnreachableError: it does not answer.
    """
    if isinstance(manager, PolledManager):
        return cluster_identity(manager.manager)
    if isinstance(manager, Identified):
        return manager.identity()
    # One that lives in this process is nobody else's.
    return f"process {os.getpid()}, object {id(manager)}"
