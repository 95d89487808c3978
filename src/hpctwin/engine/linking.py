"""How kernels are put together of their parts, and which of Numba's steps they go through.

Numba links a function into each function that calls it, and optimizes and translates what comes out at
each step of the way up. A kernel of a hundred parts is so translated dozens of times, and only the last
time counts. Here the parts are kept as they are until a kernel is made of them, once.

Of Numba's steps between byte code and machine code, many are for what kernels have not: functions within
functions, contexts, lists of mixed types, what is written as an array. After most of them Numba looks
through the whole function once more. A function goes through the rest only, unless that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)

from hpctwin.engine.interrupts import end_if_interrupted

__all__ = ["KernelCompiler", "PartCompiler"]


class _NoEnvironment:
    """A code generator that parts, which have no address, are not told to."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only functions that can be called from Python have one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _Part(JITCodeLibrary):
    """The code of a function that only kernels call."""

    @property
    def codegen(self) -> Any:
        return _NoEnvironment(self._codegen)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._finalized = True
        return 0


def _all_parts(libraries: Iterable[Any]) -> list[Any]:
    """Libraries and those their parts are linked to, each once."""
    found: dict[Any, None] = {}
    left = list(libraries)
    while left:
        library = left.pop()
        if library not in found:
            found[library] = None
            if isinstance(library, _Part):
                left += library._linking_libraries
    return list(found)


class _Whole(JITCodeLibrary):
    """The code of a kernel, made of its parts."""

    def finalize(self) -> None:
        self._linking_libraries = _all_parts(self._linking_libraries)
        super().finalize()


STEPS = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
)
"""What a function goes through first, in Numba's order; through all of Numba's if that fails."""


def _compiler(library: type[Any]) -> type[Compiler]:
    class Chosen(Compiler):
        def define_pipelines(self) -> list[PassManager]:
            steps = PassManager("engine")
            for step in STEPS:
                steps.add_pass(step, step.__name__)
            steps.finalize()
            return [steps, *super().define_pipelines()]

        def compile_extra(self, function: Callable[..., Any]) -> Any:
            end_if_interrupted()
            made = library(self.state.targetctx.codegen(), function.__qualname__)
            made.enable_object_caching()
            self.state.library = made
            # That the first way did not do is no fault where the second did.
            return super().compile_extra(function)._replace(typing_error=None)

    return Chosen


PartCompiler, KernelCompiler = _compiler(_Part), _compiler(_Whole)
