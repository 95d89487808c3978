"""The library of compiled code: built once, used without Numba, never with other sources."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpctwin.engine.compile import library
from hpctwin.engine.compile.build import build_libraries, c_compiler
from hpctwin.engine.compile.jit import Compiled, Kernel, jit
from hpctwin.engine.compile.kernel_key import kernel_key
from hpctwin.engine.jobs.resizing import STOP
from hpctwin.engine.summary.job_figures import COUNT_LEADING
from hpctwin.errors import SimulationError

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import numpy as np
from hpctwin.engine.jobs.resizing import STOP
from hpctwin.engine.summary.job_figures import COUNT_LEADING, TAKE_LEADING
from hpctwin.errors import SimulationError
print(COUNT_LEADING.load(), STOP.load())
counts = np.zeros(1 << 16, np.int64)
COUNT_LEADING(np.arange(5), counts)
print(counts.sum())
try:
    TAKE_LEADING.load()
except SimulationError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the cache with a library of two kernels."""
    if c_compiler() is None:
        pytest.skip("there is no C compiler")
    base = tmp_path_factory.mktemp("cache")
    level = library.processor_level()
    told: list[float] = []

    def build() -> Path:
        told.clear()
        (path,) = build_libraries(
            [COUNT_LEADING, STOP],
            base / "hpctwin",
            [level],
            told.append,
        )
        assert told == sorted(told)
        return path

    assert build().name == library.library_name(level)
    assert told[-1] == 1
    path = build()
    assert told == []
    assert {one.name for one in path.parent.iterdir()} == {path.name, "objects"}
    assert len(list((path.parent / "objects").iterdir())) == 2
    return base


def run(
    code: str, cache: Path, *, by_name: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *([] if by_name else ["-c"]), code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "NUMBA_BOUNDSCHECK": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernels_of_the_library_run_without_numba_and_others_say_what_is_missing(
    built: Path,
) -> None:
    done = run(WITHOUT_NUMBA, built)
    assert done.stdout.splitlines() == [
        "True True",
        "5",
        "'take_leading' must be compiled, and llvmlite is missing: pip install numba",
    ], done.stderr


def test_where_bounds_are_checked_no_library_is_used(built: Path) -> None:
    done = run(WITHOUT_NUMBA, built, NUMBA_BOUNDSCHECK="1")
    assert "'count_leading' must be compiled" in done.stderr


def test_the_key_of_an_object_file_follows_what_a_kernel_calls() -> None:
    source = "@jit\ndef part(x):\n    return x + N\n\n\ndef whole(x):\n    return part(x)\n"

    def keys(number: int, source: str) -> list[str]:
        scope: dict[str, Any] = {"jit": jit, "N": number}
        exec(f"{source}\n\ndef other(x):\n    return x\n", scope)
        kernels = [Compiled(scope[name], "int64(int64)") for name in ("whole", "other")]
        return [kernel_key(one, "x86-64-v3") for one in kernels]

    whole, other = keys(1, source)
    assert keys(1, f"# Comment\n\n{source}") == [whole, other]
    for changed in keys(2, source), keys(1, source.replace("x + N", "x - N")):
        assert changed[0] != whole
        assert changed[1] == other
    levels = {kernel_key(STOP, level) for level in ("x86-64-v2", "x86-64-v3")}
    assert len(levels) == 2


TOGETHER = """
import os, sys
import numpy as np
from hpctwin.engine.compile import build
from hpctwin.engine.compile.jit import prepare
from hpctwin.engine.jobs.resizing import STOP
from hpctwin.engine.summary.job_figures import COUNT_LEADING
def full(path, code):
    raise OSError(28, "No space left on device")
os.cpu_count = lambda: 2
made, machine_code = [], build.machine_code
build.machine_code = lambda *given: made.append(given) or machine_code(*given)
{change}
# A process of its own would run a script like this one again.
prepare([COUNT_LEADING, STOP])
counts = np.zeros(1 << 16, np.int64)
COUNT_LEADING(np.arange(5), counts)
print(counts.sum(), len(made))
"""


@pytest.mark.parametrize(
    ("change", "made_here", "kept"),
    [
        ("", (0, 1), True),
        ("os.cpu_count = lambda: 1", (2,), True),
        ("sys.executable = ''", (2,), True),
        ("sys.executable = '/bin/true'", (2,), True),
        ("build._write = full", (0, 1), False),
    ],
)
def test_missing_kernels_are_made_together_whatever_helps_or_fails(
    change: str, made_here: tuple[int, ...], kept: bool, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(TOGETHER.format(change=change))
    for again in (False, True):
        done = run(str(script), tmp_path / "cache", by_name=True)
        total, made = map(int, done.stdout.split())
        assert total == 5
        loaded = kept and again
        assert made in ((0,) if loaded else made_here)
        assert ("compiling the engine" not in done.stderr) == loaded
        assert ("cannot keep compiled code" in done.stderr) != kept
    objects = list((tmp_path / "cache/hpctwin").glob("objects/*.o"))
    assert len(objects) == (2 if kept else 0)


@pytest.fixture
def nothing_opened() -> Iterator[None]:
    library._library.cache_clear()
    yield
    library._library.cache_clear()


@pytest.mark.usefixtures("nothing_opened")
def test_a_library_of_other_sources_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_BOUNDSCHECK", raising=False)
    monkeypatch.setattr(library, "PACKAGED", tmp_path)
    (tmp_path / "engine-x86-64-v2-0123456789abcdef.so").touch()
    with pytest.warns(RuntimeWarning, match="built from other sources .* hpctwin warmup"):
        assert library.address_in_library(STOP.symbol) == 0


@pytest.mark.usefixtures("nothing_opened")
def test_a_library_that_cannot_be_loaded_is_reported_and_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_BOUNDSCHECK", raising=False)
    damaged = tmp_path / "hpctwin" / library.library_name(library.processor_level())
    damaged.parent.mkdir()
    damaged.write_bytes(b"\x7fELF cut off")
    with pytest.warns(RuntimeWarning, match="cannot be loaded .* kernels are compiled one by one"):
        assert library.address_in_library(STOP.symbol) == 0


def test_without_a_c_compiler_no_library_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SimulationError, match="no C compiler"):
        build_libraries([STOP], tmp_path, ["x86-64-v2"])


def _checked(value: int) -> int:
    if value < 0:
        raise ValueError("it is negative", 7)
    return value + 1


def test_a_call_checks_its_arrays_and_raises_what_the_function_raises() -> None:
    checked = Kernel(_checked, "int64(int64)")
    assert checked(np.int64(2)) == 3
    with pytest.raises(ValueError, match="it is negative") as raised:
        checked(-1)
    assert raised.value.args == ("it is negative", 7)
    with pytest.raises(TypeError, match="float64 array"):
        COUNT_LEADING(np.zeros(3), np.zeros(3, np.int64))
    with pytest.raises(TypeError):
        COUNT_LEADING(np.zeros((2, 2), np.int64)[:, 0], np.zeros(3, np.int64))


def test_sources_that_were_edited_meanwhile_are_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("hpctwin.engine.agents.delays.no_such_function", "void(Sim)")
    library.source_key()
    monkeypatch.delitem(sys.modules, "hpctwin.engine.agents.delays", raising=False)
    monkeypatch.setattr(library, "_sources", lambda: iter([Path(__file__)]))
    with pytest.raises(SimulationError, match="edited or replaced since this process began"):
        kernel.compiled()
