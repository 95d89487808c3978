"""Orderings, backfills, placements and power policies, by name or custom."""

from typing import Any

from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.policies.backfills import BACKFILLS
from hpctwin.policies.formulas import formula
from hpctwin.policies.orderings import (
    BUILT_IN,
    ORDERINGS,
    OrderingLike,
    adaptive,
    find_ordering,
    multifactor,
    pas,
    pfm,
)
from hpctwin.policies.placements import PLACEMENTS, Placement, PlacementLike, find_placement
from hpctwin.policies.policy import (
    Policy,
    PolicyLike,
    PowerLike,
    compile_policies,
    make_policy,
    parse_policy,
)
from hpctwin.policies.powers import POWERS, PowerPolicy, find_power
from hpctwin.policies.registry import Registry
from hpctwin.policies.score import Ordering, ordering

REGISTRIES: dict[str, Registry[Any]] = {
    "order": ORDERINGS,
    "backfill": BACKFILLS,
    "placement": PLACEMENTS,
    "power": POWERS,
}
"""Registries of the four parts of a policy."""

__all__ = [
    "BACKFILLS",
    "BUILT_IN",
    "ORDERINGS",
    "PLACEMENTS",
    "POWERS",
    "REGISTRIES",
    "JobView",
    "NodeView",
    "Ordering",
    "OrderingLike",
    "Placement",
    "PlacementLike",
    "Policy",
    "PolicyLike",
    "PowerLike",
    "PowerPolicy",
    "adaptive",
    "compile_policies",
    "find_ordering",
    "find_placement",
    "find_power",
    "formula",
    "make_policy",
    "multifactor",
    "ordering",
    "parse_policy",
    "pas",
    "pfm",
]
