"""Linking of kernels from their parts, and the Numba compiler passes they need.

Numba links a function into each function that calls it, and optimizes and translates the result at
each level of the call tree. It optimizes three times to remove reference counting, which kernels do
not use. A kernel of a hundred parts is translated dozens of times this way, and only the last time
counts. Here parts stay unoptimized until a kernel is linked from them, and the kernel is optimized
once.

Many of Numba's passes between byte code and machine code handle features that kernels do not use:
nested functions, contexts, lists of mixed types, array expressions. After most of them Numba scans
the whole function again. A function goes only through the passes that it needs (`STEPS`); if that
fails, it goes through all of Numba's passes.

Numba also infers the type of each sum of two integers again, by trying its implementations of sums
one after another. Here the result is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager, register_pass
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

from hpctwin.engine.compile.interrupts import end_if_interrupted
from hpctwin.engine.compile.machine_code import internalize, optimize

__all__ = ["KernelCompiler", "PartCompiler", "ShortKernelCompiler", "all_parts"]


class _NoEnvironment:
    """A code generator that does not register environments: parts have no address."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only functions that are callable from Python have an environment."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _Unoptimized(JITCodeLibrary):
    """Code that is not optimized on its own."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class _Part(_Unoptimized):
    """The code of a function that only kernels call."""

    @property
    def codegen(self) -> Any:
        return _NoEnvironment(self._codegen)

    def finalize(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._finalized = True
        return 0


def all_parts(libraries: Iterable[Any]) -> list[Any]:
    """Return libraries and all libraries that their parts link to, each once."""
    found: dict[Any, None] = {}
    left = list(libraries)
    while left:
        library = left.pop()
        if library not in found:
            found[library] = None
            if isinstance(library, _Part):
                left += library._linking_libraries
    return list(found)


class _Whole(_Unoptimized):
    """The code of a kernel, linked from its parts."""

    unrolled = True

    def finalize(self) -> None:
        self._linking_libraries = all_parts(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        internalize(self._final_module)
        if hasattr(llvm, "create_pipeline_tuning_options"):
            optimize(self._final_module, self._codegen._tm, unrolled=self.unrolled)
        else:  # before llvmlite 0.44
            super()._optimize_final_module()


class _Short(_Whole):
    """The code of a kernel with short loops, which are not unrolled.

    Unrolling them would slow down compiling and not speed up the run.
    """

    unrolled = False


_FOUND: dict[tuple[int, ...], tuple[Any, ...]] = {}
"""Return types of Numba's functions, by the ids of function and argument types.

The values also hold these objects, so that their ids stay valid.
"""


@contextmanager
def _remembering(context: Any) -> Iterator[None]:
    """Let a typing context remember the return types of Numba's own functions."""
    # Typing a function also types the functions it calls: the outermost call has patched the
    # context.
    if "resolve_function_type" in vars(context):
        yield
        return
    resolve = context.resolve_function_type

    def remembered(function: Any, given: Any, named: Any) -> Any:
        if named or not isinstance(function, types.Function):
            return resolve(function, given, named)
        key = (id(function), *map(id, given))
        if key not in _FOUND:
            found = resolve(function, given, named)
            if found is None:
                return None
            _FOUND[key] = found, function, given
        return _FOUND[key][0]

    context.resolve_function_type = remembered
    try:
        yield
    finally:
        del context.resolve_function_type


@register_pass(mutates_CFG=True, analysis_only=False)
class _TypeInference(NopythonTypeInference):
    _name = "type_inference_remembered"

    def run_pass(self, state: Any) -> Any:
        with _remembering(state.typingctx):
            return super().run_pass(state)


STEPS = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,
    ReconstructSSA,
    _TypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
)
"""The passes that compile a function, in Numba's order.

If they fail, all of Numba's passes run.
"""


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
            # A failure of the short pipeline is no error if the full one succeeded.
            return super().compile_extra(function)._replace(typing_error=None)

    return Chosen


PartCompiler, KernelCompiler, ShortKernelCompiler = map(_compiler, (_Part, _Whole, _Short))
