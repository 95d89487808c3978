"""Parts of a policy that are one module each: passes and kinds of power policies.

A module ``my_part.py`` in their folder defines the part under a fixed attribute name; policies name
it ``my-part``. The first line of its docstring is its help text. A class ``Numbers`` in it declares
the settings of a policy: names, units, defaults and, as comments, their meaning. No other file
needs a change. A part defined elsewhere is registered.

Views: the fields of a job and of a node that orderings and placements see.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from hpctwin.engine.compile.compile_errors import syntax_tree
from hpctwin.engine.state import records

__all__ = ["CHANGING", "About", "JobView", "Modules", "NodeView", "Number", "Order", "Place"]

CHANGING = frozenset({"wait", "fairshare", "usage"})
"""Fields that change while a job waits.

The queue stays sorted under an ordering that uses none of them.
"""


class JobView(NamedTuple):
    """A pending job as an ordering sees it; times are in seconds.

    All fields are floats except the codes of labels, which are integers.

    Args:
        submit: Submit time.
        eligible: Time from which dependencies allow the job to start.
        wait: now - submit.
        walltime: Requested limit.
        expected: Runtime that the scheduler expects: the walltime, or a prediction.
        nodes: Nodes requested.
        cores, gpus, memory_gb: Request per node; 0 if none.
        user, account, partition, qos: Codes of the labels; -1 if unknown.
        partition_priority, qos_priority: Weights from the cluster's configuration, relative to the
            largest.
        priority: Priority in the trace; larger is sooner.
        fairshare: 2^(-(use/all use)/(share/all shares)) of its user or account, in (0, 1].
        usage: Decayed node-seconds of its user or account.
        machine_nodes: Nodes of the cluster.
        requeues: Number of times a node failure requeued the job.
        dominant: Largest share it requests of any cluster resource: nodes or a cluster-wide
            resource, 0 to 1.
        load: Sum of those shares.
        cpu: Cores per node × nodes, plus its request of a cluster-wide resource named ``cpu``.
        memory_mb: Memory per node × nodes, plus its request of a cluster-wide resource named
            ``memory_mb``; MB.
        chain: Expected time of the longest chain of submitted jobs that wait for it. It may grow;
            the queue is then sorted again.
        risk: Predicted probability that it fails; 0 without a prediction.
        predicted_runtime: Predicted runtime, even if the scheduler does not plan by it; the
            walltime without a prediction.
        predicted_power: Predicted power of one of its nodes, W; 0 without a prediction.
        communication: Share of its time alone in which it communicates, 0 to 1; 0 if it does not
            share the network.
    """

    submit: float
    eligible: float
    wait: float
    walltime: float
    expected: float
    nodes: float
    cores: float
    gpus: float
    memory_gb: float
    user: int
    account: int
    partition: int
    qos: int
    partition_priority: float
    qos_priority: float
    priority: float
    fairshare: float
    usage: float
    machine_nodes: float
    requeues: float
    dominant: float
    load: float
    cpu: float
    memory_mb: float
    chain: float
    risk: float
    predicted_runtime: float
    predicted_power: float
    communication: float


class NodeView(NamedTuple):
    """A free node as a placement sees it; all fields are floats.

    Args:
        number: Node number, from 0.
        group: Number of its node group, from 0.
        cores, gpus, memory_gb: Amounts that the node has, or has left if nodes are shared; 0 if
            unknown.
        speed: Speed at which jobs run on it; 1 is the speed at which runtimes were measured.
        idle_w, active_w: Power draw when idle and when computing, in its group's first mode, W; 0
            if unknown.
        wakes: Seconds until it can be on; 0 if it is on.
        free: Number of free nodes in its pool: nodes of the same group, under the same maintenance.
    """

    number: float
    group: float
    cores: float
    gpus: float
    memory_gb: float
    speed: float
    idle_w: float
    active_w: float
    wakes: float
    free: float


Order = Callable[[float, JobView], float]
"""An ordering: ``(now in seconds, job) -> score``, smallest first."""

Place = Callable[[float, JobView, NodeView], float]
"""A placement: ``(now in seconds, job, node) -> score``.

A job is placed on the free nodes with the smallest scores.
"""


T = TypeVar("T")


@dataclass(frozen=True)
class Number:
    """A numeric setting of a policy.

    Args:
        name: Setting name.
        unit: ``number``, ``count`` (1 or more), ``limit`` (1 or more, 0 for any), ``ms``, ``step``
            (ms, 1 or more), or ``flag`` (0 or 1).
        default: Value if the policy does not set it.
        help: Meaning of the setting.
    """

    name: str
    unit: str
    default: int
    help: str = ""


@dataclass(frozen=True)
class About:
    """Help text and settings of a part.

    Args:
        help: One line of help.
        numbers: Settings of a policy.
        marks: Names in capital letters that the module sets to True.
    """

    help: str
    numbers: tuple[Number, ...]
    marks: frozenset[str] = frozenset()


class Modules(Generic[T]):
    """Registry of all parts of one kind.

    Args:
        package: Package that contains the modules.
        attribute: Name of the part in its module.
    """

    def __init__(self, package: str, attribute: str) -> None:
        self.package = package
        self.attribute = attribute
        self._registered: dict[str, T] = {}

    def register(self, name: str, found: T) -> T:
        """Register a part, so that policies can name it."""
        self._registered[name] = found
        return found

    def names(self) -> list[str]:
        """The names of all."""
        return sorted({*self.own(), *self._registered})

    def own(self) -> list[str]:
        """Return the names of the parts in the package folder."""
        path = sys.modules[self.package].__path__
        return [module.name.replace("_", "-") for module in pkgutil.iter_modules(path)]

    def find(self, name: str) -> T:
        """Return the part with a name; the name must exist."""
        if name not in self._registered:
            module = importlib.import_module(self._module(name))
            self.register(name, getattr(module, self.attribute))
        return self._registered[name]

    def about(self, name: str) -> About:
        """Return help and settings of a part; loads Numba only for registered parts.

        Raises:
            KeyError: There is no part with this name.
        """
        told = _about_module(self._module(name))
        if told is None and name in self._registered:
            found = self._registered[name]
            marks = {"TAKES_TIMEOUT"} if getattr(found, "timeouts", False) else set()
            told = _about_record(getattr(found, "numbers", None), frozenset(marks))
        if told is None:
            raise KeyError(name)
        return told

    def _module(self, name: str) -> str:
        if not name.replace("-", "").isalnum():
            return "-"
        return f"{self.package}.{name.replace('-', '_')}"


def _about_record(record: type | None, marks: frozenset[str]) -> About:
    hints = {} if record is None else get_type_hints(record, include_extras=True)
    return About(
        (record.__doc__ or "" if record else "").partition("\n")[0] or "of one's own",
        tuple(Number(f, _unit(h), getattr(record, f, 0)) for f, h in hints.items()),
        marks,
    )


@lru_cache(maxsize=64)
def _about_module(module: str) -> About | None:
    """Read help and settings from a module's source; None if there is no source."""
    spec = importlib.util.find_spec(module)
    source = None if spec is None else getattr(spec.loader, "get_source")(spec.name)  # noqa: B009
    if source is None:
        return None
    tree = syntax_tree(source)
    assert isinstance(tree, ast.Module)
    help, _, _ = (ast.get_docstring(tree) or "").partition("\n")
    marks = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    return About(help, tuple(_numbers(tree, source.splitlines())), frozenset(marks))


def _numbers(tree: ast.Module, lines: list[str]) -> Iterator[Number]:
    """Yield the fields of the class ``Numbers``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Numbers":
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    default = 0 if field.value is None else ast.literal_eval(field.value)
                    hint = getattr(records, ast.unparse(field.annotation))
                    told = lines[field.lineno - 1].partition("#")[2].strip()
                    yield Number(field.target.id, _unit(hint), default, told)


def _unit(hint: Any) -> str:
    return str((*get_args(hint), "number")[2])
