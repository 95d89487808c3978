"""A policy: ordering, backfill, placement and power policy together.

It also reads policy files, which are separate from those of clusters and workloads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctwin.engine.capacity_models import PARTICULAR_NODES, SHARED_NODES
from hpctwin.engine.compile.entry_points import LINES, PLACE_BY_SCORE, RACE, REORDER
from hpctwin.engine.passes import PASSES, Pass
from hpctwin.engine.state.layout import CONTIGUOUS
from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.guesses import other_names
from hpctwin.model.arguments import check_arguments
from hpctwin.model.settings import Settings, read_yaml
from hpctwin.policies.backfills import BACKFILLS, CANDIDATES, engine_numbers, find_backfill
from hpctwin.policies.formulas import is_formula
from hpctwin.policies.orderings import ORDERINGS, OrderingLike, find_ordering
from hpctwin.policies.placements import FIRST_FIT, Placement, PlacementLike, find_placement
from hpctwin.policies.powers import PowerPolicy, find_power
from hpctwin.policies.registry import is_file
from hpctwin.policies.score import Ordering

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Compiled, Kernel

__all__ = [
    "Policy",
    "PolicyFile",
    "PolicyLike",
    "PowerLike",
    "compile_policies",
    "make_policy",
    "parse_policy",
    "read_policy",
]


class PolicyFile(Settings):
    """Content of ``policy.yaml``.

    Args:
        policy: Text of the policy, ``ORDER+BACKFILL@PLACEMENT~POWER``.
    """

    policy: str


def read_policy(path: str | Path) -> str:
    """Return the policy's text from a file.

    Raises:
        ConfigError: The file cannot be read or is not valid; the message names the field.
    """
    return PolicyFile.checked(read_yaml(path, "policy"), str(path)).policy


@dataclass(frozen=True)
class Policy:
    """Order of jobs, backfill, choice of nodes, and power states of nodes.

    Args:
        order: Ordering of pending jobs.
        backfill: Name of the backfill.
        settings: Settings of the backfill that differ from the default: name and value.
        candidates: EASY's ordering of backfill candidates; None for the same ordering.
        placement: Choice of nodes.
        power: Policy that switches nodes off and on.
    """

    order: Ordering
    backfill: str = CANDIDATES
    settings: tuple[tuple[str, Any], ...] = ()
    candidates: Ordering | None = None
    placement: Placement = FIRST_FIT
    power: PowerPolicy = field(default_factory=PowerPolicy)

    def setting(self, name: str) -> Any:
        """Return a setting of the backfill, or its default; None if it does not exist."""
        defaults = {one.name: one.default for one in BACKFILLS.find(self.backfill).parameters}
        return {**defaults, **dict(self.settings)}.get(name)

    def compile(self) -> None:
        """Compile the policy and the engine parts that run it now, before first use.

        Raises:
            PolicyError: Something cannot be compiled.
        """
        compile_policies([self])

    def kernels(self) -> list[Kernel]:
        """Return the engine parts that run the policy."""
        from hpctwin.engine.operations.kernel import kernels_of

        power = self.power.power_pass if self.power.switches else None
        return [*kernels_of(self.scheduling, power), REORDER]

    def kernels_at_first(self) -> list[Kernel]:
        """Return the engine parts that run the policy while no node fails and few jobs are pending.

        Others are compiled when they are needed.
        """
        from hpctwin.engine.operations.initial_jobs import PUT_UNDERWAY
        from hpctwin.engine.operations.kernel import kernels_of

        found = PASSES.find(self.backfill)
        return [
            *kernels_of(found, None, planned=found.others is None),
            REORDER,
            LINES,
            PUT_UNDERWAY,
        ]

    def kernels_on_any_cluster(self) -> list[Kernel]:
        """Return all that the policy may need on any cluster, in any state."""
        from hpctwin.engine.operations.initial_jobs import PUT_UNDERWAY
        from hpctwin.engine.operations.kernel import kernels_of, placing, tournament
        from hpctwin.engine.shared.placements import SHARED_PLACEMENTS

        power = self.power.power_pass
        claims = placing(self.placement.number, power.preferred)
        needed = [*self.kernels(), RACE, LINES, PUT_UNDERWAY, *kernels_of(self.scheduling, power)]
        if self.on_whole_nodes is not self.scheduling:
            needed += kernels_of(self.on_whole_nodes, None)
            claims = PARTICULAR_NODES.placing
        if claims is not None:
            needed.append(claims)
        if self.placement.score is not None:
            needed.append(PLACE_BY_SCORE)
        backfill = PASSES.find(self.backfill)
        if backfill.works_on(SHARED_NODES):
            choose = SHARED_PLACEMENTS.find(self.placement.shared_name)
            shared = backfill.on(SHARED_NODES)
            needed += [tournament(shared), *kernels_of(shared, power, choose)]
        return needed

    @property
    def scheduling(self) -> Pass:
        """The pass that starts jobs: the backfill's, or one of the power policy."""
        own = self.power.power_pass.scheduling if self.power.switches else None
        return own or PASSES.find(self.backfill)

    @property
    def on_whole_nodes(self) -> Pass:
        """The pass if nodes are always on and no other resource is short.

        It plans by particular nodes if the placement needs it.
        """
        contiguous = self.placement.number == CONTIGUOUS
        found = self.scheduling
        return found.on(PARTICULAR_NODES) if contiguous and found.by_node else found

    def numbers(self) -> dict[str, int]:
        """Return the backfill's settings in the engine's form."""
        return engine_numbers(BACKFILLS.find(self.backfill), dict(self.settings))

    @cached_property
    def name(self) -> str:
        """Short text such as ``wfp+easy@best-fit~psus:20m``; `parse_policy` reads it."""
        text = f"{self.order.name}+{BACKFILLS.find(self.backfill).text(dict(self.settings))}"
        text += f"/{self.candidates.name}" if self.candidates else ""
        text += "" if self.placement == FIRST_FIT else f"@{self.placement.name}"
        return text if self.power == PowerPolicy() else f"{text}~{self.power.name}"


PowerLike = str | PowerPolicy | Callable[[Any], Any]
PolicyLike = str | Policy | Ordering | Callable[..., float]


def compile_policies(
    policies: Iterable[Policy], kernels: Callable[[Policy], list[Kernel]] = Policy.kernels
) -> None:
    """Compile policies together with engine parts, before first use.

    Args:
        policies: The policies.
        kernels: Function that returns the engine parts of a policy.

    Raises:
        PolicyError: Something cannot be compiled.
    """
    from hpctwin.engine.compile.jit import prepare

    policies = list(policies)
    needed: list[Compiled] = []
    for policy in policies:
        for score in (
            policy.order, *policy.order.updates, policy.candidates, policy.placement.score,
        ):  # fmt: skip
            if score is not None and score.to_compile.built_in:
                needed.append(score.to_compile)
            elif score is not None:
                _ = score.compiled
    prepare(chain(needed, *map(kernels, policies)))


@check_arguments("policy", "order", "candidates", "placement", "power")
def make_policy(
    policy: PolicyLike | None = None,
    backfill: str | None = None,
    *,
    order: OrderingLike | None = None,
    reservations: int | None = None,
    candidates: OrderingLike | None = None,
    placement: PlacementLike | None = None,
    power: PowerLike | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Policy:
    """Make a policy from a user's values.

    Args:
        policy: A policy, an ordering, or text for `parse_policy`; other arguments replace its
            parts.
        backfill: A name (`hpctwin policy list`) with optional settings, as in
            ``pack:patience=12h``; or a function in a file, ``my.py:my_pass``.
        order: See `find_ordering`.
        reservations: Number of jobs per partition that EASY protects, at least 1.
        candidates: EASY's ordering of candidates, for example ``sjf`` for SJBF (Tsafrir et al.
            2007).
        placement: See `find_placement`.
        power: See `find_power`.
        settings: Settings of the backfill by name.

    Raises:
        UnknownNameError: A name is not known.
        ConfigError: A number is out of range, or an option is incompatible with the backfill.
        PolicyError: A formula, file or function cannot be used.
    """
    if isinstance(policy, str):
        # If the backfill is given, text after a plus sign need not be parsed.
        made = _parsed(policy) if backfill is None else Policy(find_ordering(policy))
    elif isinstance(policy, Policy):
        made = policy
    else:
        made = Policy(find_ordering("fcfs" if policy is None else policy))
    changes: dict[str, Any] = {}
    if order is not None:
        changes["order"] = find_ordering(order)
    if backfill is not None:
        changes |= _backfill(backfill)
    if settings is not None:
        name = changes.get("backfill", made.backfill)
        changes["settings"] = _settings(name, {**dict(made.settings), **settings})
    if placement is not None:
        changes["placement"] = find_placement(placement)
    if power is not None:
        changes["power"] = find_power(power)
    if changes:
        made = dataclasses.replace(made, **changes)
    if reservations is not None or candidates is not None:
        if made.backfill != CANDIDATES and (reservations != 1 or candidates is not None):
            raise ConfigError(
                f"reservations and candidates need backfill {CANDIDATES!r}, not {made.backfill!r}"
            )
        if made.backfill == CANDIDATES:
            given = {} if reservations is None else {"reservations": reservations}
            other = made.candidates if candidates is None else find_ordering(candidates)
            chosen = _settings(made.backfill, {**dict(made.settings), **given})
            made = dataclasses.replace(made, settings=chosen, candidates=other)
    if made.candidates is not None and made.candidates.state is not None:
        raise ConfigError(
            f"candidates: ordering {made.candidates.name!r} has state, which only the "
            "ordering of all jobs may have; omit candidates, or use one without state"
        )
    if made.backfill == "pushdown" and (made.order.changes or made.order.chain):
        raise ConfigError(
            "pushdown sets the priority of a job once, when the job enters the queue; the "
            f"scores of {made.order.name!r} change while jobs wait"
        )
    return made


def _backfill(text: str) -> dict[str, Any]:
    """Return the parts of a policy that ``easy:2/sjf`` names."""
    head, slash, candidates = ("", "", "") if is_file(text) else text.partition("/")
    name, settings = find_backfill(head or text)
    if slash and name != CANDIDATES:
        raise ConfigError(f"reservations and candidates need backfill {CANDIDATES!r}, not {name!r}")
    return {
        "backfill": name,
        "settings": _settings(name, settings),
        "candidates": find_ordering(candidates) if candidates else None,
    }


def _settings(name: str, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return settings that differ from the default, in the backfill's order."""
    parameters = BACKFILLS.find(name).parameters
    known = [one.name for one in parameters]
    for key in given:
        if key not in known:
            raise UnknownNameError(f"setting of {name}", key, known)
    values = {one.name: one.read(given[one.name], name) for one in parameters if one.name in given}
    return tuple(
        (p.name, values[p.name])
        for p in parameters
        if p.name in values and values[p.name] != p.default
    )


@check_arguments()
def parse_policy(text: str) -> Policy:
    """Read ``ORDER+BACKFILL@PLACEMENT~POWER``.

    Omitted parts are fcfs, easy, first-fit and none. Settings follow a colon:
    ``fcfs+pack:patience=12h~psas-ipm:20m,keep=4``. Those of EASY are the number of reservations
    and, after a slash, the ordering of candidates: ``fcfs+easy:2/sjf``. Each of the four parts may
    be a function in a file: ``my.py:my_function``.

    Raises:
        UnknownNameError, PolicyError: See `make_policy`.
        ConfigError: See `make_policy`; or the text is empty.
    """
    if not text.strip():
        raise ConfigError("the policy is empty; write ORDER+BACKFILL, such as wfp+easy")
    return make_policy(text)


def _parsed(text: str) -> Policy:
    rest, tilde, power = text.rpartition("~")
    if not tilde:
        rest, power = text, "none"
    before, at, placement = rest.rpartition("@")
    rest = (before if at else rest).strip()
    made = partial(make_policy, placement=placement.strip() if at else None, power=power)
    if not rest:
        return made()
    # The ordering may be a formula with plus signs. The text after the last one is a backfill if it
    # has the name of one, or if it can only be a misspelled one.
    order, plus, tail = rest.rpartition("+")
    head = tail.partition("/")[0].partition(":")[0].strip()
    # "pbs:" is the prefix of PBS formulas, and the name of PBS's scheduler.
    of_pbs = rest.startswith("pbs:") and is_formula(rest)
    backfill = any(one in BACKFILLS for one in (head, *other_names(head)))
    if not plus and backfill and head not in ORDERINGS and not of_pbs:
        return made(backfill=rest)
    if not plus or not (head in BACKFILLS or order in ORDERINGS or is_file(tail)):
        return made(order=rest)
    return made(order=order, backfill=tail.strip())
