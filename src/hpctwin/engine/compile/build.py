"""The build of the library of compiled code.

Numba turns each function into LLVM's form once, in this process. Other processes optimize kernels
and translate them to machine code meanwhile, for each processor level. A C compiler links them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from hpctwin.engine.compile.compiler import lowered
from hpctwin.engine.compile.jit import Compiled
from hpctwin.engine.compile.library import library_name, symbol_of
from hpctwin.engine.compile.linking import all_parts
from hpctwin.engine.compile.machine_code import internalize, machine_code
from hpctwin.errors import SimulationError

__all__ = ["build_libraries", "c_compiler"]

_C_NAMES = {"numba_ldexp": "ldexp"}
"""Functions of the C library by the names under which Numba calls them."""


def c_compiler() -> str | None:
    """Return the C compiler that links libraries; None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def build_libraries(
    functions: Iterable[Compiled],
    folder: Path,
    levels: Iterable[str],
    report: Callable[[int, int], None] = lambda done, whole: None,
) -> list[Path]:
    """Build a library for each processor level.

    Args:
        functions: All kernels and orderings of the library.
        folder: Folder of the libraries.
        levels: Processor levels, see `library.processor_level`.
        report: Called with the number of object files that are ready, and of all.

    Returns:
        The libraries.

    Raises:
        SimulationError: There is no C compiler, or it fails.
    """
    compiler = c_compiler()
    if compiler is None:
        raise SimulationError("no C compiler links the engine: install one, or set CC to one")
    functions, levels = list(functions), list(levels)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        objects = _objects(functions, levels, Path(work), report)
        return [_linked(compiler, objects[level], folder / library_name(level)) for level in levels]


def _objects(
    functions: list[Compiled], levels: list[str], folder: Path, report: Callable[[int, int], None]
) -> dict[str, list[Path]]:
    """Write the object files; return those of each processor level."""
    objects: dict[str, list[Path]] = {level: [] for level in levels}
    waiting: dict[Future[bytes], Path] = {}

    def write_ready() -> None:
        for ready in [one for one in waiting if one.done()]:
            waiting.pop(ready).write_bytes(ready.result())
        written = sum(map(len, objects.values())) - len(waiting)
        report(written, len(functions) * len(levels))

    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        try:
            for number, function in enumerate(functions):
                bitcode, unrolled = _bitcode(function), function.kind != "short kernel"
                for level in levels:
                    path = folder / f"{number}-{level}.o"
                    waiting[pool.submit(machine_code, bitcode, level, unrolled=unrolled)] = path
                    objects[level].append(path)
                write_ready()
            while waiting:
                wait(waiting, return_when=FIRST_COMPLETED)
                write_ready()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return objects


def _bitcode(function: Compiled) -> bytes:
    """Return a whole kernel in LLVM's form, with its name in the library, not yet optimized."""
    form = lowered(function.function, function.signature)
    module: Any = form.library._final_module.clone()
    for part in all_parts(form.library._linking_libraries):
        module.link_in(part._get_module_for_linking(), preserve=True)
    name = symbol_of(function.function)
    module.get_function(form.fndesc.llvm_func_name).name = name
    internalize(module)
    for other in module.functions:
        if other.is_declaration and other.name in _C_NAMES:
            other.name = _C_NAMES[other.name]
    for value in module.global_variables:
        if not value.is_declaration:
            value.linkage = llvm.Linkage.internal
    found: bytes = module.as_bitcode()
    return found


def _linked(compiler: str, objects: list[Path], path: Path) -> Path:
    """Link a library; it appears under its name when it is complete."""
    unfinished = objects[0].with_name(path.name)
    command = [compiler, "-shared", "-Wl,-z,defs", "-o", unfinished, *objects, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SimulationError(f"{compiler} cannot link the engine: {done.stderr.strip()}")
    unfinished.replace(path)
    return path
