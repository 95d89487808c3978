"""Optimization and machine code of kernels, by LLVM alone: processes that do this load no Numba.

Run as a program, it turns kernels from its standard input into object files until the input ends.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from contextlib import suppress
from functools import cache
from platform import libc_ver
from typing import Any

from llvmlite import binding as llvm

__all__ = ["internalize", "load_object", "machine_code", "optimize"]

_OLD = {name: f"{name}@GLIBC_2.2.5" for name in ("exp", "exp2", "log", "log2", "pow")}
"""Versions that all of glibc's releases for x86-64 have, instead of the newest."""
_OLD_VERSIONS = "".join(f'module asm ".symver {new},{old}"\n' for new, old in _OLD.items())


def internalize(module: Any) -> None:
    """Mark the parts of a kernel as functions that no other module calls.

    A part is then inlined into its only caller, and the check for its errors disappears if it
    cannot fail. This saves a tenth of the run time.

    Args:
        module: Module of a whole kernel.
    """
    for function in module.functions:
        if function.linkage == llvm.Linkage.linkonce_odr and not function.is_declaration:
            function.linkage = llvm.Linkage.internal


def optimize(module: Any, machine: Any, *, unrolled: bool) -> None:
    """Optimize a whole kernel for a target machine.

    Args:
        module: Module of the kernel.
        machine: LLVM's target machine.
        unrolled: Whether to unroll loops.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.loop_unrolling = unrolled
    # Interleaving makes loops with few iterations longer, and does not speed up the loops over
    # plans.
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def machine_code(bitcode: bytes, level: str, unrolled: bool) -> bytes:
    """Return the object file of a kernel.

    Args:
        bitcode: The kernel before it is optimized.
        level: Processor level, see `library.processor_level`.
        unrolled: Whether to unroll loops.
    """
    cpu = level if level.startswith("x86-64") else "generic"
    machine = _target().create_target_machine(cpu=cpu, opt=3, reloc="pic", codemodel="default")
    module = llvm.parse_bitcode(bitcode)
    optimize(module, machine, unrolled=unrolled)
    if level.startswith("x86-64") and libc_ver()[0] == "glibc":
        module.link_in(llvm.parse_assembly(_OLD_VERSIONS))
    found: bytes = machine.emit_object(module)
    return found


@cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    process = ctypes.CDLL(None)
    for new, old in _OLD.items():  # LLVM's loader knows no versions
        llvm.add_symbol(old, ctypes.cast(process[new], ctypes.c_void_p).value)
    return llvm.Target.from_default_triple()


_LOADED: list[Any] = []
"""Owners of the loaded code, which must live as long as the process."""


def load_object(code: bytes, name: str) -> int:
    """Load an object file into this process; return the address of one of its functions.

    Args:
        code: Content of the object file.
        name: Name of the function.
    """
    machine = _target().create_target_machine(codemodel="jitdefault", jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED.append(engine)
    address: int = engine.get_function_address(name)
    return address


if __name__ == "__main__":
    with suppress(EOFError):
        while True:
            pickle.dump(machine_code(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
            sys.stdout.buffer.flush()
