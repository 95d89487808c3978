"""``hpctwin cluster`` and ``hpctwin system``, the clusters of the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hpctwin.model import Cluster
    from hpctwin.network.platform import Platform

__all__ = ["cluster_app", "system_app"]

system_app = App(name="system", help="List the clusters in the package.")


@system_app.command(name="list")
def list_systems(*, json: bool = False) -> int:
    """List the clusters that come with the package; --cluster takes their names.

    Args:
        json: Print the list as JSON.
    """
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.formats.systems import read_system, system_names

    rows = [_figures(read_system(name)) for name in system_names()]
    if json:
        print_json(rows)
        return 0
    heads = ("system", "nodes", "idle kW", "full kW", "what it is")
    lines = (
        (row["name"], f"{row['nodes']:,}", *(_kw(row[f"{use}_power_kw"]) for use in ("idle", "full")),
         row["about"])
        for row in rows
    )  # fmt: skip
    screen().print(plain_table(heads, lines, numbers=slice(1, 4)))
    return 0


@system_app.command
def show(name: str, /, *, json: bool = False) -> int:
    """Show a cluster's nodes, its idle and full power draw, and the source of each number.

    Args:
        name: Name from `hpctwin system list`, with /GROUP for one node group; or a cluster file.
        json: Print the cluster as JSON.
    """
    from rich.text import Text

    from hpctwin.cli.output import note_of, plain_table, print_json, screen
    from hpctwin.energy.power.rating import constants
    from hpctwin.formats.clusters import read_cluster
    from hpctwin.model.text import count_text

    cluster = read_cluster(name)
    note_of(cluster.name, cluster.notes)
    figures, numbers = _figures(cluster), constants(cluster)
    if json:
        groups = [_figures(cluster.model_copy(update={"nodes": (one,)})) for one in cluster.nodes]
        for group, one in zip(groups, cluster.nodes, strict=True):
            group |= {"name": one.name}
            del group["about"]
        print_json({**figures, "groups": groups, "constants": numbers})
        return 0
    console = screen(highlight=False)
    console.print(Text.assemble((cluster.name, "bold"), f"  {cluster.about}"))
    idle, full = figures["idle_power_kw"], figures["full_power_kw"]
    drawn = (
        "power draw is unknown"
        if idle is None
        else f"{_kw(idle)} kW idle, {_kw(full)} kW under full load"
    )
    console.print(f"{count_text(figures['nodes'], 'node')}; {drawn}")
    if figures["full_power_kw_sd"] is not None:
        of_idle, of_full = figures["idle_power_kw_sd"], figures["full_power_kw_sd"]
        console.print(
            f"standard deviations, from those of the components: {_kw(of_idle)} and "
            f"{_kw(of_full)} kW"
        )
    sources = list(dict.fromkeys(row["source"] for row in numbers if row["source"]))
    rows = []
    for row in numbers:
        source = f"[{sources.index(row['source']) + 1}]" if row["source"] else ""
        rows.append((row["path"].removeprefix("nodes."), f"{row['value']:,g}", Text(source)))
    console.print(plain_table(("number", "value", "source"), rows, numbers=slice(1, None)))
    for number, source in enumerate(sources, start=1):
        console.print(f"[{number}] {source}", markup=False)
    return 0


def _figures(cluster: Cluster) -> dict[str, Any]:
    from hpctwin.energy.power.rating import machine_w, machine_w_sd

    found: dict[str, Any] = {
        "name": cluster.name,
        "about": cluster.about,
        "nodes": cluster.node_count,
        "racks": sum(group.racks.racks for group in cluster.nodes if group.racks is not None),
        "cdus": sum(group.racks.cdus for group in cluster.nodes if group.racks is not None),
    }
    for name, use in (("idle", 0.0), ("full", 1.0)):
        watts = machine_w(cluster, use)
        found[f"{name}_power_kw"] = None if watts is None else watts / 1000
        # None, not zero, if the uncertainty of the numbers is unknown.
        found[f"{name}_power_kw_sd"] = machine_w_sd(cluster, use) / 1000 or None
    return found


def _kw(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


cluster_app = App(name="cluster", help="Check a cluster file.")


@cluster_app.command
def check(path: Path, /, *, json: bool = False) -> int:
    """Check a cluster file and print a summary of the cluster and its network.

    Args:
        path: YAML file; or another simulator's, such as Batsim's platform in XML.
        json: Print the cluster as JSON, with all default values.
    """
    from hpctwin.cli.output import note_of, print_json
    from hpctwin.formats.clusters import read_cluster
    from hpctwin.model.text import count_text, moment_text

    cluster = read_cluster(path)
    note_of(cluster.name, cluster.notes)
    if json:
        print_json(cluster.model_dump(mode="json"))
        return 0
    print(f"{path}: valid; cluster {cluster.name} has {count_text(cluster.node_count, 'node')}")
    for group in cluster.nodes:
        print(f"  {group.name}: {count_text(group.count, 'node')}, speed {group.speed_at_first:g}")
    for partition in cluster.partitions:
        print(f"  partition {partition.name}{' (default)' if partition.default else ''}")
    for name, amount in cluster.resources.items():
        print(f"  resource {name}: {amount:,}")
    for reservation in cluster.reservations:
        start, end = moment_text(reservation.start), moment_text(reservation.end)
        print(f"  reservation {reservation.name}: {start} to {end}")
    if cluster.platform is not None:
        for line in _network(cluster.platform):
            print(f"  {line}")
    return 0


_MOST_ZONES = 12
"""Number of zones that are printed."""


def _network(platform: Platform) -> list[str]:
    """Return lines about the hosts, links and zones of a platform."""
    import numpy as np

    from hpctwin.model.text import count_text

    nodes = platform.hosts_of("compute_node")
    speeds = _range(platform.host_speed[nodes], "flop/s")
    lines = [f"network: {count_text(len(platform.link_names), 'link')}"]
    lines[0] += f", {speeds} per core" if platform.host_speed[nodes].all() else ", no core_speed"
    if len(platform.link_names):
        lines[0] += f", bandwidth {_range(platform.link_bandwidth, 'B/s')}"
        lines[0] += f", latency {_range(platform.link_latency, 's')}"
    if platform.link_busy_w.any():
        watts = np.array([platform.link_idle_w.sum(), platform.link_busy_w.sum()])
        lines.append(f"  switches and links draw {_range(watts, 'W')}")
    sizes = np.bincount(platform.point_zone[platform.host_point], minlength=len(platform.zones))
    zones = [
        f"  {zone.name}: {zone.kind}, {count_text(size, 'host')}"
        for zone, size in zip(platform.zones, sizes.tolist(), strict=True)
        if size
    ]
    lines += zones[:_MOST_ZONES]
    if len(zones) > _MOST_ZONES:
        lines.append(f"  … and {count_text(len(zones) - _MOST_ZONES, 'more zone')}")
    for name, hosts in platform.storages.items():
        lines.append(f"storage {name}{' on each node' if len(hosts) > 1 else ''}")
    for host in platform.hosts_of("master"):
        lines.append(f"{platform.host_names[host]}: runs the scheduler, no jobs")
    return lines


def _range(values: npt.NDArray[np.float64], unit: str) -> str:
    """Return the smallest and the largest value, such as ``1.25 GB/s to 10 GB/s``."""
    low, high = (_with_prefix(float(value), unit) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _with_prefix(value: float, unit: str) -> str:
    prefixes = {1e18: "E", 1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m",
                1e-6: "µ", 1e-9: "n"}  # fmt: skip
    factor = next((factor for factor in prefixes if value >= factor), 1.0)
    return f"{value / factor:.4g} {prefixes[factor]}{unit}"


@cluster_app.command
def schema() -> int:
    """Print the JSON Schema of a cluster's YAML file, for editors."""
    from hpctwin.cli.output import print_json
    from hpctwin.model import Cluster

    print_json(Cluster.model_json_schema())
    return 0
