"""A live facility put together from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from hpctwin.policies import parse_policy
from hpctwin.rms.commands import Commands
from hpctwin.rms.emulated.client import EmulatedManager
from hpctwin.rms.emulated.gate import EmulatedGate
from hpctwin.rms.gate import Gate
from hpctwin.rms.manager import ResourceManager
from hpctwin.rms.mark import Mark
from hpctwin.rms.pbs.gate import PbsGate
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.polling import PolledManager
from hpctwin.rms.slurm.gate import SlurmGate
from hpctwin.rms.slurm.manager import SlurmManager
from hpctwin.twin.config import EmulatedSettings
from hpctwin.twin.facility.config import LiveFacility, SiteSettings
from hpctwin.twin.facility.placer import Placer
from hpctwin.twin.facility.queue import Queue, QueuedJob
from hpctwin.twin.facility.site import Site
from hpctwin.twin.follow import Follower
from hpctwin.twin.service import opened

__all__ = ["open_gate", "open_placer"]


def open_gate(
    settings: SiteSettings, manager: ResourceManager, mirrored: ResourceManager, mark: Mark
) -> Gate:
    """Where jobs are submitted to a cluster.

    Args:
        settings: how it is reached.
        manager: its resource manager.
        mirrored: the same as the mirror sees it; if it is polled, it is polled soon after changes.
        mark: of the queue.
    """
    if isinstance(manager, EmulatedManager):
        return EmulatedGate(manager)
    source = settings.manager
    assert isinstance(manager, SlurmManager | PbsManager)
    assert not isinstance(source, EmulatedSettings)
    environment = manager.commands.environment
    # Of its own: the mirror's poller runs commands in another thread.
    commands = Commands(source.folder, timeout_s=source.timeout, environment=environment)
    soon = mirrored.poller.soon if isinstance(mirrored, PolledManager) else _nothing
    gate = SlurmGate if isinstance(manager, SlurmManager) else PbsGate
    return gate(commands, mark, settings.options, soon)


def _nothing() -> None:
    """For clusters that tell by themselves."""


@contextmanager
def open_placer(
    config: LiveFacility, *, watch: Callable[[QueuedJob], None] = lambda entry: None
) -> Iterator[Placer]:
    """A placer with its connections, closed at the end.

    Args:
        config: what it is to be.
        watch: called with each job that has come a step further.

    Raises:
        HpctwinError: a resource manager, a bus, a journal or the queue cannot be used, or another placer
            works on the queue.
    """
    with ExitStack() as stack:
        queue = Queue(config.queue)
        stack.callback(queue.close)
        queue.lock()
        sites = []
        for cluster in config.facility.clusters:
            settings = config.sites[cluster.name]
            beside = config.queue.with_name(f"{config.queue.stem}-{cluster.name}.journal.sqlite")
            followed = settings.followed(cluster.policy, config.knowledge, beside)
            manager, mirrored, bus, journal = opened(followed, stack)
            gate = open_gate(settings, manager, mirrored, Mark(queue.secret))
            source = settings.manager
            pause_s = 0.0 if isinstance(source, EmulatedSettings) else source.poll_every
            sites.append(
                Site(
                    cluster.name,
                    Follower(followed, mirrored, bus, journal),
                    gate,
                    parse_policy(cluster.policy),
                    news_within_s=2 * pause_s + 30.0,
                )
            )
        yield Placer(config.facility, sites, queue, config.placing, seed=config.seed, watch=watch)
