"""A live facility put together from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from hpctwin.policies import parse_policy
from hpctwin.rms.mark import Mark
from hpctwin.rms.polling.poller import PolledManager
from hpctwin.twin.facility.config import LiveFacility
from hpctwin.twin.facility.placer import Placer
from hpctwin.twin.facility.queue import Queue, QueuedJob
from hpctwin.twin.facility.site import Site
from hpctwin.twin.following.follower import Follower
from hpctwin.twin.service.service import opened

__all__ = ["open_placer"]


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
            # What is polled is polled soon after a job was sent.
            soon = mirrored.poller.soon if isinstance(mirrored, PolledManager) else lambda: None
            gate = settings.manager.gate(manager, Mark(queue.secret), settings.options, soon)
            sites.append(
                Site(
                    cluster.name,
                    Follower(followed, mirrored, bus, journal),
                    gate,
                    parse_policy(cluster.policy),
                    news_within_s=settings.manager.news_within_s,
                )
            )
        yield Placer(config.facility, sites, queue, config.placing, seed=config.seed, watch=watch)
