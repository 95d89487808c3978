"""Python files and modules of users, and whether they are safe to run.

Settings name Python files (``FILE.py:NAME``), modules (``module:NAME``), and the commands of a
resource manager. These run with the rights of the user who runs hpctwin. So they are used only if
no other user can have written them, as sshd and sudo do with theirs. The module also creates files
that only their owner may read.
"""

from __future__ import annotations

import grp
import importlib.util
import os
import pwd
import stat
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hpctwin.errors import ConfigError, PolicyError, UnknownNameError


def load_module(name: str) -> ModuleType:
    """Run a file, or import a module.

    Args:
        name: ``FILE.py``, or a module's name as in an import.

    Raises:
        PolicyError: It does not exist, or fails.
    """
    path = Path(name)
    try:
        if path.suffix != ".py":
            return import_module(name)
        spec = spec_from_file_location(f"hpctwin_user_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise PolicyError(f"{path}: no such file")
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except PolicyError:
        raise
    except SyntaxError as error:
        where = name if error.lineno is None else f"{error.filename or name}, line {error.lineno}"
        raise PolicyError(f"{where}: not valid Python: {error.msg}") from error
    except ModuleNotFoundError as error:
        lacking = (
            "no such module"
            if error.name == name
            else f"it imports {error.name!r}, which is not installed"
        )
        raise PolicyError(f"{name}: {lacking}") from error
    except (Exception, SystemExit) as error:  # any error of a user's code when it is loaded
        raise PolicyError(f"{name} fails to load: {error!r}") from error
    return module


def named_in(module: ModuleType, name: str, where: str, also: Iterable[str] = ()) -> Any:
    """Return the object with a name in a module.

    Args:
        module: Module from `load_module`.
        name: Name of a function, or of what a decorator made of it.
        also: Further names that could be meant, other than its functions.

    Raises:
        UnknownNameError: There is none; the message lists the known names.
    """
    if not hasattr(module, name):
        raise UnknownNameError(f"function in {where}", name, {*functions_in(module), *also})
    return getattr(module, name)


def functions_in(module: ModuleType) -> list[str]:
    """Return the names of the module's own callables."""
    return sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    )


def make_private(path: Path) -> None:
    """Create an SQLite file if it is missing; it is for its owner only.

    The same holds for the files that SQLite puts next to it (``-wal`` and ``-shm``).

    Raises:
        OSError: It cannot be created, or belongs to another user.
    """
    # SQLite gives the files next to it the mode of this one.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)


MOST_LINKS = 40
"""Linux follows no more symbolic links either."""
_ACL = "system.posix_acl_access"


def check_trusted(path: str | Path) -> None:
    """Reject a file that other users than the current one and root may change.

    This includes replacing it.

    The file and each folder above it, along symbolic links, must belong to the current user, to
    root, or to the user who installed hpctwin. They must not be writable for others. Writable for
    the group is fine if the group is the owner's own (umask 002 with private groups). A folder that
    all may write is fine if it is sticky, such as ``/tmp``: users rename and delete only their own
    files there.

    Args:
        path: File, which must exist.

    Raises:
        ConfigError: It is not trusted; the message names the file or folder, and the remedy.
    """
    try:
        _walk(Path(path), _owners())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def check_module(name: str) -> None:
    """Reject a module that others may write; see `check_trusted`.

    A missing module is ignored.
    """
    parts = name.split(".")
    # Looking for a module runs the packages that it is in: the outermost is checked first.
    for depth in range(1, len(parts) + 1):
        try:
            found = importlib.util.find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError):
            return
        if found is None:
            return
        if found.has_location and found.origin is not None:
            check_trusted(found.origin)


def _walk(named: Path, owners: set[int]) -> None:
    """Check each folder and link on the path, in the system's order."""
    left = list(Path(os.path.abspath(named)).parts)
    here = Path(left.pop(0))
    _check(named, here, os.lstat(here), owners)
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            here = here.parent
            continue
        here = here / part
        about = os.lstat(here)
        _check(named, here, about, owners)
        if not stat.S_ISLNK(about.st_mode):
            continue
        links += 1
        if links > MOST_LINKS:
            raise ConfigError(f"{named}: too many symbolic links")
        to = Path(os.readlink(here))
        left = [*to.parts[1 if to.is_absolute() else 0 :], *left]
        here = Path(to.root) if to.is_absolute() else here.parent


def _owners() -> set[int]:
    """Return the users whose files may run as code.

    These are the current user, root, and the owner of this very file, who could have changed it.
    """
    return {os.geteuid(), 0, os.stat(__file__).st_uid}


def _check(named: Path, here: Path, about: os.stat_result, owners: set[int]) -> None:
    what = "it" if here == Path(os.path.abspath(named)) else str(here)
    if about.st_uid not in owners and not _unmapped_root(here, about.st_uid):
        raise ConfigError(
            f"{named}: its content runs as code, but {what} belongs to {_user(about.st_uid)}: "
            "run as that user, or change the owner to yourself or root (chown)"
        )
    if stat.S_ISLNK(about.st_mode):
        return  # its own mode means nothing; a user who may change the folder may change the link
    sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    for who, bit in (("others", stat.S_IWOTH), ("its group", stat.S_IWGRP)):
        if not about.st_mode & bit or sticky:
            continue
        if bit == stat.S_IWGRP and _private_group(about) and not _has_acl(here):
            continue
        remedy = f"chmod {'o' if bit == stat.S_IWOTH else 'g'}-w {here}"
        raise ConfigError(
            f"{named}: its content runs as code, but {who} can write {what}; to fix this: {remedy}"
        )


def _private_group(about: os.stat_result) -> bool:
    """Return whether a file's group has no members but the file's owner and root."""
    try:
        owner = pwd.getpwuid(about.st_uid)
        group = grp.getgrgid(about.st_gid)
    except KeyError:
        return False
    # A group does not list the users whose first group it is, so it must have its owner's name too.
    if group.gr_name != owner.pw_name or owner.pw_gid != about.st_gid:
        return False
    return set(group.gr_mem) <= {owner.pw_name, "root"}


def _has_acl(path: Path) -> bool:
    """Return whether an access list gives rights to other users.

    The group's bits show these rights.
    """
    try:
        return _ACL in os.listxattr(path)
    except (OSError, AttributeError):
        return False


def _unmapped_root(path: Path, uid: int) -> bool:
    """Return whether ``/`` belongs to an outside root.

    This is so in a container of an ordinary user.
    """
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
        whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except (OSError, ValueError):
        return False
    return uid == overflow and not whole and path == Path("/")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
