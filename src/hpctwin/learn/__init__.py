"""Gymnasium environments to train agents in; importing this registers them.

It needs the extra ``learn``. The agent chooses:

- ``hpctwin/JobSelection-v0``: which pending job starts next; see `JobSelectionEnv`.
- ``hpctwin/Backfilling-v0``: which job may pass the first in order; see `BackfillingEnv`.
- ``hpctwin/PowerManagement-v0``: which nodes are on; see `PowerManagementEnv`.
- ``hpctwin/PolicySelection-v0``: which policy is used next; see `PolicySelectionEnv`.
- ``hpctwin/Placement-v0``: which cluster a job goes to; see `PlacementEnv`.

`many` and ``gymnasium.make_vec`` make many environments, which are stepped together.
"""

from functools import partial
from typing import Any

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
from hpctwin.learn.environments.policy_selection import PolicySelectionEnv
from hpctwin.learn.environments.power_management import PowerManagementEnv
from hpctwin.learn.environments.scheduling_env import SchedulingEnv
from hpctwin.learn.environments.task import Observation
from hpctwin.learn.environments.vector_base import AgentVectorEnv

__all__ = [
    "ENVIRONMENTS",
    "BackfillingEnv",
    "Curriculum",
    "Episodes",
    "Generated",
    "JobSelectionEnv",
    "Observation",
    "PlacementEnv",
    "PolicySelectionEnv",
    "PowerManagementEnv",
    "SchedulingEnv",
    "SimulationEnv",
    "SimulationVectorEnv",
    "many",
]

ENVIRONMENTS: dict[str, Any] = {
    "JobSelection": JobSelectionEnv,
    "Backfilling": BackfillingEnv,
    "PowerManagement": PowerManagementEnv,
    "PolicySelection": PolicySelectionEnv,
    "Placement": PlacementEnv,
}
"""Environments by name; the id is ``hpctwin/NAME-v0``."""


def many(
    kind: type[SchedulingEnv[Any]],
    *given: Any,
    num_envs: int = 1,
    threads: int | None = None,
    **options: Any,
) -> AgentVectorEnv:
    """Make many environments of one kind, stepped together.

    Those of `SimulationEnv` are stepped in one compiled call over threads, the others in turn.

    Args:
        kind: Class such as `JobSelectionEnv`.
        given: Positional arguments of the class.
        num_envs: Number of environments.
        threads: Number of threads; None for the number of cores.
        options: Further arguments of the class.
    """
    return kind(*given, **options).many(num_envs, threads)


JobSelectionVectorEnv = partial(many, JobSelectionEnv)
BackfillingVectorEnv = partial(many, BackfillingEnv)
PowerManagementVectorEnv = partial(many, PowerManagementEnv)
PolicySelectionVectorEnv = partial(many, PolicySelectionEnv)
PlacementVectorEnv = partial(many, PlacementEnv)

for _name in ENVIRONMENTS:
    # As text, so that a specification can be written as JSON.
    register(
        id=f"hpctwin/{_name}-v0",
        entry_point=f"hpctwin.learn:{_name}Env",
        vector_entry_point=f"hpctwin.learn:{_name}VectorEnv",
    )
