"""The build of the library of compiled code.

Numba turns each function into LLVM's form once, in this process. Other processes optimize kernels
and translate them to machine code meanwhile, for each processor level. A C compiler links them.
Object files are kept, and only those of kernels that have changed are made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from llvmlite import binding as llvm

from hpctwin.engine.compile.compiler import lowered
from hpctwin.engine.compile.jit import Compiled
from hpctwin.engine.compile.kernel_key import kernel_key
from hpctwin.engine.compile.library import library_name
from hpctwin.engine.compile.linking import all_parts
from hpctwin.engine.compile.machine_code import internalize, machine_code
from hpctwin.errors import SimulationError
from hpctwin.model.files import write_atomically

__all__ = ["build_libraries", "c_compiler"]

_OBJECTS = "objects"
_KEPT_S = 30 * 86400
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
    objects = {level: [_object_of(one, level, folder) for one in functions] for level in levels}
    (folder / _OBJECTS).mkdir(parents=True, exist_ok=True)
    _forget_unused(folder, objects)
    _write_objects(functions, objects, report)
    return [_linked(compiler, objects[level], folder / library_name(level)) for level in levels]


def _object_of(function: Compiled, level: str, folder: Path) -> Path:
    return folder / _OBJECTS / f"{kernel_key(function, level)}.o"


def _forget_unused(folder: Path, objects: Mapping[str, list[Path]]) -> None:
    """Remove what no build has used for a month."""
    for path in chain.from_iterable(objects.values()):
        if path.exists():
            path.touch()
    for path in [*folder.glob("engine-*.so"), *folder.glob(f"{_OBJECTS}/*.o")]:
        if path.stat().st_mtime < time.time() - _KEPT_S:
            path.unlink(missing_ok=True)


def _write_objects(
    functions: list[Compiled],
    objects: Mapping[str, list[Path]],
    report: Callable[[int, int], None],
) -> None:
    """Write the object files that are not there yet."""
    waiting: dict[Future[bytes], Path] = {}
    left = {path for paths in objects.values() for path in paths if not path.exists()}
    whole = len(left)

    def write_ready() -> None:
        for ready in [one for one in waiting if one.done()]:
            path = waiting.pop(ready)
            with write_atomically(path) as file:
                file.write(ready.result())
            left.remove(path)
        report(whole - len(left), whole)

    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        try:
            for number, function in enumerate(functions):
                missing = {level: paths[number] for level, paths in objects.items()}
                missing = {level: path for level, path in missing.items() if path in left}
                bitcode = _bitcode(function) if missing else b""
                unrolled = function.kind != "short kernel"
                for level, path in missing.items():
                    ready = pool.submit(machine_code, bitcode, level, unrolled=unrolled)
                    waiting[ready] = path
                write_ready()
            while waiting:
                wait(waiting, return_when=FIRST_COMPLETED)
                write_ready()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _bitcode(function: Compiled) -> bytes:
    """Return a whole kernel in LLVM's form, with its name in the library, not yet optimized."""
    form = lowered(function.function, function.signature)
    module: Any = form.library._final_module.clone()
    for part in all_parts(form.library._linking_libraries):
        module.link_in(part._get_module_for_linking(), preserve=True)
    name = function.symbol
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
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unfinished = Path(folder) / path.name
        command = [compiler, "-shared", "-Wl,-z,defs", "-o", unfinished, *objects, "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SimulationError(f"{compiler} cannot link the engine: {done.stderr.strip()}")
        unfinished.replace(path)
    return path
