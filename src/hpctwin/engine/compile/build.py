"""The build of compiled code: object files of functions, and the library linked from them.

Numba turns each function into LLVM's form once, in this process. Other processes optimize kernels
and translate them to machine code meanwhile, for each processor level; at the end this process helps
them. Object files are kept, and only those of kernels that have changed are made again. A command
that needs some kernels makes and loads their object files. A C compiler links all to a library.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from hpctwin.engine.compile import machine_code as translator
from hpctwin.engine.compile.compiler import CACHE_DIR, bitcode_of, warn_not_kept
from hpctwin.engine.compile.kernel_key import OBJECTS, Source, code_size, object_path
from hpctwin.engine.compile.library import library_name, processor_level
from hpctwin.engine.compile.machine_code import machine_code
from hpctwin.errors import SimulationError
from hpctwin.model.files import write_atomically

__all__ = ["Progress", "build_libraries", "build_objects", "c_compiler"]

_KEPT_S = 30 * 86400
_MIN_SHARE = 0.05
"""Share of the work that must be done before the rest can be estimated."""
_BUILDING = threading.Lock()

Report = Callable[[float], None]
"""Called with the share of the work that is done."""


class Buildable(Source, Protocol):
    """A function of `jit.Compiled`."""

    @property
    def built_in(self) -> bool: ...
    def load(self) -> bool: ...
    def take(self, code: bytes) -> None: ...
    def compiled(self) -> None: ...
    def errors_explained(self) -> AbstractContextManager[None]: ...


class Progress:
    """Messages on standard error about kernels that are compiled, at most one per second."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._said = self._begin
        how = "in each process" if CACHE_DIR is None else "once after installing"
        self._say(f"{how} …")

    def __call__(self, share: float) -> None:
        """Say how long the rest will take, at the pace so far."""
        now = time.monotonic()
        if _MIN_SHARE < share < 1 and now - self._said >= 1:
            self._said = now
            left_s = (now - self._begin) * (1 - share) / share
            self._say(f"{100 * share:.0f} %, ~{max(1, round(left_s))} s left")

    def _say(self, what: str) -> None:
        with suppress(OSError, AttributeError, ValueError):
            print(f"hpctwin: compiling the engine, {what}", file=sys.stderr, flush=True)


def build_objects(functions: Iterable[Buildable], report: Report = lambda share: None) -> None:
    """Make functions ready: built-in ones together, with all processors; others one by one.

    Args:
        functions: The functions.
        report: Called with the share that is done, of built-in functions.

    Raises:
        PolicyError: A kernel cannot be compiled.
    """
    with _BUILDING:
        missing = [one for one in functions if not one.load()]
        wanted = {object_path(one): one for one in missing if one.built_in}

        def take(path: Path, code: bytes) -> None:
            wanted[path].take(code)
            if CACHE_DIR is not None:
                try:
                    _write(path, code)
                except OSError as error:
                    warn_not_kept(path.parent, error)

        level = processor_level()
        _make_objects([(one, {level: path}) for path, one in wanted.items()], take, report)
    for one in missing:
        one.compiled()


def c_compiler() -> str | None:
    """Return the C compiler that links libraries; None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def build_libraries(
    functions: Iterable[Buildable],
    folder: Path,
    levels: Iterable[str],
    report: Report = lambda share: None,
) -> list[Path]:
    """Build a library for each processor level.

    Args:
        functions: All kernels and orderings of the library.
        folder: Folder of the libraries.
        levels: Processor levels, see `library.processor_level`.
        report: Called with the share that is done.

    Returns:
        The libraries.

    Raises:
        SimulationError: There is no C compiler, or it fails.
    """
    compiler = c_compiler()
    if compiler is None:
        raise SimulationError("no C compiler links the engine: install one, or set CC to one")
    functions, levels = list(functions), list(levels)
    objects = [{level: object_path(one, level, folder) for level in levels} for one in functions]
    _forget_unused(folder, [path for paths in objects for path in paths.values()])
    missing = [
        {level: path for level, path in paths.items() if not path.exists()} for paths in objects
    ]
    with _BUILDING:
        _make_objects(zip(functions, missing, strict=True), _write, report)
    return [
        _linked(compiler, [paths[level] for paths in objects], folder / library_name(level))
        for level in levels
    ]


def _write(path: Path, code: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(code)


def _forget_unused(folder: Path, used: Iterable[Path]) -> None:
    """Remove what no command has used for a month."""
    for path in used:
        if path.exists():
            path.touch()
    for path in [*folder.glob("engine-*.so"), *folder.glob(f"{OBJECTS}/*.o")]:
        if path.stat().st_mtime < time.time() - _KEPT_S:
            path.unlink(missing_ok=True)


def _make_objects(
    wanted: Iterable[tuple[Buildable, Mapping[str, Path]]],
    take: Callable[[Path, bytes], None],
    report: Report,
) -> None:
    """Make object files.

    Args:
        wanted: Functions, with the paths of their object files by processor level.
        take: Called with the path and the content of each.
        report: Called with the share that is done.
    """
    wanted = [(one, paths) for one, paths in wanted if paths]
    waiting: dict[Future[bytes], tuple[Path, float, tuple[Any, ...]]] = {}
    sizes = [code_size(one) for one, _ in wanted]
    # Half of the work on a function is done in this process, as measured.
    whole = float(
        sum(size * (1 + len(paths)) for size, (_, paths) in zip(sizes, wanted, strict=True))
    )
    done = 0.0

    def take_ready() -> None:
        nonlocal done
        for ready in [one for one in waiting if one.done()]:
            path, size, given = waiting.pop(ready)
            # A process that failed is not the only way to the code.
            failed = ready.cancelled() or ready.exception() is not None
            take(path, machine_code(*given) if failed else ready.result())
            done += size
            report(done / whole)

    objects = sum(len(paths) for _, paths in wanted)
    with _processes(min(os.cpu_count() or 1, objects) - 1) as submit:
        for size, (function, paths) in zip(sizes, wanted, strict=True):
            with function.errors_explained():
                bitcode = bitcode_of(function.function, function.signature)
            done += size
            report(done / whole)
            for level, path in paths.items():
                given = bitcode, level, function.kind != "short kernel"
                waiting[submit(*given)] = path, size, given
            take_ready()
        while waiting:
            # What no process has begun is done here.
            if not any(one.cancel() for one in reversed(waiting)):
                wait(waiting, return_when=FIRST_COMPLETED)
            take_ready()


@contextmanager
def _processes(number: int) -> Iterator[Callable[..., Future[bytes]]]:
    """Start processes that translate to machine code when they are needed; end them.

    They run a separate program: `multiprocessing` would import the script of the user again.

    Yields:
        Function that submits the arguments of `machine_code`. Its results never begin if ``number``
        is 0.
    """
    if number < 1:
        yield lambda *given: Future()
        return
    started: list[subprocess.Popen[bytes]] = []
    own = threading.local()

    def start() -> None:
        own.process = subprocess.Popen(
            [sys.executable, "-P", translator.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(own.process)

    def translate(*given: Any) -> bytes:
        if not hasattr(own, "process"):
            start()
        pickle.dump(given, own.process.stdin)
        own.process.stdin.flush()
        code: bytes = pickle.load(own.process.stdout)
        return code

    pool = ThreadPoolExecutor(number, "compile")
    try:
        yield lambda *given: pool.submit(translate, *given)
    finally:
        for process in started:
            process.kill()
        pool.shutdown(cancel_futures=True)
        for process in started:
            process.communicate()


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
