"""Puts the manual page into the wheel, made of the commands' own help; see ``hpctwin.cli.manual``.

With HPCTWIN_LIBRARIES=FOLDER, where ``contrib/libraries.py`` built the engine's libraries, the wheel is
one for this platform and contains them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _platform(libraries: list[Path]) -> str:
    """Return the platform tag of a wheel with these libraries: glibc's oldest version that will do."""
    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    needed = [
        tuple(map(int, version))
        for path in libraries
        for version in re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
    ]
    if not needed:
        return own
    # PyPI knows no older version.
    major, minor = max(*needed, (2, 17))
    return own.replace("linux", f"manylinux_{major}_{minor}", 1)


class ManualPage(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the page before a wheel is made of it, and clears up after."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the page where ``man`` looks beside the program."""
        self._folder = Path(tempfile.mkdtemp(prefix="hpctwin-man-"))
        if version == "editable":
            return  # what is edited is not what the page would say
        sys.path.insert(0, str(Path(self.root, "src")))
        from hpctwin.cli.app import app
        from hpctwin.cli.manual import manual_page

        page = self._folder / "hpctwin.1"
        page.write_text(manual_page(app), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/hpctwin.1"
        if folder := os.environ.get("HPCTWIN_LIBRARIES"):
            self._add_libraries(Path(folder), build_data)

    def _add_libraries(self, folder: Path, build_data: dict[str, Any]) -> None:
        """Make it a wheel for this platform, with libraries that match its sources."""
        from hpctwin.engine.compile.library import source_key

        found = sorted(folder.resolve().glob(f"engine-*-{source_key()}.so"))
        if not found:
            raise RuntimeError(
                f"{folder} has no library of these sources: python contrib/libraries.py {folder}"
            )
        for path in found:
            build_data["force_include"][str(path)] = f"hpctwin/engine/library/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(found)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written besides the wheel."""
        shutil.rmtree(self._folder)
