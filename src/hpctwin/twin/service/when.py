"""Start time of a job that is pending, or that is not submitted yet."""

from __future__ import annotations

from hpctwin.rms.manager import ResourceManager
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Journal, tells_of_life
from hpctwin.twin.journal.restore import Standing, standing, starts_by
from hpctwin.twin.service.query_socket import ask
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.estimate import Answer, Picture, Question, answer, picture

__all__ = ["answered", "picture_of"]


def answered(config: TwinConfig, question: Question, *, look: bool = False) -> Answer:
    """Return when a job will start.

    The answer comes from the running twin, else from its journal, else from the resource manager.

    Args:
        config: Configuration of the twin.
        question: Id of a job, or a job that is not submitted yet.
        look: Whether to query the resource manager even if a twin runs.

    Raises:
        HpctwinError: The question is not valid; or no twin runs and the resource manager does not
            answer.
    """
    if not look:
        body = {"job": question} if isinstance(question, str) else {"to_come": vars(question)}
        said = ask(config.journal.path, body)
        if said is not None:
            return Answer.of(said)
    return answer(picture_of(config, look=look), question)


def picture_of(config: TwinConfig, *, look: bool = False) -> Picture:
    """Return the present state of the cluster.

    It comes from the journal of a running twin, which costs the resource manager nothing; else
    from one query of the resource manager.

    Args:
        config: Configuration of the twin.
        look: Whether to query the resource manager even if a twin runs.

    Raises:
        HpctwinError: No twin runs and the resource manager does not answer.
    """
    if not look and config.journal.path.exists():
        journal = Journal(config.journal.path, read_only=True)
        try:
            if tells_of_life(journal.read_latest("status")):
                return picture(standing(journal), "the running twin")
        finally:
            journal.close()
    # Imported late: a question to the running twin needs none of this.
    from hpctwin.twin.service.service import open_manager

    manager = open_manager(config.manager)
    try:
        return looked_up(config, manager)
    finally:
        manager.close()


def looked_up(config: TwinConfig, manager: ResourceManager) -> Picture:
    """Return the state of the cluster by one query of the resource manager.

    Raises:
        UnreachableError: The resource manager does not answer.
    """
    snapshot = manager.snapshot()
    core = Core(config.core)
    core.take_snapshot(snapshot)
    policy, assumed = starts_by(core, None)
    status = {"not_read": manager.report().notes}
    stands = Standing(core, snapshot.time_s, policy, assumed, status)
    return picture(stands, "one query of the resource manager")
