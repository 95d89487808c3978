"""A private Redis on a socket of its own, for tests that stop it and begin it again."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from tests.conftest import lacking

__all__ = ["RedisServer"]


class RedisServer:
    """Starts and stops one redis-server process in a folder."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            lacking("redis-server is not installed (Debian: apt-get install redis-server)")
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        self.process = subprocess.Popen(
            [
                "redis-server", "--port", "0", "--unixsocket", str(self.socket), "--dir",
                str(self.folder), "--appendonly", "yes", "--appendfsync", "always", "--save", "",
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        client = self.client()
        until = time.monotonic() + 180
        while True:
            try:
                client.ping()
            except Exception:
                if time.monotonic() > until:
                    raise TimeoutError("redis-server does not answer") from None
                time.sleep(0.02)
            else:
                client.close()
                return

    def end(self, *, forget: bool = False) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(180)
            self.process = None
        if forget:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def client(self):
        import redis

        return redis.Redis(unix_socket_path=str(self.socket))
