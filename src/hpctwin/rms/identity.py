"""Identity of a cluster as its resource manager reports it, whatever settings say."""

from __future__ import annotations

import os

from hpctwin.rms.manager import Identified, ResourceManager
from hpctwin.rms.polling.poller import PolledManager

__all__ = ["cluster_identity"]


def cluster_identity(manager: ResourceManager) -> str:
    """Return a text that is equal for managers of the same cluster on one host only.

    Raises:
        UnreachableError: The manager does not answer.
    """
    if isinstance(manager, PolledManager):
        return cluster_identity(manager.manager)
    if isinstance(manager, Identified):
        return manager.identity()
    # A manager that lives in this process belongs to no other one.
    return f"process {os.getpid()}, object {id(manager)}"
