"""Gymnasium environments to train agents in; importing this registers them.

It needs the extra ``learn``. The agent chooses:

- ``hpctwin/JobSelection-v0``: which pending job starts next; see `JobSelection`.
- ``hpctwin/Backfilling-v0``: which job may pass the first in order; see `Backfilling`.
- ``hpctwin/PowerManagement-v0``: which nodes are on; see `PowerManagement`.
- ``hpctwin/PolicySelection-v0``: which policy is used next; see `PolicySelection`.
- ``hpctwin/Placement-v0``: which cluster a job goes to; see `Placement`.

Many environments of the first three kinds are stepped in one compiled call: `many`, or
``gymnasium.make_vec``.
"""

from functools import partial

from hpctwin.errors import ConfigError

try:
    from gymnasium import register
except ImportError as error:
    raise ConfigError(
        "hpctwin.learn needs gymnasium, which is not installed: pip install 'hpctwin[learn]'"
    ) from error

from hpctwin.learn.environments.environment import Environment, Environments
from hpctwin.learn.environments.episodes import Curriculum, Episodes, Generated
from hpctwin.learn.environments.job_selection import Backfilling, JobSelection
from hpctwin.learn.environments.placement import Placement
from hpctwin.learn.environments.policy_selection import PolicySelection, many
from hpctwin.learn.environments.power_management import PowerManagement
from hpctwin.learn.environments.task import Observation

__all__ = [
    "Backfilling",
    "Curriculum",
    "Environment",
    "Environments",
    "Episodes",
    "Generated",
    "JobSelection",
    "Observation",
    "Placement",
    "PolicySelection",
    "PowerManagement",
    "many",
]

for _made in (JobSelection, Backfilling, PowerManagement):
    register(
        id=f"hpctwin/{_made.__name__}-v0",
        entry_point=f"hpctwin.learn:{_made.__name__}",
        vector_entry_point=partial(many, _made),
    )
register(id="hpctwin/PolicySelection-v0", entry_point="hpctwin.learn:PolicySelection")
register(id="hpctwin/Placement-v0", entry_point="hpctwin.learn:Placement")
