"""Preemption: which jobs preempt which others, and what happens to these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hpctwin.errors import near
from hpctwin.model.settings import Duration, Settings


def _known_mode(value: object) -> object:
    if value is False:
        return "off"  # YAML reads it so
    if value == "gang":
        raise ValueError("mode 'gang' (time slicing) is not supported; use suspend")
    return value


Mode = Annotated[Literal["requeue", "cancel", "suspend", "off"], BeforeValidator(_known_mode)]
Least = Annotated[Duration, Field(ge=0)]


class _Preempted(Settings):
    """Common fields of partitions and QOS."""

    mode: Mode | None = None
    grace: Least | None = None
    exempt: Least | None = None


class PreemptedPartition(_Preempted):
    """Preemption settings of a partition.

    Args:
        tier: Its jobs preempt those of partitions with a lower tier.
        mode, grace, exempt: Settings for its jobs; by default those for all.
    """

    tier: int = 1


class PreemptedQos(_Preempted):
    """Preemption settings of a quality of service.

    Args:
        preempts: Names of the QOS whose jobs its jobs may preempt.
        mode, grace, exempt: Settings for its jobs; by default those for all.
    """

    preempts: tuple[str, ...] = ()


class Preemption(Settings):
    """Jobs that end, or wait again, so that others can start; by partition or by QOS.

    Args:
        partitions: Settings by partition; by default tier 1.
        qos: Settings by QOS, instead of partitions. Jobs without a QOS neither preempt nor are
            preempted.
        mode: What happens to a preempted job. It waits again (``requeue``), ends (``cancel``), or
            keeps its nodes and resumes there when the others have ended (``suspend``). With ``off``
            it is not preempted.
        grace: Time that a chosen job still runs; a suspended job has none.
        exempt: Run time before which a job is not chosen.
        requeue_after: Time before a requeued job can start again.
        youngest_first: Whether the jobs that started last are chosen, instead of those of the
            lowest tier (or QOS) with the fewest nodes.
        checkpoint: Interval of checkpoints; a job restarts from its last one. The column
            ``checkpoint_s`` of a workload overrides it. Without checkpoints, a job restarts from
            the beginning.
    """

    partitions: dict[str, PreemptedPartition] = Field(default_factory=dict)
    qos: dict[str, PreemptedQos] = Field(default_factory=dict)
    mode: Mode = "requeue"
    grace: Least = 0
    exempt: Least = 0
    requeue_after: Least = 0
    youngest_first: bool = False
    checkpoint: Duration | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.partitions) == bool(self.qos):
            raise ValueError(
                "preemption needs either 'partitions' or 'qos': give one of them, as in "
                "partitions: {urgent: {tier: 2}}"
            )
        if self.qos and not any(one.preempts for one in self.qos.values()):
            raise ValueError("no QOS preempts another: add one, as in high: {preempts: [low]}")
        for name in self.qos:
            self._line(name, ())
        return self

    @property
    def suspends(self) -> bool:
        """Whether jobs of any class are suspended."""
        classes = (*self.partitions.values(), *self.qos.values())
        return "suspend" in (self.mode, *(one.mode for one in classes))

    def _line(self, name: str, above: tuple[str, ...]) -> None:
        """Check all QOS that a QOS preempts, directly or not, for cycles."""
        if name in above:
            said = " preempts ".join([*above[above.index(name) :], name])
            raise ValueError(f"QOS preempt each other in a cycle: {said}")
        for other in self.qos[name].preempts if name in self.qos else ():
            self._line(other, (*above, name))


def check_preemption(
    preemption: Preemption, partitions: Collection[str], qos: Mapping[str, float]
) -> None:
    """Check that the partitions or QOS of preemption settings exist."""
    for name in preemption.partitions:
        if name not in partitions:
            raise ValueError(
                f"preemption: unknown partition {name!r}; known: "
                f"{', '.join(partitions)}.{near(name, partitions)}"
            )
    tiers = {
        name: preemption.partitions.get(name, PreemptedPartition()).tier for name in partitions
    }
    if preemption.partitions and len(set(tiers.values())) == 1:
        raise ValueError(
            f"preemption: all partitions have tier {next(iter(tiers.values()))}, so no job "
            "preempts another; give one partition another tier"
        )
    known = {*preemption.qos, *qos}
    for name, one in preemption.qos.items():
        for other in one.preempts:
            if other not in known:
                raise ValueError(
                    f"preemption: QOS {name!r} preempts {other!r}, which is listed neither there "
                    f"nor under 'qos:'.{near(other, known)}"
                )
