"""``hpctwin warmup`` and ``hpctwin doctor``: the state of the installation."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hpctwin.engine.compile.jit import Compiled

__all__ = ["Finding", "doctor_command", "findings", "library_functions", "warmup_command"]


def warmup_command() -> int:
    """Compile the engine and the orderings now, so that later commands need not wait."""
    from hpctwin.engine.compile.library import checks_bounds, library_path

    path = None if checks_bounds() else library_path()
    if path is not None:
        print(f"ready: the compiled engine is {path}")
        return 0
    from hpctwin.engine.compile.build import build_libraries, build_objects, c_compiler
    from hpctwin.engine.compile.library import cache_folder, processor_level
    from hpctwin.errors import SimulationError

    begin = time.perf_counter()
    print("compiling the engine, once after installing …", flush=True)
    shown = 0

    def tell(share: float) -> None:
        nonlocal shown
        if 10 * share > shown + 1:
            shown = int(10 * share)
            took = time.perf_counter() - begin
            print(f"{10 * shown} % after {took:.0f} s", file=sys.stderr, flush=True)

    functions, folder = library_functions(), cache_folder()
    # Libraries are linked as on Linux.
    if c_compiler() is not None and not checks_bounds() and sys.platform == "linux":
        try:
            (path,) = build_libraries(functions, folder, [processor_level()], tell)
        except (SimulationError, OSError) as error:
            print(f"{error}; commands load functions one by one instead", file=sys.stderr)
    if path is None:
        build_objects(functions, tell)
    print(f"ready after {time.perf_counter() - begin:.1f} s; kept as {path or folder}")
    return 0


def library_functions() -> list[Compiled]:
    """Return the functions that the library of compiled code contains."""
    from hpctwin.engine.compile.jit import Compiled
    from hpctwin.engine.operations.kernel import all_kernels
    from hpctwin.policies import BUILT_IN

    orders = [Compiled(order.function, order.signature) for order in BUILT_IN.values()]
    return [*all_kernels(), *orders]


SERVICES = {
    "Slurm": ("squeue", "sinfo", "scontrol", "sacct"),
    "PBS": ("qstat", "pbsnodes", "qmgr"),
    "Redis": ("redis-server",),
}
"""Services that may run on this host, each with the commands that show it."""

FOR_US = ("dev", "docs", "all")
"""Extras for developers of hpctwin, and the extra that includes all others."""

SECRET = ("HPCTWIN_TOKENS", "HPCTWIN_KEY", "HPCTWIN_REDIS_URL")
"""Environment variables whose values are not shown."""


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Args:
        part: Area: ``system``, ``packages``, ``engine``, ``services``, ``settings``.
        what: Name of the checked item.
        state: ``fine``; ``none`` if it is absent and not required; ``fault``.
        says: Version, path or number; or the error and its solution.
    """

    part: str
    what: str
    state: Literal["fine", "none", "fault"]
    says: str


def doctor_command(*, json: bool = False) -> int:
    """Check the installation for bug reports: versions, compiled code, services, traces.

    The command changes nothing and shows no secrets. Exit code 1 if a requirement of the simulation
    is missing.

    Args:
        json: Print the findings as JSON.
    """
    from textwrap import TextWrapper

    from hpctwin.cli.output import print_json, screen

    found = list(findings())
    if json:
        print_json([asdict(one) for one in found])
    else:
        width, part = screen().width, ""
        for one in found:
            if one.part != part:
                part = one.part
                print(part)
            mark = {"fine": " ", "none": "-", "fault": "!"}[one.state]
            begin = f"{mark} {one.what:18} "
            # A path is not wrapped, so that it can be copied.
            whole = TextWrapper(
                width, begin, " " * len(begin), break_long_words=False, break_on_hyphens=False
            )
            print(whole.fill(one.says))
    return int(any(one.state == "fault" for one in found))


def findings() -> Iterator[Finding]:
    """Yield the results of all checks."""
    yield from _system()
    yield from _packages()
    yield from _engine()
    for name, commands in SERVICES.items():
        places = [place for command in commands if (place := shutil.which(command))]
        if len(places) == len(commands):
            yield Finding("services", name, "fine", f"its commands are in {Path(places[0]).parent}")
        else:
            yield Finding("services", name, "none", f"{', '.join(commands)}: not on the PATH")
    yield from _settings()


def _system() -> Iterator[Finding]:
    import platform

    from hpctwin._version import __version__

    yield Finding("system", "hpctwin", "fine", f"{__version__}, {Path(__file__).parents[1]}")
    yield Finding("system", "Python", "fine", f"{platform.python_version()}, {sys.executable}")
    yield Finding(
        "system", "machine", "fine", f"{platform.platform()}, {os.cpu_count()} processors"
    )


def _packages() -> Iterator[Finding]:
    """Yield required and installed packages; one line per extra for users."""
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        wanted = requires("hpctwin") or []
    except PackageNotFoundError:
        yield Finding("packages", "hpctwin", "none", "not installed; it runs from its sources")
        return
    extras: dict[str, list[str]] = {}
    for requirement in wanted:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"]([^'\"]+)", requirement)
        try:
            says = version(name)
        except PackageNotFoundError:
            says = ""
        if extra is None:
            yield _required(name, says)
        elif extra[1] not in FOR_US:
            extras.setdefault(extra[1], []).append(f"{name} {says}" if says else f"no {name}")
    for extra_name, told in extras.items():
        there = not any(one.startswith("no ") for one in told)
        yield Finding("packages", f"[{extra_name}]", "fine" if there else "none", ", ".join(told))


def _required(name: str, version: str) -> Finding:
    """Return the finding on a required package, without a version if it is missing."""
    from hpctwin.engine.compile.library import library_path

    if version:
        return Finding("packages", name, "fine", version)
    if name == "numba" and library_path() is not None:
        says = "missing: your own orderings and backfills need it (pip install numba)"
        return Finding("packages", name, "none", says)
    return Finding("packages", name, "fault", f"missing: pip install {name}")


def _engine() -> Iterator[Finding]:
    import warnings

    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            from hpctwin.engine.compile.library import cache_folder, library_path
            from hpctwin.engine.operations.kernel import all_kernels

            path = library_path()
            kernels = list(all_kernels())
            ready = sum(kernel.load() for kernel in kernels)
    except ImportError as error:
        yield Finding("engine", "import", "fault", f"{error}")
        return
    folder = cache_folder()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    yield Finding("engine", "library", "fine" if path else "none", str(path or "none is built"))
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if said:
        yield Finding("engine", "cache", "fault", str(said[0].message))
    elif not os.access(nearest, os.W_OK):
        says = f"{nearest} cannot be written: set NUMBA_CACHE_DIR to a folder that can be"
        yield Finding("engine", "cache", "fault", says)
    else:
        yield Finding("engine", "cache", "fine", f"{folder}, {size / 2**20:.1f} MiB")
    how = "" if ready == len(kernels) else "; hpctwin warmup compiles the rest"
    yield Finding("engine", "compiled", "fine", f"{ready} of {len(kernels)} kernels{how}")


def _settings() -> Iterator[Finding]:
    from hpctwin.model.text import count_text

    for name in sorted(set(os.environ) & {"SLURM_CONF", "PBS_CONF_FILE", "NUMBA_CACHE_DIR"}):
        yield Finding("settings", name, "fine", os.environ[name])
    for name in sorted(name for name in os.environ if name.startswith("HPCTWIN_")):
        value = "is set" if name in SECRET else os.environ[name]
        yield Finding("settings", name, "fine", value)
    traces = os.environ.get("HPCTWIN_TRACES")
    if traces:
        files = sum(file.is_file() for file in Path(traces).rglob("*"))
        yield Finding("settings", "traces", "fine" if files else "none", count_text(files, "file"))
