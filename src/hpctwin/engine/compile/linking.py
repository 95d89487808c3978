"""How kernels are put together of their parts, and which of Numba's steps they go through.

Numba links a function into each function that calls it, and optimizes and translates what comes out at
each step of the way up, three times over for what counts references, which kernels do not. A kernel of
a hundred parts is so translated dozens of times, and only the last time counts. Here the parts are kept
as they are until a kernel is made of them, and it is optimized once.

Of Numba's steps between byte code and machine code, many are for what kernels have not: functions within
functions, contexts, lists of mixed types, what is written as an array. After most of them Numba looks
through the whole function once more. A function goes through the rest only, unless that fails. And
what a sum of two whole numbers is Numba finds out again for each sum, by trying what it has for sums one
after another; here it is remembered.
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

__all__ = ["KernelCompiler", "PartCompiler", "ShortKernelCompiler"]


class _NoEnvironment:
    """A code generator that parts, which have no address, are not told to."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: only functions that can be called from Python have one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _Unoptimized(JITCodeLibrary):
    """Code that is not optimized by itself."""

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


class _Whole(_Unoptimized):
    """The code of a kernel, made of its parts."""

    unrolled = True

    def finalize(self) -> None:
        self._linking_libraries = _all_parts(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            # Nobody else may call it: it is put into its only caller, and if it cannot fail nobody asks
            # whether it did. A tenth of a run's time.
            if function.linkage == llvm.Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = llvm.Linkage.internal
        if not hasattr(llvm, "create_pipeline_tuning_options"):  # before llvmlite 0.44
            super()._optimize_final_module()
            return
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        options.loop_unrolling = self.unrolled
        # It makes loops that are gone through a few times longer, and those of plans no faster.
        options.loop_interleaving = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)


class _Short(_Whole):
    """The code of a kernel whose loops end soon: unrolled, it takes longer to make and no less to run."""

    unrolled = False


_FOUND: dict[tuple[int, ...], tuple[Any, ...]] = {}
"""What Numba's own functions give for types of arguments, by the ids of all; and these, so that they stay."""


@contextmanager
def _remembering(context: Any) -> Iterator[None]:
    """Let a typing context remember what Numba's own functions give."""
    # While a function is typed, those that it calls are.
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


PartCompiler, KernelCompiler, ShortKernelCompiler = map(_compiler, (_Part, _Whole, _Short))
