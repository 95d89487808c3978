"""Names of users, accounts and jobs that a visitor may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from hpctwin.errors import UnknownNameError
from hpctwin.rms.records.records import REASONS

__all__ = ["EVERYTHING", "Visibility"]

V = TypeVar("V", bound=BaseModel)

_NAMES = ("user", "account", "name")
"""Fields of a job that identify a person."""


@dataclass(frozen=True)
class Visibility:
    """Names in other users' jobs that a visitor may see.

    Args:
        user: User of the cluster that the visitor is; empty if none.
        names: Whether the names of other users are shown, too.
    """

    user: str = ""
    names: bool = True

    def shows(self, user: str | None) -> bool:
        """Return whether the visitor may see the names of this user's jobs."""
        return self.names or (user is not None and user != "" and user == self.user)

    def of(self, view: V, user: str | None) -> V:
        """Return the view of a user's job, with empty names if they are hidden."""
        if self.shows(user):
            return view
        fields = [name for name in _NAMES if name in type(view).model_fields]
        return view.model_copy(update=dict.fromkeys(fields, ""))

    def reason(self, text: str, user: str | None) -> str:
        """Return a reason of the manager; of another user's job only its kind, see `REASONS`."""
        if self.shows(user):
            return text
        kind = text.partition(":")[0]
        return kind if kind in REASONS else "policy"

    def check(self, user: str) -> None:
        """Check that the visitor may ask for the jobs of a user.

        Raises:
            UnknownNameError: The user is hidden. A user that does not exist gets the same error.
        """
        if not self.shows(user):
            raise UnknownNameError("user", user, [])


EVERYTHING = Visibility()
"""What an operator sees."""
