"""The page on compatibility names each rejected combination, and no other is rejected."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpctwin import Cluster, Workload
from hpctwin.energy import Orders
from hpctwin.errors import ConfigError
from hpctwin.model import PowerCap
from hpctwin.model.workload.jobs import NODE_W, Usage
from hpctwin.network.profiles import HomogeneousTask
from hpctwin.policies import make_policy
from hpctwin.simulation import refusals
from hpctwin.simulation.refusals import (
    check_contended,
    check_forecasts,
    check_streamed,
    check_together,
)
from hpctwin.simulation.refusals.together import Refusal
from hpctwin_sizing import refusals as sized

PAGE = Path(__file__).parent.parent / "docs/reference/rules/compatibility.md"
ROWS = [
    cells.split(" | ")[0]
    for cells in re.findall(r"^\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    if not cells.startswith("rejected |")
]

Case = Callable[[], None]


def jobs(**columns: Any) -> Workload:
    """Two jobs with some columns."""
    return Workload.build(submit_s=[0, 0], runtime_s=[10, 10], nodes=[1, 1], **columns)


def cluster(group: dict[str, Any] | None = None, **settings: Any) -> Cluster:
    """Four nodes with some settings of their group and of the cluster."""
    nodes = [{"name": "n", "count": 4, **(group or {})}]
    return Cluster.model_validate({"nodes": nodes, **settings})


POWER: dict[str, Any] = {"modes": {"base": {"power_w": 300, "idle_w": 100}}}
STEP = {"time": 10, "power_w": 100}
OFF = {"name": "off", "power_w": 5, "switch_off": STEP, "switch_on": STEP}
SLEEP = POWER | {"sleep": [OFF]}
DEEP = POWER | {"sleep": [OFF, OFF | {"name": "deep", "power_w": 1}]}
PARTS: dict[str, Any] = {"components": {"cpu": {"count": 1, "idle_w": 50, "max_w": 200}}}
CORES = {"cores": 8}
TIERS = {"partitions": [{"name": "low", "default": True}, {"name": "high"}]}
REQUEUE = TIERS | {"preemption": {"partitions": {"high": {"tier": 2}}}}
SUSPEND = TIERS | {"preemption": {"mode": "suspend", "partitions": {"high": {"tier": 2}}}}
BY_DAY = "2kW,22:00-06:00=3kW"
FAILS = {"mtbf": 1e6, "mttr": 60}
LOWER = PowerCap(2000.0, lower_modes=True)
SHARED = {"chunks": {"tasks": [1, 1]}}
OUTSIDE = "fcfs+outside"
SPARS = ("spars-auto", "spars-ipm")


def switch(view: Any) -> Orders:
    """A control function."""
    return Orders()


def always(
    at: Cluster, text: str = "fcfs+easy", work: Workload | None = None, **parts: Any
) -> Case:
    return lambda: check_together(at, make_policy(text, **parts), work or jobs())


def with_sizing(at: Cluster, text: str = OUTSIDE, work: Workload | None = None) -> Case:
    return lambda: sized.check_sized(at, make_policy(text), work or jobs())


def contended(at: Cluster, work: Workload | None = None, sized: bool = False) -> Case:
    profiles = [HomogeneousTask(1e9, 0.0)] * 2
    return lambda: check_contended(at, work or jobs(), profiles, sized=sized)


def in_stream(
    at: Cluster,
    text: str = "fcfs+easy",
    work: Workload | None = None,
    labelled: bool = True,
    **options: Any,
) -> Case:
    return lambda: check_streamed(at, make_policy(text), work or jobs(), options, labelled=labelled)


def forecast(at: Cluster, text: str = "fcfs+easy", **parts: Any) -> Case:
    return lambda: check_forecasts(at, make_policy(text, **parts))


def drawn() -> Workload:
    return jobs(usage={NODE_W: Usage.traces([[300.0], [300.0]], 9)}, **SHARED)


def mixed() -> Workload:
    chunks = {"tasks": [1, 1], "exclusive": [1, 0]}
    return jobs(chunks=chunks, more_tasks=["1:cores=2", None])


CASES: dict[str, Sequence[Case]] = {
    "a power policy that switches nodes, without a power model": [
        always(cluster(), "fcfs~psus:1h")
    ],
    "a power policy with a timeout, without sleep states": [always(cluster(POWER), "fcfs~psus:1h")],
    "`psas-ipm` with `pushdown`": [always(cluster(SLEEP), "fcfs+pushdown~psas-ipm:1h")],
    "`spars-auto` or `spars-ipm` beyond SPARS's own model (below)": [
        *(always(cluster(SLEEP), f"fcfs+easy~{name}:1h") for name in SPARS),
        *(always(cluster(SLEEP | CORES), f"fcfs+none~{name}:1h", jobs(**SHARED)) for name in SPARS),
        always(cluster(SLEEP), "fcfs+none@weight~spars-auto:1h"),
        *(always(cluster(SLEEP, cleanup=30), f"fcfs+none~{name}:1h") for name in SPARS),
        always(cluster(SLEEP), "fcfs+none@best-fit~spars-ipm:1h"),
        always(cluster(DEEP), "fcfs+none~spars-ipm:1h"),
        always(cluster(SLEEP, **REQUEUE), "fcfs+none~spars-ipm:1h"),
    ],
    "a power cap by time of day with `psus` or `psas-auto`": [
        always(cluster(SLEEP, cap=BY_DAY), f"fcfs~{name}:1h") for name in ("psus", "psas-auto")
    ],
    "`fewest-switches`, `whole-blocks` or `communication-aware` without switches": [
        always(cluster(CORES), f"@{name}")
        for name in ("fewest-switches", "whole-blocks", "communication-aware")
    ],
    "a cap with lower modes, with a control function": [
        always(cluster(SLEEP, cap=LOWER), power=switch)
    ],
    "the backfill `outside`, shared": [
        always(cluster(CORES), OUTSIDE, jobs(**SHARED)),
        always(cluster(), f"{OUTSIDE}@weight"),
    ],
    "jobs that ask for tasks, on a cluster without `cores`": [
        always(cluster(), work=jobs(**SHARED))
    ],
    "recorded node power, shared, with `components`": [
        always(cluster(PARTS | CORES), work=drawn())
    ],
    "preemption or checkpoints with `outside`": [
        always(cluster(**REQUEUE), OUTSIDE),
        always(cluster(failures=FAILS), OUTSIDE, jobs(checkpoint_s=[5, 5])),
    ],
    "checkpoints with a cap that lowers modes": [
        always(cluster(POWER, cap=LOWER, failures=FAILS), work=jobs(checkpoint_s=[5, 5]))
    ],
    "suspension of exclusive jobs with several kinds of tasks": [
        always(cluster(CORES, **SUSPEND), work=mixed())
    ],
    "a backfill": [with_sizing(cluster(), "fcfs+easy")],
    "`psas-ipm` or a control function": [
        with_sizing(cluster(SLEEP), f"{OUTSIDE}~psas-ipm:1h"),
    ],
    "nodes of other speeds, or a cap that lowers modes": [
        with_sizing(cluster({"speed": 2})),
        with_sizing(cluster(POWER, cap=LOWER)),
    ],
    "jobs that ask for tasks": [with_sizing(cluster(CORES), work=jobs(**SHARED))],
    "recorded use of nodes": [
        with_sizing(cluster(), work=jobs(usage={NODE_W: Usage.traces([[300.0], [300.0]], 9)}))
    ],
    "malleable jobs with amounts of each rank": [
        contended(cluster(), jobs(malleable={name: [one, 1]}), sized=True)
        for name, one in (("max_nodes", 2), ("suspendable", 1))
    ],
    "a sizing": [in_stream(cluster(), sizing=lambda view: None)],
    "orderings that use labels, with an unlabeled source": [
        in_stream(cluster(), "fairshare", labelled=False)
    ],
    "`outside`, `selected` or `admitted`": [
        in_stream(cluster(), f"fcfs+{name}") for name in ("outside", "selected", "admitted")
    ],
    "`fragmentation`": [in_stream(cluster(), "@fragmentation")],
    "a control function, forecast": [forecast(cluster(SLEEP), power=switch)],
}


def place_of(error: ConfigError) -> tuple[str, int]:
    """Return which entry of a table of refusals, or which line of code, raised an error."""
    frame = error.__traceback__
    assert frame is not None
    while frame.tb_next is not None:
        frame = frame.tb_next
    refusal = frame.tb_frame.f_locals.get("refusal")
    code = refusal.holds.__code__ if isinstance(refusal, Refusal) else None
    if code is None:
        return Path(frame.tb_frame.f_code.co_filename).name, frame.tb_lineno
    return Path(code.co_filename).name, code.co_firstlineno


def places() -> set[tuple[str, int]]:
    """Return all places that reject a combination: entries of tables, and statements ``raise``."""
    found = set()
    for path in (*Path(refusals.__file__).parent.glob("*.py"), Path(sized.__file__)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                found.add((path.name, node.lineno))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                found.add((path.name, node.args[0].lineno))
    return found


def raised(case: Case) -> tuple[str, int]:
    with pytest.raises(ConfigError) as error:
        case()
    return place_of(error.value)


def test_each_row_is_a_case() -> None:
    assert sorted(CASES) == sorted(ROWS)


@pytest.mark.parametrize("row", CASES)
def test_a_combination_on_the_page_is_rejected(row: str) -> None:
    for case in CASES[row]:
        raised(case)


def test_no_other_combination_is_rejected() -> None:
    made = {raised(case) for cases in CASES.values() for case in cases}
    why = (Path(refusals.__file__).parent / "together.py").read_text().splitlines()
    in_refuse = {("together.py", n) for n, line in enumerate(why, 1) if "refusal.why(" in line}
    assert places() - made - in_refuse == set()
