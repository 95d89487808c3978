"""The engine is compiled once, beforehand."""

from __future__ import annotations

import pytest

from hpctwin.cli import main
from hpctwin.cli.warmup import PARTS


def test_warmup_leaves_every_entry_of_the_engine_on_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hpctwin.engine.jit import CACHE_DIR

    assert CACHE_DIR is not None
    with pytest.raises(SystemExit) as ended:
        main(["warmup"])
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert "ready after" in said.out
    assert not said.err
    kept = {path.name.partition("-")[0] for path in CACHE_DIR.rglob("*.nbi")}
    assert kept >= {
        "loop.advance", "loop.reorder", "loop.advance_packed", "power_loop.advance_powered",
        "power_loop.give_orders", "lookahead.look_ahead", "orderings.wfp",
    }  # fmt: skip


def test_warmup_knows_every_module_of_the_engine_with_entries() -> None:
    """An entry is a decorator with a signature: those of helpers have none."""
    from pathlib import Path

    import hpctwin.engine.jit as jit

    folder = Path(jit.__file__).parent
    with_entries = {
        path.stem
        for path in folder.glob("*.py")
        if path.stem != "jit"
        and any(
            line.lstrip("@").startswith(("jit(types.", "jit(int64", "jit(\n")) or "= jit(" in line
            for line in path.read_text().splitlines(keepends=True)
        )
    }
    assert with_entries == {"kernel", *PARTS}
