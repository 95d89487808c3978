"""Placements: the choice of nodes for a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_modules import JobView, NodeView
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, in_brief
from hpctwin.policies.bytecode import constants_of, plain_function
from hpctwin.policies.registry import Entry, Registry, is_file, load_function
from hpctwin.policies.score import FACTS, FAIRSHARE, Score, uses

__all__ = [
    "FIRST_FIT",
    "PLACEMENTS",
    "NodeScore",
    "Placement",
    "PlacementLike",
    "find_placement",
]


_VIEWS: dict[str, Any] = {"now": None, "job": JobView, "node": NodeView}


@dataclass(frozen=True)
class NodeScore(Score):
    """A function that scores a free node for a job: ``(now, job, node) -> score``.

    Args:
        fairshare: Whether it reads ``job.fairshare`` or ``job.usage``.
        facts: Whether it reads fields that most placements do not; the engine gets them only if
            needed.
    """

    fairshare: bool
    facts: bool = True

    what: ClassVar[str] = "placement"

    @property
    def signature(self) -> str:
        """Types of result and arguments."""
        return "float64(float64, Job, Node)"

    @property
    def views(self) -> Mapping[str, Any]:
        """Its arguments."""
        return _VIEWS


@dataclass(frozen=True)
class Placement:
    """A choice of nodes.

    Args:
        name: Name in policies.
        number: Number of the placement in the engine.
        score: Score of nodes for ``SCORED``; a job gets the nodes with the smallest scores.
        summary: Description in one line.
        shared_only: Whether it is defined on shared nodes only; then the engine plans whole nodes
            as shared nodes.
    """

    name: str
    number: int = int(layout.SCORED)
    score: NodeScore | None = None
    summary: str = ""
    shared_only: bool = False

    @property
    def shared_name(self) -> str:
        """Its name in `engine.shared.placements`."""
        return self.name if self.score is None else "scored"

    @property
    def needs_switches(self) -> bool:
        """Whether it needs switches, or a network with blocks."""
        return self.name in ("whole-blocks", "fewest-switches", "communication-aware")

    @property
    def facts(self) -> bool:
        """Whether it reads fields that most placements do not."""
        return self.number == layout.COMMUNICATION_AWARE

    @property
    def needs_nodes(self) -> bool:
        """Whether it needs node identities; otherwise counts of nodes are enough."""
        return self.number not in (layout.FIRST_FIT, layout.BEST_FIT)


PlacementLike = str | Placement | Callable[[float, JobView, NodeView], float]

PLACEMENTS: Registry[Placement] = Registry("placement")
"""Placements by name."""

for _name, _number, _help in (
    ("first-fit", layout.FIRST_FIT, "pool by pool, the free nodes with the lowest numbers"),
    ("best-fit", layout.BEST_FIT, "the smallest pool of free nodes that fits, the lowest numbers first"),
    ("contiguous", layout.CONTIGUOUS,
     "the shortest run of free node numbers that fits; slurm then reserves particular nodes"),
    ("random", layout.RANDOM, "random free nodes, drawn with the seed"),
    ("spread", layout.SPREAD, "node by node from the pool with most free nodes, evenly spread"),
    ("whole-blocks", layout.WHOLE_BLOCKS,
     "the fullest block that fits, else block by block those with most free nodes"),
    ("fewest-switches", layout.FEWEST_SWITCHES,
     "nodes below the lowest switch that fits, on as few switches as possible"),
    ("communication-aware", layout.COMMUNICATION_AWARE,
     "jobs that communicate as whole-blocks; other jobs fill gaps, or come last"),
):  # fmt: skip
    PLACEMENTS.register(Entry(_name, _help, partial(Placement, _name, int(_number), summary=_help)))

for _name, _help in (
    ("weight", "nodes by the weight of their group, the smallest first"),
    ("round-robin", "nodes in turn, after the node that the last job started on"),
    ("tightest-run", "the run of nodes with the fewest free cores that fits, as in Slurm"),
    ("fragmentation", "task by task where the GPUs unusable for the workload's jobs grow least"),
):  # fmt: skip
    PLACEMENTS.register(
        Entry(_name, _help, partial(Placement, _name, summary=_help, shared_only=True))
    )

FIRST_FIT = PLACEMENTS.find("first-fit").make()


def find_placement(what: PlacementLike) -> Placement:
    """Return the placement that a user asks for.

    Args:
        what: A `Placement`; a Python function ``(now, job, node) -> score``; or a text: a name, or
            a function in a file, ``my.py:my_placement``.

    Raises:
        UnknownNameError: No placement has that name; the message lists the known names.
        PolicyError: The file or function cannot be used.
    """
    if isinstance(what, Placement):
        if what.score is not None and not what.score.kept:
            what.score.check()  # its file may have changed a global since
        return what
    if callable(what):
        return _scored(what)
    if not isinstance(what, str):
        raise PolicyError(
            f"a placement is {in_brief(what)}; it must be a name, a function or a Placement"
        )
    if is_file(what.strip()):
        name, found = load_function(what.strip(), Placement, "placement")
        return find_placement(found) if isinstance(found, Placement) else _scored(found, name)
    return PLACEMENTS.find(what.strip()).make()


def _scored(function: Any, name: str | None = None) -> Placement:
    """Return a function ``(now, job, node) -> score`` as a placement."""
    called = name or getattr(function, "__name__", type(function).__name__).replace("_", "-")
    label = f"placement {called!r}"
    read = uses(plain_function(function), label, _VIEWS)
    score = NodeScore(
        called,
        function,
        fairshare=bool(read["job"] & FAIRSHARE),
        facts=bool(read["job"] & FACTS),
        constants=constants_of(function, label),
    )
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    return Placement(called, score=score, summary=summary)
