"""Build the engine's libraries for a wheel of this platform: python contrib/libraries.py FOLDER.

Then build the wheel with HPCTWIN_LIBRARIES=FOLDER (see hatch_build.py).
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from hpctwin.cli.installation import library_functions
from hpctwin.engine.compile.build import build_libraries
from hpctwin.engine.compile.library import processor_level


def main(folder: Path) -> None:
    """Build a library for each processor level of this platform."""
    on_x86 = platform.machine() == "x86_64"
    levels = ["x86-64-v2", "x86-64-v3"] if on_x86 else [processor_level()]

    def tell(share: float) -> None:
        print(f"\r{100 * share:.0f} %", end="", file=sys.stderr, flush=True)

    for path in build_libraries(library_functions(), folder, levels, tell):
        print(f"{path} {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
