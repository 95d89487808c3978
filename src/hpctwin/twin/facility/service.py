"""Construction of a live facility from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from hpctwin.policies import parse_policy
from hpctwin.rms.gate import Mark
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
    """Open a placer with its connections, which close with the context.

    Args:
        config: Configuration of the facility.
        watch: Function called with each job whose stage has changed.

    Raises:
        HpctwinError: A resource manager, a bus, a journal or the queue is not usable, or another
            placer works on the queue.
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
            # A polled cluster is polled soon after a submission, so that the mirror shows the job.
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
