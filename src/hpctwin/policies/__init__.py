"""Orderings, backfills, placements and power policies, by name or custom."""

from typing import Any

from hpctwin.engine.compile.policy_views import JobView, NodeView
from hpctwin.policies.backfills import BACKFILLS
from hpctwin.policies.lookup import ORDERINGS, OrderingLike, find_ordering
from hpctwin.policies.orderings.adaptive import adaptive, pas, pfm
from hpctwin.policies.orderings.built_in import BUILT_IN
from hpctwin.policies.orderings.formula import formula
from hpctwin.policies.orderings.multifactor import multifactor
from hpctwin.policies.orderings.ordering import Ordering, ordering
from hpctwin.policies.placements import PLACEMENTS, Placement, PlacementLike, find_placement
from hpctwin.policies.policy import Policy, PolicyLike, PowerLike, make_policy, parse_policy
from hpctwin.policies.powers import POWERS, PowerPolicy, find_power
from hpctwin.policies.registry import Registry

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
