"""Placements: on which nodes a job is put."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from hpctwin.engine.compile.policy_views import JobView, NodeView
from hpctwin.engine.state import layout
from hpctwin.errors import PolicyError, in_brief
from hpctwin.policies.code.bytecode import constants_of, plain_function
from hpctwin.policies.code.files import is_file, load_function
from hpctwin.policies.code.score import FACTS, FAIRSHARE, Score, uses
from hpctwin.policies.registry import Entry, Registry

__all__ = [
    "FIRST_FIT",
    "PLACEMENTS",
    "NodeScore",
    "Placement",
    "PlacementLike",
    "find_placement",
]


@dataclass(frozen=True)
class NodeScore(Score):
    """A function that scores a free node for a job: ``(now, job, node) -> score``.

    Args:
        fairshare: whether it asks for ``job.fairshare`` or ``job.usage``.
        facts: whether it asks for what most do not, and the engine is only told if it must be.
    """

    fairshare: bool
    facts: bool = True

    what: ClassVar[str] = "placement"

    def signature(self) -> Any:
        """What the engine calls it with, and what it gets, in Numba's words."""
        from hpctwin.engine.compile.numba_types import PLACE_SIGNATURE

        return PLACE_SIGNATURE


@dataclass(frozen=True)
class Placement:
    """How nodes are chosen.

    Args:
        name: what policies call it.
        number: the engine's number of it.
        score: of ``SCORED``: what scores nodes; a job gets those with the smallest scores.
        summary: one line about it.
        whole: whether it goes with whole nodes, and not only with those that jobs share.
    """

    name: str
    number: int = int(layout.SCORED)
    score: NodeScore | None = None
    summary: str = ""
    whole: bool = True

    @property
    def shared_name(self) -> str:
        """What it is among `engine.shared.placements`, if it goes with nodes that jobs share."""
        return self.name if self.score is None else "scored"

    @property
    def needs_nodes(self) -> bool:
        """Whether nodes must have identity for it; else it is enough to count them."""
        return self.number not in (layout.FIRST_FIT, layout.BEST_FIT)


PlacementLike = str | Placement | Callable[[float, JobView, NodeView], float]

PLACEMENTS: Registry[Placement] = Registry("placement")
"""By name."""

for _name, _number, _help in (
    ("first-fit", layout.FIRST_FIT, "as many as possible of each pool in turn, the lowest free numbers"),
    ("best-fit", layout.BEST_FIT, "the pool with the fewest sufficient free nodes, the lowest free numbers"),
    ("contiguous", layout.CONTIGUOUS,
     "the shortest sufficient run of free numbers; slurm then reserves particular nodes"),
    ("random", layout.RANDOM, "free nodes drawn with the seed"),
    ("spread", layout.SPREAD, "one by one from the pool with most left, evenly over its free nodes"),
    ("whole-blocks", layout.WHOLE_BLOCKS,
     "the block with the least room that suffices, else block by block those with most room"),
):  # fmt: skip
    PLACEMENTS.register(Entry(_name, _help, partial(Placement, _name, int(_number), summary=_help)))

for _name, _help in (
    ("weight", "shared nodes by the weight of their group, the smallest first"),
    ("round-robin", "shared nodes in turn, after the last that a job started on"),
    ("fewest-switches", "shared nodes below the lowest switch with room, on as few switches as possible"),
    ("tightest-run", "the run of shared nodes with the fewest cores free that suffices, as in Slurm"),
    ("fragmentation", "task by task where the GPUs that jobs of the workload cannot use grow least"),
):  # fmt: skip
    PLACEMENTS.register(Entry(_name, _help, partial(Placement, _name, summary=_help, whole=False)))

FIRST_FIT = PLACEMENTS.find("first-fit").make()


def find_placement(what: PlacementLike) -> Placement:
    """The placement a user means.

    Args:
        what: a `Placement`; a Python function ``(now, job, node) -> score``; or text: a name, or a function
            in a file, ``my.py:my_placement``.

    Raises:
        UnknownNameError: no placement has that name; the message lists those there are.
        PolicyError: the file or function cannot be used.
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
    """The placement that a function ``(now, job, node) -> score`` is."""
    called = name or getattr(function, "__name__", type(function).__name__).replace("_", "-")
    label = f"placement {called!r}"
    read = uses(plain_function(function), label, {"now": None, "job": JobView, "node": NodeView})
    score = NodeScore(
        called,
        function,
        fairshare=bool(read["job"] & FAIRSHARE),
        facts=bool(read["job"] & FACTS),
        constants=constants_of(function, label),
    )
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    return Placement(called, score=score, summary=summary)
