"""Gymnasium environments to train agents in; importing this registers them.

It needs the extra ``learn``. The agent chooses:

- ``hpctwin/JobSelection-v0``: which pending job starts next; see `JobSelectionEnv`.
- ``hpctwin/Backfilling-v0``: which job may pass the first in order; see `BackfillingEnv`.
- ``hpctwin/PowerManagement-v0``: which nodes are on; see `PowerManagementEnv`.
- ``hpctwin/PolicySelection-v0``: which policy is used next; see `PolicySelectionEnv`.
- ``hpctwin/Placement-v0``: which cluster a job goes to; see `PlacementEnv`.

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

from hpctwin.learn.environments.environment import SimulationEnv, SimulationVectorEnv
from hpctwin.learn.environments.episodes import Curriculum, Episodes, Generated
from hpctwin.learn.environments.job_selection import BackfillingEnv, JobSelectionEnv
from hpctwin.learn.environments.placement import PlacementEnv
from hpctwin.learn.environments.policy_selection import PolicySelectionEnv, many
from hpctwin.learn.environments.power_management import PowerManagementEnv
from hpctwin.learn.environments.task import Observation

__all__ = [
    "Backfilling",
    "Curriculum",
    "Episodes",
    "Generated",
    "JobSelection",
    "Observation",
    "Placement",
    "PolicySelection",
    "PowerManagement",
    "SimulationEnv",
    "SimulationVectorEnv",
    "many",
]

for _made in (JobSelectionEnv, BackfillingEnv, PowerManagementEnv):
    register(
        id=f"hpctwin/{_made.__name__}-v0",
        entry_point=f"hpctwin.learn:{_made.__name__}",
        vector_entry_point=partial(many, _made),
    )
register(id="hpctwin/PolicySelection-v0", entry_point="hpctwin.learn:PolicySelection")
register(id="hpctwin/Placement-v0", entry_point="hpctwin.learn:Placement")
