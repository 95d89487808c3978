"""Built-in orderings and Slurm's priority, and lookup of orderings by text."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import metadata
from typing import Any

from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.errors import ConfigError, PolicyError, UnknownNameError, in_brief
from hpctwin.model.arguments import check_arguments
from hpctwin.model.text import parse_duration_s
from hpctwin.policies.formulas import formula, is_formula
from hpctwin.policies.registry import Entry, Parameter, Registry, is_file, is_network, load_function
from hpctwin.policies.score import Ordering, ordering

__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "ORDERINGS",
    "OrderingLike",
    "adaptive",
    "find_ordering",
    "multifactor",
    "pas",
    "pfm",
]


def fcfs(now: float, job: JobView) -> float:
    """First come, first served."""
    return job.submit


def lcfs(now: float, job: JobView) -> float:
    """Last come, first served."""
    return -job.submit


def sjf(now: float, job: JobView) -> float:
    """Shortest expected runtime first (the walltime, unless runtimes are predicted)."""
    return job.expected


def spf(now: float, job: JobView) -> float:
    """Shortest predicted runtime first, whatever plans use (default: the walltime)."""
    return job.predicted_runtime


def ljf(now: float, job: JobView) -> float:
    """Longest expected runtime first."""
    return -job.expected


def smallest(now: float, job: JobView) -> float:
    """Fewest nodes first."""
    return job.nodes


def largest(now: float, job: JobView) -> float:
    """Most nodes first."""
    return -job.nodes


def smallest_area(now: float, job: JobView) -> float:
    """Smallest expected runtime × nodes first."""
    return job.expected * job.nodes


def largest_area(now: float, job: JobView) -> float:
    """Largest expected runtime × nodes first."""
    return -job.expected * job.nodes


def expansion(now: float, job: JobView) -> float:
    """Largest expansion factor first: (wait + walltime) / walltime."""
    return -(job.wait + job.walltime) / job.walltime


def wfp(now: float, job: JobView) -> float:
    """WFP, as at ALCF: largest (wait / walltime)³ × nodes first (Tang et al., Cluster 2009)."""
    return -((job.wait / job.walltime) ** 3) * job.nodes


def unicef(now: float, job: JobView) -> float:
    """UNICEF: largest wait / (log2(nodes) × walltime) first (Tang et al., Cluster 2009).

    Jobs of one node count as two: their logarithm would be zero.
    """
    return -job.wait / (math.log2(max(job.nodes, 2.0)) * job.walltime)


def f1(now: float, job: JobView) -> float:
    """F1 of Carastan-Santos and de Camargo (SC'17): log10(r)·n + 870·log10(s)."""
    return math.log10(job.expected) * job.nodes + 870.0 * math.log10(max(job.submit, 1.0))


def f2(now: float, job: JobView) -> float:
    """F2 of Carastan-Santos and de Camargo (SC'17): √r·n + 25600·log10(s)."""
    return math.sqrt(job.expected) * job.nodes + 25600.0 * math.log10(max(job.submit, 1.0))


def f3(now: float, job: JobView) -> float:
    """F3 of Carastan-Santos and de Camargo (SC'17): r·n + 6860000·log10(s)."""
    return job.expected * job.nodes + 6860000.0 * math.log10(max(job.submit, 1.0))


def f4(now: float, job: JobView) -> float:
    """F4 of Carastan-Santos and de Camargo (SC'17): r·√n + 530000·log10(s)."""
    return job.expected * math.sqrt(job.nodes) + 530000.0 * math.log10(max(job.submit, 1.0))


def priority(now: float, job: JobView) -> float:
    """The trace's own priority, largest first."""
    return -job.priority


def fairshare(now: float, job: JobView) -> float:
    """Largest fair-share factor first: jobs with the least decayed use of their share."""
    return -job.fairshare


def _built_in(function: object, power: float = 0.0) -> Ordering:
    made: Ordering = ordering(function)  # type: ignore[arg-type]
    return dataclasses.replace(made, kept=True, power=power)


BUILT_IN = {
    made.name: made
    for made in (
        _built_in(fcfs), _built_in(lcfs), _built_in(sjf), _built_in(spf), _built_in(ljf),
        _built_in(smallest), _built_in(largest), _built_in(smallest_area), _built_in(largest_area),
        _built_in(expansion, 1), _built_in(wfp, 3), _built_in(unicef, 1),
        _built_in(f1), _built_in(f2), _built_in(f3), _built_in(f4),
        _built_in(priority), _built_in(fairshare, 1),
    )
}  # fmt: skip
"""Orderings by name."""


def adaptive(*, chain: float = 0.2, fairshare: float = 1.0) -> Ordering:
    """Smallest area first, earlier with a longer chain of dependent jobs.

    The area is the expected runtime times the sum of the requested shares of nodes and resources.
    It is divided by the fair-share factor to the power ``fairshare``, so jobs of heavy users wait
    longer. If jobs have no users, the score does not change with time. The score is reduced by
    ``chain`` times the expected time of the longest chain of dependent jobs.

    Args:
        chain: Weight of the chain of dependent jobs; 0 for none.
        fairshare: Weight of past use, as an exponent; 0 for none.

    Raises:
        ConfigError: A weight is not a number, 0 or more.
    """
    for name, weight in (("chain", chain), ("fairshare", fairshare)):
        if not isinstance(weight, int | float) or not 0 <= weight < 1e6:
            raise ConfigError(f"adaptive: {name} is {weight!r}; it must be a number, 0 or more")
    behind = f" - {float(chain)!r} * chain" if chain else ""
    alone = formula(f"expected * load{behind}")
    made = alone
    if fairshare:
        # Unlimited usage would make the factor 0.
        factor = f"max(fairshare, 1e-9) ** {float(fairshare)!r}"
        made = dataclasses.replace(formula(f"expected * load / {factor}{behind}"), alone=alone)
    return _renamed(made, adaptive, "adaptive", chain=chain, fairshare=fairshare)


def pas(*, short: float = 100.0, cpu: float = 20.0, memory: float = 50.0) -> Ordering:
    """PAS: calculated priority, largest first (Goyal and Pavithra, eq. 1).

    priority + short / (runtime in ms + 1) - CPU / cpu - memory in MB / memory.

    Args:
        short: Dividend of the runtime.
        cpu: Divisor of the CPU units.
        memory: Divisor of the memory.

    Raises:
        ConfigError: A divisor is not above 0.
    """
    for name, number in (("short", short), ("cpu", cpu), ("memory", memory)):
        if not isinstance(number, int | float) or not 0 <= number < 1e12:
            raise ConfigError(f"pas: {name} is {number!r}; it must be a number, 0 or more")
    if cpu == 0 or memory == 0:
        raise ConfigError("pas: cpu and memory are divisors; they must be above 0")
    made = formula(
        f"-(priority + {float(short)!r} / (expected * 1000 + 1) - cpu / {float(cpu)!r}"
        f" - memory_mb / {float(memory)!r})"
    )
    return _renamed(made, pas, "pas", short=short, cpu=cpu, memory=memory)


def pfm(*, threshold: float = 0.2) -> Ordering:
    """PFM: jobs predicted to fail come last; otherwise first come, first served.

    Args:
        threshold: Predicted probability from which a job is at risk.

    Raises:
        ConfigError: The threshold is not between 0 and 1.
    """
    if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ConfigError(f"pfm: threshold is {threshold!r}; it must be between 0 and 1")
    # A number far above any submit time, and small enough to keep its milliseconds.
    made = formula(f"submit + (1e11 if risk >= {float(threshold)!r} else 0.0)")
    return _renamed(made, pfm, "pfm", threshold=threshold)


def _renamed(made: Ordering, maker: Callable[..., Ordering], name: str, **given: float) -> Ordering:
    default = {k: p.default for k, p in inspect.signature(maker).parameters.items()}
    changed = [f"{k}={v:g}" for k, v in given.items() if v != default[k]]
    return dataclasses.replace(
        made,
        name=name + (f":{','.join(changed)}" if changed else ""),
        summary=(inspect.getdoc(maker) or "").partition("\n")[0],
    )


@check_arguments("max_age")
def multifactor(
    *,
    age: float = 1000,
    size: float = 0,
    fairshare: float = 1000,
    partition: float = 0,
    qos: float = 0,
    trace: float = 0,
    max_age: float | str = "7d",
    favor_small: bool = False,
    relative_to_time: bool = False,
    accrue_always: bool = False,
    machine_cores: float = 0,
    per_node: float = 0,
    per_core: float = 0,
    per_gpu: float = 0,
    per_gb: float = 0,
) -> Ordering:
    """Slurm's priority/multifactor: a weighted sum of factors in [0, 1], largest first.

    Args:
        age: Weight of (now - eligible) / max_age, at most 1.
        size: Weight of nodes / nodes of the cluster, or of 1 minus that with ``favor_small``. See
            ``relative_to_time`` and ``machine_cores``.
        fairshare: Weight of the fair-share factor; half-life and shares come from the cluster.
        partition: Weight of the partition's priority, relative to the largest.
        qos: Weight of the quality of service's priority, relative to the largest.
        trace: Weight of the trace's own priority, not scaled (Slurm's job factor).
        max_age: Age at which that factor is 1, in seconds or text such as ``"7d"``.
        favor_small: Slurm's PriorityFavorSmall.
        relative_to_time: Divide size by the minutes of the walltime, like Slurm's flag
            SMALL_RELATIVE_TO_TIME.
        accrue_always: Count age from the submission, like Slurm's flag ACCRUE_ALWAYS.
        machine_cores: Number of cores of the cluster. If given, size is the mean of the shares of
            nodes and of cores, or the larger of them with ``relative_to_time``.
        per_node: Weight of each requested node: Slurm's PriorityWeightTRES divided by the total.
        per_core: Weight of each requested core.
        per_gpu: Weight of each requested GPU.
        per_gb: Weight of each requested GB of memory.

    Raises:
        ConfigError: A value is not a number or duration.

    Source:
        Slurm's multifactor priority page (slurm.schedmd.com/priority_multifactor.html).
    """
    weights = {
        "age": age, "size": size, "fairshare": fairshare,
        "partition": partition, "qos": qos, "trace": trace,
        "per_node": per_node, "per_core": per_core, "per_gpu": per_gpu, "per_gb": per_gb,
    }  # fmt: skip
    for name, weight in weights.items():
        if not isinstance(weight, (int, float)) or weight < 0:
            raise ConfigError(
                f"multifactor: weight {name} is {in_brief(weight)}; it must be 0 or more"
            )
    if not isinstance(machine_cores, (int, float)) or machine_cores < 0:
        raise ConfigError(
            f"multifactor: machine_cores is {in_brief(machine_cores)}; it must be 0 or more"
        )
    width = _size(float(machine_cores), relative_to_time=relative_to_time)
    since = "submit" if accrue_always else "eligible"
    terms = {
        "age": f"min((now - {since}) / {parse_duration_s(max_age)!r}, 1.0)",
        "size": f"(1 - {width})" if favor_small else width,
        "fairshare": "fairshare",
        "partition": "partition_priority",
        "qos": "qos_priority",
        "trace": "priority",
        "per_node": "nodes",
        "per_core": "cpu",
        "per_gpu": "gpus * nodes",
        "per_gb": "memory_gb * nodes",
    }
    used = [f"{float(weights[name])!r} * {term}" for name, term in terms.items() if weights[name]]
    made = formula(f"-({' + '.join(used) or '0.0'})")
    given = {
        **weights, "max_age": max_age, "favor_small": favor_small, "relative_to_time": relative_to_time,
        "accrue_always": accrue_always, "machine_cores": machine_cores,
    }  # fmt: skip
    default = {k: p.default for k, p in inspect.signature(multifactor).parameters.items()}
    changed = [f"{k}={v}" for k, v in given.items() if v != default[k]]
    return dataclasses.replace(
        made,
        name="multifactor" + (f":{','.join(changed)}" if changed else ""),
        summary="Slurm's multifactor priority: age, size, fair share, partition, QOS",
    )


def _size(cores: float, *, relative_to_time: bool) -> str:
    """Return the size factor as a formula, after Slurm's ``priority_multifactor.c``."""
    nodes = "nodes / machine_nodes"
    share = f"cpu / {cores!r}"
    if relative_to_time:
        size = f"max({nodes}, {share})" if cores else nodes
        return f"min({size} / max(walltime / 60, 1), 1.0)"
    return f"min(({nodes} + {share}) / 2, 1.0)" if cores else nodes


ENTRY_POINTS = "hpctwin.orderings"
"""Entry-point group for orderings of installed packages."""

OrderingLike = str | Ordering | Callable[[float, JobView], float]


def _plugins() -> Mapping[str, Entry[Ordering]]:
    """Return the orderings of installed packages."""
    return {
        point.name: Entry(point.name, f"plug-in: {point.value}", partial(_plugin, point))
        for point in metadata.entry_points(group=ENTRY_POINTS)
    }


ORDERINGS: Registry[Ordering] = Registry("ordering", _plugins)
"""Orderings by name."""


def _parameters(maker: Callable[..., Ordering]) -> tuple[Parameter, ...]:
    """Return the parameters of a function that makes orderings: its keywords."""
    return tuple(
        Parameter(name, _KINDS.get(type(value), "number"), value)
        for name, value in (inspect.unwrap(maker).__kwdefaults__ or {}).items()
    )


_KINDS: dict[type, str] = {bool: "flag", str: "text"}

for _made in BUILT_IN.values():
    ORDERINGS.register(Entry(_made.name, _made.summary, partial(BUILT_IN.get, _made.name)))  # type: ignore[arg-type]
for _maker in (adaptive, multifactor, pas, pfm):
    _help = (inspect.getdoc(_maker) or "").partition("\n")[0]
    ORDERINGS.register(Entry(_maker.__name__, _help, _maker, _parameters(_maker)))


def find_ordering(what: OrderingLike) -> Ordering:
    """Return the ordering that a user asks for.

    Args:
        what: An `Ordering`; a Python function ``(now, job) -> score``; or a text. Texts are a name
            such as ``wfp``; ``multifactor:age=1000,size=500`` or ``adaptive:chain=0``; a formula
            such as ``-(wait/walltime)**3*nodes``; a function in a file, ``my.py:my_order``; or the
            name of an installed plug-in.

    Raises:
        UnknownNameError: No ordering has that name; the message lists the known names.
        PolicyError: The formula, file or function cannot be used.
    """
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what)
        return made
    if not isinstance(what, str):
        raise PolicyError(
            f"an ordering is {in_brief(what)}; it must be a name, a formula, a function or an Ordering"
        )
    text = what.strip()
    name, _, details = text.partition(":")
    if ORDERINGS.has_own(name):
        return _named(name, details)
    if is_file(text):
        whole, found = load_function(text, Ordering, "ordering")
        return _usable(found, whole)
    if is_network(text):
        from hpctwin.policies.agents import agent_ordering

        return agent_ordering(text)
    if is_formula(text):
        return formula(text)
    if text in ORDERINGS:
        return ORDERINGS.find(text).make()
    if text in JobView._fields:
        return formula(text)
    raise UnknownNameError("ordering", text, list(ORDERINGS))


@lru_cache(maxsize=256)
def _named(name: str, details: str) -> Ordering:
    """Return an ordering with options; equal ones are compiled once."""
    entry = ORDERINGS.find(name)
    return entry.make(**entry.read(details, "option"))


def _checked(made: Ordering) -> Ordering:
    """Check an existing ordering again: its file may have changed a global since."""
    if not made.kept:
        made.check()
    return made


def _plugin(point: metadata.EntryPoint) -> Ordering:
    try:
        found: Any = point.load()
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"plug-in {point.name!r} ({point.value}) fails to load: {error!r}"
        ) from error
    return _usable(found, point.name)


def _usable(what: Any, name: str) -> Ordering:
    if isinstance(what, Ordering):
        return _checked(what)
    if callable(what):
        made: Ordering = ordering(what, name=name)
        return made
    raise PolicyError(f"{name} is {type(what).__name__}, not a function or an ordering")
