"""Features of a job at its submission, from a history of submissions and ends.

A trained predictor of runtimes uses them.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

from hpctwin.rms.records.records import JobSpec

__all__ = ["FEATURES", "Submissions"]

FEATURES = (
    "log_walltime", "log_nodes", "cores_per_node", "gpus_per_node", "memory_gb_per_node",
    "user", "account", "partition", "qos",
    "since_end", "since_submission", "not_ended", "user_count", "user_share", "user_share_10",
    "like_count", "walltime_count",
    "user_last_1", "user_last_2", "user_last_3", "user_mean", "user_mean_10",
    "like_last_1", "like_last_2", "like_last_3", "like_mean", "like_mean_10",
    "walltime_last_1", "walltime_last_2", "walltime_mean", "walltime_mean_10", "all_mean_100", "recent",
)  # fmt: skip
"""Names of the features, by column.

These are the ones of `hpctwin.learn.prediction.FEATURES`, except those that no resource manager
reports alike before and after a job: priorities, the hour by the site's clock, fields of SWF logs.
"""

MOST_GROUPS = 100_000
"""Maximum number of groups; the ones with the earliest last end are dropped."""
_LAST = 10
_FINE = float(2**20)
"""Sums are of whole multiples of 2^-20, as in training."""
_NAN = math.nan
Key = tuple[Any, ...]


class _Group:
    """Ended jobs of a group: their number, the sum of the values, and the last values."""

    __slots__ = ("count", "last", "sum")

    def __init__(self, count: int = 0, total: int = 0, last: Sequence[float] = ()) -> None:
        self.count, self.sum = count, total
        self.last: deque[float] = deque(last, maxlen=_LAST)

    def add(self, value: float) -> None:
        self.count += 1
        self.sum += round(value * _FINE)
        self.last.append(value)

    def back(self, places: int) -> float:
        return self.last[-places] if len(self.last) >= places else _NAN

    def mean(self) -> float:
        return self.sum / _FINE / self.count if self.count else _NAN

    def mean_of_last(self) -> float:
        last = self.last
        return sum(round(value * _FINE) for value in last) / _FINE / len(last) if last else _NAN

    def plain(self) -> list[Any]:
        return [self.count, self.sum, list(self.last)]


_NOBODY = _Group()


class _User:
    """History of a user: submissions, the last end, and the shares of walltimes run.

    ``here`` jobs were submitted at ``at_s``, the time of the last submission. ``before`` jobs were
    submitted earlier, the last of them at ``before_s``.
    """

    __slots__ = ("at_s", "before", "before_s", "end_s", "here", "shares")

    def __init__(
        self,
        before: int = 0,
        before_s: float | None = None,
        at_s: float | None = None,
        here: int = 0,
        end_s: float | None = None,
        shares: Sequence[Any] = (),
    ) -> None:
        self.before, self.before_s, self.at_s, self.here = before, before_s, at_s, here
        self.end_s = end_s
        self.shares = _Group(*shares)

    def submits(self, time_s: float) -> None:
        if time_s != self.at_s:
            self.before += self.here
            self.before_s = self.at_s if self.at_s is not None else self.before_s
            self.at_s, self.here = time_s, 0
        self.here += 1

    def earlier(self, time_s: float) -> tuple[int, float | None]:
        """Return the number of jobs submitted before a time, and the last such submission."""
        if self.at_s is None or time_s <= self.at_s:
            return self.before, self.before_s
        return self.before + self.here, self.at_s

    def plain(self) -> list[Any]:
        about = [self.before, self.before_s, self.at_s, self.here, self.end_s]
        return [*about, self.shares.plain()]


class Submissions:
    """Histories of users, and of a user's jobs with the same walltime, and nodes, too."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}
        self._users: dict[str, _User] = {}
        self._all: deque[float] = deque(maxlen=100)

    def submitted(self, spec: JobSpec) -> list[float]:
        """Return a new job's features, then record its submission [`FEATURES`]."""
        found = self._features(spec)
        self._user(spec.user).submits(spec.submit_s)
        return found

    def ended(
        self, user: str, nodes: int, walltime_s: float, runtime_s: float, end_s: float | None
    ) -> None:
        """Record a job that ran to its own end or to its walltime.

        Args:
            user: Name of its user.
            nodes: Number of nodes.
            walltime_s: Requested walltime, in seconds.
            runtime_s: Actual runtime, in seconds.
            end_s: Time of its end, in seconds; None if it is by another clock.
        """
        limit = max(walltime_s, 1.0)
        ran = min(max(runtime_s, 1.0), limit)
        value = math.log2(ran)
        for key in ((user,), (user, walltime_s), (user, walltime_s, nodes)):
            group = self._groups.pop(key, None) or _Group()
            group.add(value)
            self._groups[key] = group  # now the last one: the order is by the last end
        while len(self._groups) > MOST_GROUPS:
            self._groups.pop(next(iter(self._groups)))
        about = self._user(user)
        about.shares.add(ran / limit)
        if end_s is not None:
            about.end_s = end_s
        else:
            about.before += 1
        self._all.append(value)

    def state(self) -> dict[str, Any]:
        """Return the histories as plain values."""
        return {
            "groups": [[list(key), *group.plain()] for key, group in self._groups.items()],
            "users": {user: about.plain() for user, about in self._users.items()},
            "all": list(self._all),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the histories from `state`."""
        self._groups = {tuple(key): _Group(*plain) for key, *plain in state["groups"]}
        self._users = {user: _User(*plain) for user, plain in state["users"].items()}
        self._all = deque(state["all"], maxlen=self._all.maxlen)

    def _user(self, user: str) -> _User:
        about = self._users.get(user)
        if about is None:
            if len(self._users) >= MOST_GROUPS:
                self._users.pop(next(iter(self._users)))
            about = self._users[user] = _User()
        return about

    def _features(self, spec: JobSpec) -> list[float]:
        limit, now_s = max(spec.walltime_s, 1.0), spec.submit_s
        about = self._users.get(spec.user) or _User()
        before, last_s = about.earlier(now_s)
        groups = self._groups
        user = groups.get((spec.user,), _NOBODY)
        walltime = groups.get((spec.user, spec.walltime_s), _NOBODY)
        like = groups.get((spec.user, spec.walltime_s, spec.nodes), _NOBODY)
        return [
            math.log2(limit), math.log2(spec.nodes), spec.cores, spec.gpus, spec.memory_gb,
            *map(_number, (spec.user, spec.account, spec.partition, spec.qos)),
            _since(about.end_s, now_s), _since(last_s, now_s),
            math.log2(1.0 + max(before - user.count, 0)), math.log2(1.0 + user.count),
            about.shares.mean(), about.shares.mean_of_last(),
            math.log2(1.0 + like.count), math.log2(1.0 + walltime.count),
            user.back(1), user.back(2), user.back(3), user.mean(), user.mean_of_last(),
            like.back(1), like.back(2), like.back(3), like.mean(), like.mean_of_last(),
            walltime.back(1), walltime.back(2), walltime.mean(), walltime.mean_of_last(),
            sum(round(value * _FINE) for value in self._all) / _FINE / len(self._all) if self._all else _NAN,
            _recent(user, limit),
        ]  # fmt: skip


def _since(time_s: float | None, now_s: float) -> float:
    return _NAN if time_s is None else math.log2(1.0 + max(now_s - time_s, 0.0))


def _recent(user: _Group, limit_s: float) -> float:
    """Return the logarithm of the mean runtime of a user's last two jobs.

    It is at most that of the walltime, which is the value of a new user.
    """
    last = [2.0**value for value in list(user.last)[-2:]]
    return math.log2(min(max(sum(last) / len(last) if last else limit_s, 1.0), limit_s))


def _number(label: str) -> float:
    """Return a number for a label, the same as in training."""
    if not label:
        return -1.0
    return float(label) if label.isdecimal() else float(zlib.crc32(label.encode()) % 100_003)
