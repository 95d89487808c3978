"""What users call from Python: its parameters have names, and every figure of a result is at hand."""

from __future__ import annotations

import inspect

import pytest
from matplotlib.figure import Figure

import hpctwin
from hpctwin import Cluster, Result, Workload, simulate
from hpctwin.errors import SimulationError
from hpctwin.report.accessor import Plots
from hpctwin.simulation.running.simulation import RunOptions, SimulationOptions
from hpctwin.simulation.state.base import SimulationBase

PUBLIC = {name: getattr(hpctwin, name) for name in hpctwin.__all__ if name != "__version__"}


def parameters(function: object) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)  # type: ignore[arg-type]


def functions() -> dict[str, object]:
    """Functions that are exported, and all that their classes do."""
    found: dict[str, object] = {}
    for name, value in {**PUBLIC, "Plots": Plots}.items():
        if not inspect.isclass(value):
            found[name] = value
        elif not issubclass(value, Exception):
            found[name] = value
            methods = inspect.getmembers(value, inspect.isroutine)
            found |= {f"{name}.{part}": m for part, m in methods if _ours(part, m)}
    return found


def _ours(name: str, method: object) -> bool:
    """Whether a user calls it, and it is not from a class of another package's."""
    ours = (getattr(method, "__module__", None) or "").startswith("hpctwin")
    return ours and callable(method) and not name.startswith("_")


def test_public_functions_name_their_parameters() -> None:
    unnamed = {
        name
        for name, function in functions().items()
        if any(one.kind is one.VAR_KEYWORD for one in parameters(function).values())
    }
    # A generator's options are those of the function that the name says; these take any field of a class, a
    # sweep those of its settings; pydantic's method takes pydantic's options.
    fields = {"Workload.replace", "Cluster.uniform"}
    assert unnamed == {"generate", "sweep", "Cluster.model_validate", *fields}


def test_what_is_handed_on_to_a_simulation_is_what_it_takes() -> None:
    taken = parameters(SimulationBase.__init__)
    by_name = {n: one.annotation for n, one in taken.items() if one.kind is one.KEYWORD_ONLY}
    named = {**RunOptions.__annotations__, **SimulationOptions.__annotations__}
    assert {name: hint.__forward_arg__ for name, hint in named.items()} == by_name
    for function, options in ((simulate, SimulationOptions), (hpctwin.compare, RunOptions)):
        assert set(options.__annotations__) <= set(parameters(function))
    assert parameters(simulate)["overrun"].default == "terminate"


@pytest.fixture(scope="module")
def result() -> Result:
    jobs = Workload.build(
        submit_s=[0, 1, 2], runtime_s=[50, 50, 9], walltime_s=[90, 90, 90], nodes=[2, 1, 1]
    )
    return simulate(jobs, 2, track_nodes=True)


def test_every_figure_of_a_result_can_be_drawn(result: Result) -> None:
    for name in (
        "gantt",
        "utilization",
        "queue",
        "wait_cdf",
        "wait_by_size",
        "wait_heat",
        "workload",
    ):
        assert isinstance(getattr(result.plot, name)(title="A title"), Figure), name


def test_power_can_be_drawn_if_known_and_otherwise_the_required_input_is_named(
    result: Result,
) -> None:
    with pytest.raises(SimulationError, match="add 'modes' or 'components' to its node groups"):
        result.plot.power()
    machine = Cluster.model_validate(
        {"nodes": [{"name": "a", "count": 2, "modes": {"on": {"power_w": 200, "idle_w": 100}}}]}
    )
    powered = simulate(result.workload, machine, log=True)
    assert isinstance(powered.plot.power(), Figure)
    assert isinstance(powered.plot.node_states(), Figure)
