"""Environments to train agents in, after Gymnasium; importing this registers them (extra ``learn``).

``hpctwin/JobSelection-v0``: which of the jobs that wait starts next; see `JobSelection`.
``hpctwin/PolicySelection-v0``: which policy rules next; see `PolicySelection`.
"""

from hpctwin.errors import ConfigError

try:
    from gymnasium import register
except ImportError as error:
    raise ConfigError(
        "hpctwin.learn needs gymnasium, which is not installed: pip install 'hpctwin[learn]'"
    ) from error

from hpctwin.learn.episodes import Episodes
from hpctwin.learn.job_selection import JobSelection
from hpctwin.learn.policy_selection import PolicySelection

__all__ = ["Episodes", "JobSelection", "PolicySelection"]

register(id="hpctwin/JobSelection-v0", entry_point="hpctwin.learn:JobSelection")
register(id="hpctwin/PolicySelection-v0", entry_point="hpctwin.learn:PolicySelection")
