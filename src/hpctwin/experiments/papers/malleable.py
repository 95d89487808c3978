"""What the abstracts of CarbonScaler and CarbonFlex say is saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from hpctwin.experiments import malleable
from hpctwin.experiments.entries import Entry
from hpctwin.experiments.experiment import Experiment, Tell
from hpctwin.experiments.made import Finding, Made

__all__ = ["carbonflex", "carbonscaler"]


@dataclass(frozen=True)
class Alone(Experiment[None, list[malleable.Run]]):
    """Long jobs, each with as many nodes as it likes; see `hpctwin.experiments.malleable.alone`."""

    title = "jobs by the carbon intensity"
    data = (malleable.CALIFORNIA,)

    def points(self) -> Sequence[None]:
        """See `Experiment`; one, since the best fixed size is known when all are."""
        return [None]

    def run(self, point: None, tell: Tell) -> list[malleable.Run]:
        """See `Experiment`."""
        return malleable.alone(malleable.intensity())

    def made(self, found: Sequence[list[malleable.Run]]) -> Made:
        """See `Experiment`."""
        by_name = {run.name: run.emitted_kg for run in found[0]}
        findings = [
            _less(f"emissions below {what}, %", published, by_name["carbonscaler"], by_name[name],
                  "carbonscaler-savings")
            for what, name, published in (
                ("those of running at once", "at once", 51),
                ("those of suspending and resuming", "suspend and resume", 37),
                ("those of the best fixed size", "static", 8),
            )
        ]  # fmt: skip
        return Made(findings, rows=[asdict(run) for run in found[0]])


@dataclass(frozen=True)
class Shared(Experiment[None, list[malleable.Run]]):
    """A week of jobs on one machine; see `hpctwin.experiments.malleable.shared`."""

    title = "a week by the carbon intensity"
    data = (malleable.CALIFORNIA, malleable.JOBS)

    def points(self) -> Sequence[None]:
        """See `Experiment`; one, since all are of the same week."""
        return [None]

    def run(self, point: None, tell: Tell) -> list[malleable.Run]:
        """See `Experiment`."""
        return malleable.shared()

    def made(self, found: Sequence[list[malleable.Run]]) -> Made:
        """See `Experiment`."""
        by_name = {run.name: run.emitted_kg for run in found[0]}
        flex, name = by_name["carbonflex"], "carbonflex-savings"
        above = Finding(
            "emissions above the oracle's, %", 2.1, 100 * (flex / by_name["oracle"] - 1), 0.05,
            entries=(name,),
        )  # fmt: skip
        what = "emissions below those of FCFS with EASY, %"
        less = _less(what, 57, flex, by_name["fcfs+easy"], name)
        return Made([less, above], rows=[asdict(run) for run in found[0]])


def _less(what: str, published: float, here: float, than: float, entry: str) -> Finding:
    return Finding(what, published, 100 * (1 - here / than), 0.05, entries=(entry,))


def carbonscaler(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    yield entry(
        "carbonscaler-savings",
        shows="what scaling a job by the carbon intensity saves",
        config="180 jobs of 24 h of its N-body profile, 1 to 7 nodes, one every other day, deadline 48 h, "
        "California 2022, all known; `hpctwin.experiments.malleable.alone`",
        because="the region, the start times, the deadline and the mix of jobs behind the abstract's numbers "
        "are not given with them",
        experiment=Alone(),
    )


def carbonflex(entry: partial[Entry]) -> Iterator[Entry]:
    """Those of the paper; `entry` makes one of it."""
    yield entry(
        "carbonflex-savings",
        shows="what provisioning and scheduling learnt from an oracle saves",
        config="A week of GAIA's Alibaba trace, jobs of 1 to 24 h on 1 to 7 nodes, half the machine in use, "
        "slack 24 h, California 2022, forecast with 5 % error, learnt of the three weeks before; "
        "`hpctwin.experiments.malleable.shared`",
        because="the workloads, the region and the slack behind the abstract's numbers are not given with "
        "them; what the oracle saves here (27.6 %) sets the limit",
        experiment=Shared(),
    )
