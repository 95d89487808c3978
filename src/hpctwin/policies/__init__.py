"""Orderings, backfills and placements, by name or written by the user."""

from hpctwin.policies.adaptive import adaptive, pas, pfm
from hpctwin.policies.formula import formula
from hpctwin.policies.lookup import MAKERS, OrderingLike, find_ordering, ordering_names
from hpctwin.policies.multifactor import multifactor
from hpctwin.policies.ordering import Ordering, ordering
from hpctwin.policies.orderings import BUILT_IN
from hpctwin.policies.policy import Backfill, Placement, Policy, make_policy, parse_policy
from hpctwin.policies.settings import Pack, Pushdown

__all__ = [
    "BUILT_IN",
    "MAKERS",
    "Backfill",
    "Ordering",
    "OrderingLike",
    "Pack",
    "Placement",
    "Policy",
    "Pushdown",
    "adaptive",
    "find_ordering",
    "formula",
    "make_policy",
    "multifactor",
    "ordering",
    "ordering_names",
    "parse_policy",
    "pas",
    "pfm",
]
