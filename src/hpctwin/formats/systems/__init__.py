"""Clusters that come with the package: one YAML file each, in this folder."""

from __future__ import annotations

from pathlib import Path

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model import Cluster

__all__ = ["read_system", "system_names"]

_FOLDER = Path(__file__).parent


def system_names() -> list[str]:
    """Return the names of all clusters that come with the package."""
    return sorted((file.stem for file in _FOLDER.glob("*.yaml")), key=str.lower)


def read_system(name: str) -> Cluster:
    """Return a cluster by its name; ``NAME/GROUP`` is one of its node groups only.

    Raises:
        UnknownNameError: There is no such cluster, or no such group of it.
        ConfigError: The cluster has a single node group, which is the whole cluster.
    """
    system, _, group = name.partition("/")
    known = {one.lower(): one for one in system_names()}
    if system.lower() not in known:
        raise UnknownNameError("file or system", system, known.values())
    cluster = Cluster.from_yaml(_FOLDER / f"{known[system.lower()]}.yaml")
    if not group:
        return cluster
    groups = {one.name: one for one in cluster.nodes}
    if group not in groups:
        raise UnknownNameError(f"node group of {cluster.name}", group, groups)
    if len(groups) == 1:
        raise ConfigError(f"{cluster.name} has only one node group; write {cluster.name}")
    path = f"nodes.{group}"
    return cluster.model_copy(
        update={
            "name": f"{cluster.name}/{group}",
            "nodes": (groups[group],),
            "partitions": (),
            "cooling": None,
            "sources": {
                k: v for k, v in cluster.sources.items() if (k + ".").startswith(path + ".")
            },
        }
    )
