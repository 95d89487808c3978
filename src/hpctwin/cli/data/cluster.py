"""``hpctwin cluster``."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

__all__ = ["cluster_app"]

cluster_app = App(name="cluster", help="Check a cluster's YAML.")


@cluster_app.command
def check(path: Path, /, *, json: bool = False) -> int:
    """Check a cluster's YAML file and print a summary of the cluster.

    Args:
        path: The YAML file.
        json: Print the cluster as JSON, with all default values.
    """
    from hpctwin.cli.output.output import note_of, print_json
    from hpctwin.formats.clusters.files import read_cluster
    from hpctwin.model.text import moment_text

    cluster = read_cluster(path)
    note_of(cluster.name, cluster.notes)
    if json:
        print_json(cluster.model_dump(mode="json"))
        return 0
    print(f"{path}: fine; {cluster.name} has {cluster.node_count:,} nodes")
    for group in cluster.nodes:
        print(f"  {group.name}: {group.count:,} nodes, speed {group.speed:g}")
    for partition in cluster.partitions:
        print(f"  partition {partition.name}{' (default)' if partition.default else ''}")
    for name, amount in cluster.resources.items():
        print(f"  resource {name}: {amount:,}")
    for reservation in cluster.reservations:
        start, end = moment_text(reservation.start), moment_text(reservation.end)
        print(f"  reservation {reservation.name}: {start} to {end}")
    return 0


@cluster_app.command
def schema() -> int:
    """Print the JSON Schema of a cluster's YAML file, for editors."""
    from hpctwin.cli.output.output import print_json
    from hpctwin.model import Cluster

    print_json(Cluster.model_json_schema())
    return 0
