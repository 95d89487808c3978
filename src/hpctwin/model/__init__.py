"""What everything else is about: workloads, clusters, units."""

from hpctwin.model.cap import CapWindow, PowerCap
from hpctwin.model.cluster import (
    Cluster,
    Failures,
    FairShare,
    Outage,
    Partition,
    Reservation,
)
from hpctwin.model.columns import PER_NODE, Category
from hpctwin.model.dependencies import Dependencies, DependencyKind
from hpctwin.model.files import check_file, check_folder, write_atomically, write_folder
from hpctwin.model.limits import Account, Limit
from hpctwin.model.node_group import Mode, NodeGroup, Sleep, Transition
from hpctwin.model.notes import ReadNotes
from hpctwin.model.state import State
from hpctwin.model.units import MS_PER_S, NEVER_MS, format_duration, parse_duration_s, to_ms
from hpctwin.model.workload import Workload
from hpctwin.model.yaml_file import parse_yaml, read_yaml

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
