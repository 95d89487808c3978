"""The basic types of the project: workloads, clusters, units."""

from hpctwin.model.cluster.cluster import (
    Cluster,
    Failures,
    FairShare,
    Outage,
    Partition,
    Reservation,
)
from hpctwin.model.cluster.limits import Account, Limit
from hpctwin.model.cluster.node_group import Mode, NodeGroup, Sleep, Transition
from hpctwin.model.cluster.power import CapWindow, PowerCap
from hpctwin.model.columns import PER_NODE, Category
from hpctwin.model.files import check_file, check_folder, write_atomically, write_folder
from hpctwin.model.settings import parse_yaml, read_yaml
from hpctwin.model.text import (
    MS_PER_S,
    NEVER_MS,
    ReadNotes,
    format_duration,
    parse_duration_s,
    to_ms,
)
from hpctwin.model.workload.dependencies import Dependencies, DependencyKind
from hpctwin.model.workload.jobs import State
from hpctwin.model.workload.workload import Workload

__all__ = [
    "MS_PER_S",
    "NEVER_MS",
    "PER_NODE",
    "Account",
    "CapWindow",
    "Category",
    "Cluster",
    "Dependencies",
    "DependencyKind",
    "Failures",
    "FairShare",
    "Limit",
    "Mode",
    "NodeGroup",
    "Outage",
    "Partition",
    "PowerCap",
    "ReadNotes",
    "Reservation",
    "Sleep",
    "State",
    "Transition",
    "Workload",
    "check_file",
    "check_folder",
    "format_duration",
    "parse_duration_s",
    "parse_yaml",
    "read_yaml",
    "to_ms",
    "write_atomically",
    "write_folder",
]
