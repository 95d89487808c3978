"""The engine is compiled once, beforehand."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from hpctwin.cli import installation, main
from hpctwin.engine.compile import build, library
from hpctwin.errors import SimulationError


def test_warmup_leaves_a_library_with_every_entry_of_the_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hpctwin.cli.installation import library_functions
    from hpctwin.engine.compile.library import address_in_library, library_path, symbol_of

    with pytest.raises(SystemExit) as ended:
        main(["warmup"])
    assert ended.value.code == 0
    assert f"{library_path()}\n" in capsys.readouterr().out
    functions = library_functions()
    assert all(address_in_library(one.symbol) for one in functions)
    assert [one.symbol for one in functions] == [symbol_of(one.function) for one in functions]
    assert {one.symbol.partition("hpctwin.")[2] for one in functions} >= {
        "engine.loop.event_loop.advance", "engine.loop.event_loop.reorder",
        "engine.passes.easy.pass_easy_whole_nodes",
        "engine.passes.easy.pass_easy_preempting_shared_nodes",
        "engine.passes.pushdown.pass_pushdown_shared_nodes",
        "engine.power.switching_plan.after_pass_managed",
        "engine.operations.lookahead._look_ahead", "policies.orderings.wfp",
    }  # fmt: skip


def test_warmup_knows_every_kernel_of_the_engine() -> None:
    import importlib
    import pkgutil

    import hpctwin.engine as engine
    from hpctwin.engine.compile.jit import Kernel
    from hpctwin.engine.operations.kernel import all_kernels

    known = set(all_kernels())
    for module in pkgutil.walk_packages(engine.__path__, "hpctwin.engine."):
        for value in vars(importlib.import_module(module.name)).values():
            assert not isinstance(value, Kernel) or value in known, module.name


@pytest.mark.parametrize(
    ("platform", "error"),
    [
        ("darwin", None),
        ("linux", SimulationError("cc cannot link the engine: no crt1.o")),
        ("linux", PermissionError(13, "Permission denied")),
    ],
)
def test_where_no_library_can_be_built_functions_are_loaded_one_by_one(
    platform: str,
    error: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*given: Any) -> Any:
        assert error is not None
        raise error

    monkeypatch.setattr(library, "library_path", lambda: None)
    monkeypatch.setattr(library, "checks_bounds", lambda: False)
    monkeypatch.setattr(build, "c_compiler", lambda: "cc")
    monkeypatch.setattr(build, "build_libraries", fails)
    monkeypatch.setattr(sys, "platform", platform)
    built: list[Any] = []
    monkeypatch.setattr(build, "build_objects", lambda functions, report: built.extend(functions))
    assert installation.warmup_command() == 0
    assert len(built) > 100
    err = capsys.readouterr().err
    assert err == (
        "" if error is None else f"{error}; commands load functions one by one instead\n"
    )
