"""The engine stands on insides of Numba, which Numba does not promise to keep: these are they."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import defaultdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import hpctwin.engine
from hpctwin import Cluster, Simulation, Workload
from hpctwin.engine import NUMBA, check_numba
from hpctwin.engine.compile.intrinsics import sim_at, view
from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.state.records import Int
from hpctwin.errors import SimulationError

ROOT = Path(__file__).parents[2]
INSIDES = {
    "numba.core": {"cgutils", "types"},
    "numba.core.codegen": {"JITCodeLibrary"},
    "numba.core.compiler": {"Compiler"},
    "numba.core.compiler_machinery": {"PassManager", "register_pass"},
    "numba.core.imputils": {"lower_builtin", "lower_getattr_generic", "lower_setattr_generic"},
    "numba.core.registry": {"cpu_target"},
    "numba.core.typed_passes": {
        "AnnotateTypes", "IRLegalization", "NativeLowering", "NoPythonBackend", "NopythonTypeInference",
        "PreLowerStripPhis",
    },
    "numba.core.typing.templates": {
        "AbstractTemplate", "AttributeTemplate", "infer_getattr", "infer_global", "signature",
    },
    "numba.core.untyped_passes": {
        "FixupArgs", "GenericRewrites", "IRProcessing", "ReconstructSSA", "TranslateByteCode",
    },
    "numba.extending": {"intrinsic", "models", "register_model"},
    "llvmlite": {"binding", "ir"},
}  # fmt: skip
"""What the modules of `engine/compile` import, by module."""


def test_the_insides_of_numba_that_the_engine_uses_are_these_and_are_there() -> None:
    used = defaultdict(set)
    for path in Path(hpctwin.engine.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and re.match("numba|llvmlite", node.module or ""):
                assert path.parent.name == "compile", path
                if node.module != "numba":
                    used[node.module].update(name.name for name in node.names)
    assert used == INSIDES
    for module, names in INSIDES.items():
        missing = [name for name in names if not hasattr(import_module(module), name)]
        assert missing == [], f"{module} has no {missing}"


def test_the_numba_functions_replaced_in_linking_are_unchanged() -> None:
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler
    from numba.core.registry import cpu_target
    from numba.core.typed_passes import NativeLowering

    library = cpu_target.target_context.codegen().create_library("test")
    assert isinstance(library, JITCodeLibrary)
    assert not library._finalized
    assert library._linking_libraries == []
    assert library._codegen is library.codegen
    for name in ("finalize", "get_pointer_to_function", "enable_object_caching"):
        assert callable(getattr(library, name))
    # Each module is given its layout where it is optimized first, and the whole is once more, by the target.
    assert "data_layout = self._codegen._data_layout" in inspect.getsource(
        JITCodeLibrary._optimize_functions
    )
    assert "self._final_module" in inspect.getsource(JITCodeLibrary._optimize_final_module)
    assert library.codegen._tm.triple
    # A library that is there already is the one that is filled.
    assert list(inspect.signature(Compiler.compile_extra).parameters) == ["self", "func"]
    assert "state.library is None" in inspect.getsource(NativeLowering.run_pass)


def test_functions_go_through_some_of_numba_s_steps_in_its_order_and_through_all_if_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core.compiler import DefaultPassBuilder

    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.compile.linking import STEPS

    class State:
        func_ir = None
        flags = type("Flags", (), {"no_rewrites": False, "enable_ssa": True})
        flags.auto_parallel = type("Auto", (), {"enabled": False})

    theirs = iter(step for step, _ in DefaultPassBuilder.define_nopython_pipeline(State).passes)
    assert all(any(issubclass(step, one) for one in theirs) for step in STEPS)

    def twice(number):
        return 2 * number

    def inside(number):
        def more(other):
            return other + number

        return more(1) + more(2)

    # What an earlier run kept on disk would be loaded, and go through no steps.
    monkeypatch.setattr("hpctwin.engine.compile.compiler.CACHE_DIR", None)
    for function, found, steps in (twice, 10, "engine"), (inside, 13, "nopython"):
        kernel = Kernel(function, "int64(int64)")
        assert kernel(5) == found
        (form,) = kernel.translation.dispatcher.overloads.values()
        assert list(form.metadata["pipeline_times"]) == [steps]


def test_pyproject_and_the_check_name_the_same_versions_and_ours_is_within() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (asked,) = (d for d in settings["project"]["dependencies"] if d.startswith("numba"))
    (oldest, newest) = NUMBA
    assert asked == f"numba>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    check_numba(version("numba"))


@pytest.mark.parametrize("found", ["0.59.1", "0.69.0rc1", "1.0"])
def test_another_numba_is_rejected_by_name_with_the_remedy(found: str) -> None:
    with pytest.raises(
        SimulationError, match=f"Numba {found} is installed; .*pip install 'numba>="
    ):
        check_numba(found)


def test_how_kept_code_is_loaded_is_still_how_numba_keeps_it() -> None:
    from numba.core.caching import FunctionCache
    from numba.core.dispatcher import Dispatcher

    assert list(inspect.signature(FunctionCache._load_overload).parameters) == [
        "self", "sig", "target_context",
    ]  # fmt: skip
    load = inspect.getsource(FunctionCache.load_overload)
    assert "target_context.refresh()" in load
    assert "self._load_overload(sig, target_context)" in load
    assert "self.add_overload(cres)" in inspect.getsource(Dispatcher.compile)
    assert "self.targetctx = " in inspect.getsource(Dispatcher.__init__)


def test_a_function_of_a_notebook_is_compiled_anew_and_never_taken_from_an_older_version(
    tmp_path: Path,
) -> None:
    text = "def own(agent, sim):\n    return None\n"
    found = {}
    for name in ("ipykernel_1/2.py", "mine.py"):
        path = tmp_path / name
        if path.parent == tmp_path:
            path.write_text(text)
        scope: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), scope)
        kernel = Kernel(scope["own"], "void(int64, Sim)")
        found[name] = type(kernel.translation.dispatcher._cache).__name__
    assert found == {"ipykernel_1/2.py": "NullCache", "mine.py": "FunctionCache"}


def test_a_part_is_compiled_once_whatever_numbers_and_truth_values_are_written_where_it_is_called() -> (
    None
):
    from hpctwin.engine.compile.jit import Kernel, jit

    def doubled_if(number: int, so: bool) -> int:
        return 2 * number if so else number

    one_if: Any = jit(doubled_if)

    def sums(number: int) -> int:
        return one_if(number, number > 1) + one_if(3, True) + one_if(number=5, so=False)

    assert Kernel(sums, "int64(int64)")(4) == 8 + 6 + 5
    assert len(one_if.dispatcher.overloads) == 1


def test_what_is_remembered_of_numba_s_own_functions_is_what_it_finds_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core.registry import cpu_target

    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.compile.linking import _FOUND

    def many(number: int, other: float) -> float:
        total = 0.0
        for i in range(number):
            total += max(i, 3) * other - i // 2 if i % 2 == 0 else abs(other)
        return total

    # What an earlier run kept on disk would be loaded, and not be typed.
    monkeypatch.setattr("hpctwin.engine.compile.compiler.CACHE_DIR", None)
    _FOUND.clear()
    assert Kernel(many, "float64(int64, float64)")(3, 0.5) == many(3, 0.5)
    found = list(_FOUND.values())
    assert len(found) > 5
    for signature, function, given in found:
        assert cpu_target.typing_context.resolve_function_type(function, given, {}) == signature
    assert "resolve_function_type" not in vars(cpu_target.typing_context)


class _Named:
    """What a pass keeps of a job."""

    start: Int


_named = view(_Named)


def _write_both_ways(address: int) -> int:
    sim: Any = sim_at(address)
    sim.kept[0, 0] = 1
    _named(sim.kept)[0].start = 2
    found = sim.kept[0, 0]
    _named(sim.kept)[0].start = 3
    sim.kept[0, 0] = 4
    both: int = 10 * found + _named(sim.kept)[0].start
    return both


def test_a_pass_keeps_the_same_state_as_numbers_and_as_a_record() -> None:
    workload = Workload.build(submit_s=[0], runtime_s=[1], walltime_s=[1], nodes=[1])
    simulation = Simulation(workload, Cluster.uniform(nodes=1), policy="fcfs+conservative")
    both_ways = Kernel(_write_both_ways, "int64(int64)")
    assert both_ways(simulation.state.address) == 24
