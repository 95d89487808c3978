"""A page over the journal of a twin that runs in the same process, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from hpctwin.web.server.api import application
from hpctwin.web.server.gate import Access, Gate, Token
from hpctwin.web.views.source import Source
from tests.twin.test_runner import Setting

LOOKS = Token("ben", "viewer", b"b" * 24)
ACTS = Token("ana", "operator", b"a" * 24)
ACCESS = Access((LOOKS, ACTS), frozenset({"localhost"}))


def bearer(token: Token) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.secret.decode()}"}


class Page:
    """A twin, what is read of it, and a client of the page with the token of somebody who looks."""

    def __init__(
        self, folder: Path, access: Access = ACCESS, running: bool = True, **config: Any
    ) -> None:
        self.setting = Setting(folder, **config)
        for number in range(1, 6):
            self.setting.submit(number, nodes=1 + number % 4 * 2)
        self.setting.until(lambda: self.decided and bool(self.setting.running()) is running)
        self.tell()
        self.source = Source(folder / "j.sqlite")
        self.access = access
        self.switch = folder / "stop"

    @property
    def decided(self) -> bool:
        """Whether the twin has seen all that has happened, and decided."""
        twin = self.setting.twin
        seen = twin.core.mirror.seq == self.setting.cluster.snapshot().seq
        return seen and twin.decision is not None and not twin.core.opportunity

    def tell(self) -> None:
        """The twin writes down how it stands."""
        self.setting.twin.status_writer.due = 0.0
        self.setting.turn(1)

    def look(self) -> None:
        """The page reads what is new."""
        with closing(self.source.journal()) as journal:
            self.source.turn(journal)

    @contextmanager
    def client(self, token: Token | None = LOOKS) -> Iterator[TestClient]:
        app = Gate(application(self.source, kill_switch=self.switch, every_s=0.02), self.access)
        headers = {} if token is None else bearer(token)
        with TestClient(app, base_url="http://localhost", headers=headers) as client:
            yield client

    def close(self) -> None:
        self.setting.twin.end()
        self.setting.journal.close()
