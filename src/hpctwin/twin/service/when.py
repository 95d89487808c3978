"""When a job will start: one that waits, or one that is not submitted yet."""

from __future__ import annotations

from hpctwin.rms.manager import ResourceManager
from hpctwin.twin.core.core import Core
from hpctwin.twin.journal.journal import Journal, tells_of_life
from hpctwin.twin.journal.status_reader import Standing, standing, starts_by
from hpctwin.twin.service.query_socket import ask
from hpctwin.twin.settings.config import TwinConfig
from hpctwin.twin.start_times.query import Answer, Picture, Question, answer, picture

__all__ = ["answered", "picture_of"]


def answered(config: TwinConfig, question: Question, *, look: bool = False) -> Answer:
    """When a job will start: by the running twin itself, by what it has written down, or by one look.

    Args:
        config: the twin's.
        question: a job's id, or a job to come.
        look: ask the resource manager even if a twin runs.

    Raises:
        HpctwinError: the question makes no sense; or no twin runs and the manager does not answer.
    """
    if not look:
        body = {"job": question} if isinstance(question, str) else {"to_come": vars(question)}
        said = ask(config.journal.path, body)
        if said is not None:
            return Answer.of(said)
    return answer(picture_of(config, look=look), question)


def picture_of(config: TwinConfig, *, look: bool = False) -> Picture:
    """What is known now: by a twin that runs, which costs the controller nothing; else by one look.

    Args:
        config: the twin's.
        look: ask the resource manager even if a twin runs.

    Raises:
        HpctwinError: no twin runs and the resource manager does not answer.
    """
    if not look and config.journal.path.exists():
        journal = Journal(config.journal.path, read_only=True)
        try:
            if tells_of_life(journal.read_latest("status")):
                return picture(standing(journal), "the running twin")
        finally:
            journal.close()
    # The running twin is asked without any of this.
    from hpctwin.twin.service.service import open_manager

    manager = open_manager(config.manager)
    try:
        return looked_up(config, manager)
    finally:
        manager.close()


def looked_up(config: TwinConfig, manager: ResourceManager) -> Picture:
    """What one look at the resource manager tells.

    Raises:
        UnreachableError: it does not answer.
    """
    snapshot = manager.snapshot()
    core = Core(config.core)
    core.take_snapshot(snapshot)
    policy, assumed = starts_by(core, None)
    status = {"not_read": manager.report().notes}
    stands = Standing(core, snapshot.time_s, policy, assumed, status)
    return picture(stands, "one look at the resource manager")
