"""Debian's other Slurms, each unpacked with its own libraries into a folder that tests start it from.

Run as a program it makes them: ``python3 tests/rms/slurm_roots.py [VERSION …]``. It needs Python's standard
library, apt and dpkg, and a Debian mirror in apt's configuration. It installs nothing and needs no root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SUITES = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Each version of Slurm that tests run, and the suite of Debian that has it."""
VERSIONS = tuple(SUITES)
NEWEST = VERSIONS[-1]
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "patchelf")
PATH = os.environ.get("PATH", os.defpath)
"""The search path of this process before a cluster puts its own commands in front."""
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class UnavailableError(Exception):
    """A Slurm that this machine cannot get; the text says what is missing."""


def kept() -> Path:
    """The folder that keeps the roots between runs; HPCTWIN_SLURMS names another.

    Jobs of all users can read the one of root.
    """
    if given := os.environ.get("HPCTWIN_SLURMS"):
        return Path(given)
    if os.getuid() == 0:
        return Path("/var/cache/hpctwin/slurm")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpctwin" / "slurm"


@cache
def installed() -> str | None:
    """The version of the Slurm that is installed on this machine, such as "22.05"."""
    program = shutil.which("slurmctld", path=PATH)
    if program is None:
        return None
    said = subprocess.run([program, "-V"], capture_output=True, text=True).stdout
    found = re.search(r"\d+\.\d+", said)
    return found and found[0]


def stands_for(version: str, said: str) -> bool:
    """Whether what ``slurmctld -V`` prints is of a version; a newer one stands for the newest.

    Debian's unstable suite moves on, and tests go on with what it has.
    """
    found = re.search(r"\d+\.\d+", said)
    return bool(found) and (found[0] == version or (version == NEWEST and found[0] > version))


def root(version: str) -> Path | None:
    """The folder of a version; None for the one that is installed on this machine.

    Raises:
        UnavailableError: This machine has no such Slurm.
    """
    if installed() == version:
        return None
    folder = kept() / version
    if folder.is_dir():
        return folder
    why = kept() / f"{version}.failed"
    raise UnavailableError(
        f"Slurm {version} is not in {kept()}; python3 tests/rms/slurm_roots.py {version} puts it there"
        + (f" (last time: {why.read_text().strip()})" if why.exists() else "")
    )


def bin_folder(version: str) -> Path | None:
    """The folder of a version's commands and daemons; None for the one that is installed."""
    folder = root(version)
    return folder and folder / "bin"


def plugin_folder(version: str) -> Path | None:
    """The folder of a version's plugins; None for the one that is installed."""
    folder = root(version)
    return folder and _plugins(folder)


def make(version: str) -> Path:
    """Download and unpack a version; a folder that is there stays as it is."""
    kept().mkdir(parents=True, exist_ok=True)
    folder, why = kept() / version, kept() / f"{version}.failed"
    if folder.is_dir():
        return folder
    try:
        # On the same disk: the folder appears complete, or not at all.
        with tempfile.TemporaryDirectory(dir=kept(), prefix=f"{version}-") as place:
            made = Path(place) / "root"
            _unpack(version, Path(place), made)
            _relocate(made, folder)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    except UnavailableError as error:
        why.write_text(f"{error}\n")
        raise
    why.unlink(missing_ok=True)
    return folder


def _unpack(version: str, place: Path, made: Path) -> None:
    """Have apt find, verify and download the packages with all that they depend on; unpack them."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(
                f"{program} is not installed: only Debian's packages are known here"
            )
    suite = SUITES[version]
    for name in ("state/lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True)
    # An empty list of installed packages: else apt would leave out what this machine has.
    (place / "state" / "status").touch()
    signed = f" [signed-by={KEYS}]" if KEYS.exists() else ""
    (place / "sources.list").write_text(f"deb{signed} {_mirror()} {suite} main\n")
    options = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": place / "state",
        "Dir::State::status": place / "state" / "status",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root" if os.getuid() == 0 else "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    apt = ["apt-get", "-q", "-y", *(f"-o{key}={value}" for key, value in options.items())]
    _run([*apt, "update", "--error-on=any"], f"apt cannot read {suite} from the Debian mirror")
    _run(
        [*apt, "install", "--download-only", "--no-install-recommends", *PACKAGES],
        f"apt cannot get the packages of Slurm from {suite}",
    )
    made.mkdir()
    for package in sorted((place / "cache" / "archives").glob("*.deb")):
        to = made / ("slurm" if package.name.startswith("slurm") else "system")
        _run(["dpkg-deb", "-x", str(package), str(to)], f"{package.name} cannot be unpacked")
    system = made / "system"
    if (system / "lib").is_dir():
        # Packages of older suites have files in /lib, which is /usr/lib.
        shutil.copytree(system / "lib", system / "usr/lib", symlinks=True, dirs_exist_ok=True)
    (made / "bin").mkdir()
    for path in made.glob("slurm/usr/*bin/*"):
        # Debian's alternatives would give them their names.
        path.rename(made / "bin" / path.name.removesuffix("-wlm"))
    said = _run([*_loaded(made), str(made / "bin" / "slurmctld"), "-V"], "slurmctld -V fails")
    if not stands_for(version, said):
        raise UnavailableError(
            f"{suite} has {said.strip()} now, not {version}: correct SUITES in {__file__}"
        )


def _mirror() -> str:
    """Where this machine's apt gets Debian's packages from."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run([*asked, "Label: Debian"], capture_output=True, text=True)
    if not done.stdout:
        raise UnavailableError("apt knows no mirror of Debian; apt-get update may tell it")
    return done.stdout.split()[0]


def _relocate(made: Path, folder: Path) -> None:
    """Have Slurm's programs and plugins load the libraries beside them, wherever the folder lies.

    Programs would start with this machine's loader and C library. What they start in turn, such as jobs, is
    this machine's own and must not see these libraries: so the paths are written into the files.
    """
    loader = _loader(made)
    final = [str(folder / path.relative_to(made)) for path in (loader, *_libraries(made))]
    patch = [*_loaded(made), str(made / "system/usr/bin/patchelf")]
    patch += ["--force-rpath", "--set-rpath", ":".join(final[1:])]
    programs = [str(path) for path in (made / "bin").iterdir() if _is_elf(path)]
    _run([*patch, "--set-interpreter", final[0], *programs], "patchelf fails")
    plugins = [str(path) for path in _plugins(made).iterdir() if _is_elf(path)]
    _run([*patch, *plugins], "patchelf fails")
    for path in [*made.glob("system/[!u]*"), *made.glob("system/usr/[!l]*")]:
        shutil.rmtree(path)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return not path.is_symlink() and file.read(4) == b"\x7fELF"


def _libraries(made: Path) -> list[Path]:
    """The folders of libraries that Slurm's programs load."""
    return [
        *(path.parent for path in made.glob("system/usr/lib/*-linux-*/libc.so.6")),
        _plugins(made),
    ]


def _plugins(made: Path) -> Path:
    (found,) = made.glob("slurm/usr/lib/*-linux-*/slurm-wlm")
    return found


def _loader(made: Path) -> Path:
    found = [path for path in made.glob("system/usr/lib*/**/ld-linux*.so.*") if path.is_file()]
    if not found:
        raise UnavailableError(
            "libc6 has no loader, /usr/lib…/ld-linux….so, where it is looked for"
        )
    return found[0]


def _loaded(made: Path) -> list[str]:
    """The beginning of a command that runs a program with the libraries of a root that is not patched yet."""
    return [str(_loader(made)), "--library-path", ":".join(map(str, _libraries(made)))]


def _run(command: list[str], fault: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise UnavailableError(f"{fault}: {said}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Make Debian's other Slurms available to tests.")
    parser.add_argument("version", nargs="*", metavar="VERSION", help=", ".join(VERSIONS))
    parser.add_argument("--again", action="store_true", help="Replace those that are there.")
    given = parser.parse_args()
    if unknown := [one for one in given.version if one not in SUITES]:
        parser.error(f"VERSION: {unknown[0]!r} is not one of {', '.join(VERSIONS)}")
    os.umask(0o022)  # other users' jobs run these programs
    failed = 0
    for version in given.version or VERSIONS:
        if installed() == version:
            print(f"Slurm {version}: installed on this machine")
            continue
        if given.again:
            shutil.rmtree(kept() / version, ignore_errors=True)
        try:
            folder = make(version)
            said = _run([str(folder / "bin" / "slurmctld"), "-V"], "slurmctld -V fails").strip()
            print(f"Slurm {version}: {said} in {folder}")
            if version not in said:
                print(f"{said} is newer than the recordings: see CONTRIBUTING.md, A new Slurm")
        except UnavailableError as error:
            print(f"Slurm {version}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
