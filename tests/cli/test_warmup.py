"""The engine is compiled once, beforehand."""

from __future__ import annotations

import pytest

from hpctwin.cli import main


def test_warmup_leaves_every_entry_of_the_engine_on_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hpctwin.engine.compile.jit import CACHE_DIR

    assert CACHE_DIR is not None
    with pytest.raises(SystemExit) as ended:
        main(["warmup"])
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert "ready after" in said.out
    assert not said.err
    kept = {path.name.partition("-")[0] for path in CACHE_DIR.rglob("*.nbi")}
    assert kept >= {
        "event_loop.advance", "event_loop.reorder", "easy.pass_easy_whole_nodes",
        "easy.pass_easy_preempting_shared_nodes", "pushdown.pass_pushdown_shared_nodes",
        "switching_plan.after_pass_managed", "lookahead._look_ahead", "orderings.wfp",
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
