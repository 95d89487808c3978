"""One twin acts on a cluster: whoever has its lock, until he dies."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hpctwin.errors import UnreachableError
from hpctwin.model.files.file_lock import FileLock

__all__ = ["ClusterLock"]


class ClusterLock:
    """What a twin must have before it acts on a cluster; any number of twins may observe.

    On this host it is a name in the kernel, made of what the cluster says of itself: two configurations,
    two users, two journals make no difference, it is gone with the process, and nobody can delete it.
    Between hosts, and containers with a network of their own, it is a lock file that they share.

    Args:
        cluster: says which cluster; may raise `UnreachableError`.
        files: lock files that must be had too.
    """

    def __init__(self, cluster: Callable[[], str], files: Sequence[Path] = ()) -> None:
        self._cluster = cluster
        self._files = [FileLock(path) for path in files]
        self._name: socket.socket | None = None

    def take(self) -> str | None:
        """Take it, if no other twin has it; why not, in words, if that fails."""
        if self.held():
            return None
        why_not = self._take_name()
        for file in self._files:
            if why_not is None:
                why_not = file.take()
        if why_not is not None:
            # Half of it would keep another twin out that could have the whole.
            self.release()
        return why_not

    def held(self) -> bool:
        """Whether it is ours."""
        return self._name is not None and all(file.held() for file in self._files)

    def release(self) -> None:
        """Let another twin act."""
        if self._name is not None:
            self._name.close()
            self._name = None
        for file in self._files:
            file.release()

    def _take_name(self) -> str | None:
        if self._name is not None:
            return None
        try:
            cluster = self._cluster()
        except UnreachableError as error:
            return f"which cluster this is, is not known: {error}"
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Names that begin with a zero byte are no files; only Linux has them.
        if sys.platform == "linux":
            address = b"\0hpctwin/" + hashlib.sha256(cluster.encode()).hexdigest().encode()
            try:
                name.bind(address)
                name.listen(128)
            except OSError:
                name.close()
                return f"{_holder(address)} acts on this cluster ({cluster})"
        self._name = name
        return None


def _holder(address: bytes) -> str:
    """Who has a name, as the kernel says."""
    if sys.platform != "linux":
        return "another twin"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(address)
            size = struct.calcsize("3i")
            said = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        except OSError:
            return "another twin"
    pid, uid, _ = struct.unpack("3i", said)
    if pid == os.getpid():
        return "another twin in this process"
    return f"another twin (process {pid} of user {uid})" if pid else "another twin in a container"
