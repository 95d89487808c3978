"""Jobs on a network: against a plain simulator, by hand, and what holds for any of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.contention.network import Network
from hpctwin.contention.phases import PhaseBuilder, Sharing
from hpctwin.errors import ConfigError
from hpctwin.network.profiles import (
    Delay,
    HomogeneousTask,
    ParallelTask,
    Profile,
    Sequence,
    SmpiTrace,
    Staging,
    StorageTransfer,
    Usage,
    UsageTrace,
)
from tests.contention import reference
from tests.contention.reference import Machine

SHARINGS: tuple[Sharing, ...] = ("simgrid", "fair")


def star(hosts: int = 4, *, cores: int = 1, latency: float = 0.0, backbone: float = 0.0) -> Machine:
    """Hosts of 1 Gflop/s, each on its own link of 1 GB/s, and perhaps a backbone between them."""
    links = hosts + (backbone > 0)
    table = {}
    for a in range(hosts):
        for b in range(hosts):
            table[a, b] = [a, b] if a != b else []
            if backbone and a != b:
                table[a, b].insert(1, hosts)
    return Machine(
        np.full(hosts, cores),
        np.full(hosts, 1e9),
        np.array([1e9] * hosts + [backbone] * (backbone > 0)),
        np.full(links, latency),
        np.zeros(links, bool),
        table,
    )


def ends(
    machine: Any, jobs: list[tuple[float, Profile, list[int]]], sharing: Sharing = "simgrid"
) -> list[float]:
    """Return when jobs end; infinity if they never do."""
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing)
    found = [math.inf] * len(jobs)
    ended = []
    for number, (start, profile, hosts) in sorted(enumerate(jobs), key=lambda one: one[1][0]):
        ended += network.advance(start)
        network.start(number, start, builder.build(profile, hosts))
    ended += network.advance(math.inf)
    for one in ended:
        found[one.job] = one.time_s  # type: ignore[call-overload]
    return found


def send(amount: float, ranks: int = 2) -> ParallelTask:
    """A task whose first rank sends to its last one."""
    com = np.zeros((ranks, ranks))
    com[0, -1] = amount
    return ParallelTask(cpu=None, com=com)


amounts = st.floats(1e6, 1e10)


@st.composite
def machines(draw: Any) -> Machine:
    """A few hosts, each on a link of its own, and any links between these."""
    hosts, links = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    between = st.lists(st.integers(hosts, hosts + links - 1), unique=True, max_size=3)

    def some(values: Any, size: int) -> Any:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    def route(a: int, b: int) -> list[int]:
        return [*draw(between), a, b] if a != b else draw(st.sampled_from([[], [a]]))

    return Machine(
        some(st.integers(1, 4), hosts),
        some(st.floats(1e8, 1e10), hosts),
        some(st.floats(1e7, 1e9), hosts + links),
        some(st.sampled_from([0.0, 1e-4, 0.02]), hosts + links),
        np.concatenate([np.zeros(hosts, bool), some(st.booleans(), links)]),
        {(a, b): route(a, b) for a in range(hosts) for b in range(hosts)},
    )


@st.composite
def tasks(draw: Any, machine: Machine, ranks: int) -> tuple[list[float], dict[Any, float]]:
    """Amounts of a task: flops of each rank, and bytes by pair of ranks."""
    cpu = draw(st.lists(st.one_of(st.just(0.0), amounts), min_size=ranks, max_size=ranks))
    pair = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1))
    return cpu, draw(st.dictionaries(pair, amounts, max_size=4))


@st.composite
def cases(draw: Any) -> tuple[Machine, list[tuple[float, list[int], list[Any]]]]:
    """A machine and jobs: start, hosts, and phases: lengths of delays, or amounts of tasks."""
    machine = draw(machines())
    jobs = []
    for _ in range(draw(st.integers(1, 7))):
        hosts = draw(st.lists(st.integers(0, len(machine.host_speed) - 1), min_size=1, max_size=4))
        phase = st.one_of(st.floats(0.01, 5.0), tasks(machine, len(hosts)))
        phases = draw(st.lists(phase, min_size=1, max_size=3))
        jobs.append((draw(st.sampled_from([0.0, 0.25, 1.5])), hosts, phases))
    return machine, jobs


def profile_of(phases: list[Any], ranks: int) -> Sequence:
    """Return the phases of a job as a profile."""
    parts: list[Profile] = []
    for one in phases:
        if isinstance(one, float):
            parts.append(Delay(duration_s=one))
            continue
        com = np.zeros((ranks, ranks))
        for pair, amount in one[1].items():
            com[pair] = amount
        parts.append(ParallelTask(cpu=np.array(one[0]), com=com))
    return Sequence(parts=tuple(parts))


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=100, deadline=None)
@given(cases())
def test_as_the_plain_simulator(sharing: Sharing, case: Any) -> None:
    machine, jobs = case
    own = ends(machine, [(s, profile_of(p, len(h)), h) for s, h, p in jobs], sharing)
    plain = [
        reference.Job(
            s,
            [
                p if isinstance(p, float) else reference.task(machine, h, *p, sharing == "simgrid")
                for p in ps
            ],
        )
        for s, h, ps in jobs
    ]
    assert own == pytest.approx(reference.simulate(machine, plain, sharing == "simgrid"), rel=1e-9)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=50, deadline=None)
@given(cases())
def test_no_host_or_link_gives_more_than_it_has(sharing: Sharing, case: Any) -> None:
    machine, jobs = case
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing)
    capacities = np.concatenate([machine.host_cores * machine.host_speed, machine.link_bandwidth])
    shared = np.concatenate([np.ones(len(machine.host_speed), bool), ~machine.link_fatpipe])
    for number, (_, hosts, phases) in enumerate(jobs):
        network.start(number, 0.0, builder.build(profile_of(phases, len(hosts)), hosts))
    network.advance(0.0)
    while network.next_s < math.inf:
        network.advance(network.next_s)
        assert (network.used() <= capacities * (1 + 1e-9))[shared].all()


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=50, deadline=None)
@given(cases())
def test_all_work_is_done(sharing: Sharing, case: Any) -> None:
    machine, jobs = case
    machine.link_fatpipe[:] = False  # their use is not counted
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing)
    asked = np.zeros(len(machine.host_speed) + len(machine.link_bandwidth))
    for number, (_, hosts, phases) in enumerate(jobs):
        made = builder.build(profile_of(phases, len(hosts)), hosts)
        np.add.at(asked, made.uses["resource"], made.uses["amount"])
        network.start(number, 0.0, made)
    done = np.zeros(len(asked))
    network.advance(0.0)
    now = 0.0
    while network.next_s < math.inf:
        until = network.next_s
        done += network.used() * (until - now)
        now = until
        network.advance(now)
    assert network.running == []
    assert done == pytest.approx(asked, rel=1e-6, abs=1.0)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=50, deadline=None)
@given(cases(), st.randoms())
def test_forks_and_stops_change_nothing_else(sharing: Sharing, case: Any, random: Any) -> None:
    machine, jobs = case
    builder, network = PhaseBuilder(machine, sharing), Network(machine, sharing)
    for number, (_, hosts, phases) in enumerate(jobs):
        network.start(number, 0.0, builder.build(profile_of(phases, len(hosts)), hosts))
    network.advance(0.5)
    fork = network.fork()
    for job in random.sample(fork.running, len(fork.running) // 2):
        fork.stop(job, 0.5)
    left = set(fork.running)
    again = network.fork()
    assert {one.job for one in fork.advance(math.inf)} == left
    assert network.advance(math.inf) == again.advance(math.inf)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=30, deadline=None)
@given(st.permutations(range(4)), st.lists(amounts, min_size=3, max_size=3))
def test_equal_hosts_may_be_exchanged(
    sharing: Sharing, order: list[int], sizes: list[float]
) -> None:
    machine = star(4, latency=1e-3, backbone=2e9)
    hosts = [[0, 1], [1, 2], [0, 3]]
    jobs = [(0.1 * i, send(size), hosts[i]) for i, size in enumerate(sizes)]
    moved = [(start, what, [order[h] for h in own]) for start, what, own in jobs]
    own = ends(machine, jobs, sharing)
    assert ends(machine, moved, sharing) == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=50, deadline=None)
@given(cases())
def test_other_jobs_never_speed_up_all(sharing: Sharing, case: Any) -> None:
    machine, jobs = case
    alone = []
    for _, hosts, phases in jobs:
        made = PhaseBuilder(machine, sharing).build(profile_of(phases, len(hosts)), hosts)
        alone.append(sum(one for one in phases if isinstance(one, float)))
        for load in made.loads:
            uses = made.uses[load["first"] : load["last"]]
            capacities = np.concatenate(
                [machine.host_cores * machine.host_speed, machine.link_bandwidth]
            )
            longest = (uses["amount"] / capacities[uses["resource"]]).max(initial=0.0)
            alone[-1] += load["latency"] + max(longest, 1 / load["bound"])
    if not machine.link_fatpipe.any() or sharing == "fair":
        found = ends(machine, [(0.0, profile_of(p, len(h)), h) for _, h, p in jobs], sharing)
        assert all(own >= least * (1 - 1e-9) for own, least in zip(found, alone, strict=True))


def alone_s(machine: Machine, hosts: list[int], phases: list[Any], sharing: Sharing) -> float:
    """Return how long a job takes alone, by the closed form of the documentation."""
    total = 0.0
    for one in phases:
        if isinstance(one, float):
            total += one
            continue
        task = reference.task(machine, hosts, *one, sharing == "simgrid")
        asked: dict[tuple[str, int], float] = {}
        for resource, amount in task.uses:
            asked[resource] = asked.get(resource, 0.0) + amount
        tightest = (amount / reference.capacity(machine, r) for r, amount in asked.items())
        total += task.latency + max([1 / task.bound, *tightest])
    return total


@pytest.mark.parametrize("sharing", SHARINGS)
@settings(max_examples=100, deadline=None)
@given(cases())
def test_a_job_alone_takes_as_long_as_its_closed_form(sharing: Sharing, case: Any) -> None:
    machine, jobs = case
    for start, hosts, phases in jobs:
        own = ends(machine, [(start, profile_of(phases, len(hosts)), hosts)], sharing)
        assert own == pytest.approx([start + alone_s(machine, hosts, phases, sharing)], rel=1e-9)


def test_a_job_alone() -> None:
    machine = star(latency=0.001)
    assert ends(machine, [(1.0, HomogeneousTask(cpu=5e9, com=0.0), [0, 1])]) == [6.0]
    # 2 ms of latency; at most 4 MiB on their way in a round trip, which is 4 ms: 1.05 GB/s
    assert ends(machine, [(0.0, send(2e9), [0, 1])]) == pytest.approx([2.002])


def test_two_flows_share_a_link() -> None:
    machine = star()
    jobs = [(0.0, send(1e9), [0, 1]), (0.0, send(1e9), [0, 2])]
    assert ends(machine, jobs) == [2.0, 2.0]


def test_a_job_of_many_flows_gets_as_much_as_a_job_of_one() -> None:
    machine = star(4)
    com = np.zeros((4, 4))
    com[0, 1:] = 1e9
    many = ParallelTask(cpu=None, com=com)
    # Each has half of the link of host 0 until the small one is done at 2 s.
    assert ends(machine, [(0.0, many, [0, 1, 2, 3]), (0.0, send(1e9), [0, 1])]) == [4.0, 2.0]


def test_a_job_held_back_by_its_network_leaves_its_cores_to_others() -> None:
    machine = star(3)
    both = ParallelTask(cpu=np.array([1e9, 0.0]), com=np.array([[0.0, 4e9], [0.0, 0.0]]))
    other = HomogeneousTask(cpu=3e9, com=0.0)
    assert ends(machine, [(0.0, both, [0, 1]), (0.0, other, [0])], "fair") == [4.0, 4.0]


def test_a_core_is_the_most_that_a_rank_computes_on() -> None:
    assert ends(star(1, cores=4), [(0.0, HomogeneousTask(cpu=1e9, com=0.0), [0])]) == [1.0]
    assert ends(star(1, cores=2), [(0.0, HomogeneousTask(cpu=1e9, com=0.0), [0] * 4)]) == [2.0]


def test_sequences_repeat_and_nest() -> None:
    inner = Sequence(parts=(Delay(duration_s=1.0), HomogeneousTask(cpu=2e9, com=0.0)), repeat=3)
    job = Sequence(parts=(inner, Delay(duration_s=0.5)), repeat=2)
    assert ends(star(), [(0.0, job, [0, 1])]) == [19.0]


def test_a_failing_part_ends_the_job() -> None:
    network, builder = Network(star()), PhaseBuilder(star())
    failing = Delay(duration_s=2.0, exit_code=3)
    inner = Sequence(parts=(Delay(duration_s=1.0), failing), repeat=5)
    job = Sequence(parts=(inner, Delay(duration_s=9.0)), repeat=2)
    network.start("job", 0.0, builder.build(job, [0]))
    (ended,) = network.advance(math.inf)
    assert (ended.job, ended.time_s, ended.exit_code) == ("job", 3.0, 3)


def test_storages_are_read_written_and_staged() -> None:
    machine = star(4)
    machine.host_speed[3] = 0.0
    both = StorageTransfer(read=1e9, write=2e9, storage="h3")
    assert ends(machine, [(0.0, both, [0, 1])]) == [6.0]  # all through the link of host 3
    assert ends(machine, [(0.0, Staging(amount=1e9, source="h3", target="h2"), [0])]) == [1.0]
    with pytest.raises(ConfigError, match="storage 'pfs'"):
        PhaseBuilder(machine).build(StorageTransfer(read=1.0, write=0.0, storage="pfs"), [0])


def test_usage_traces_use_cores_line_by_line() -> None:
    machine = star(2, cores=10)
    half = Usage(usage=np.array([0.5, 1.0, 0.0]), flops=np.array([2e9, 1e9, 1e9]))
    short = Usage(usage=np.array([1.0]), flops=np.array([1e9]))
    trace = UsageTrace(ranks=(half, short))
    assert ends(machine, [(0.0, trace, [0, 1])]) == [4.0]
    assert ends(machine, [(0.0, Sequence(parts=(trace, trace), repeat=2), [0, 1])]) == [16.0]
    # Five more ranks on a host of ten cores take no more than what is free.
    five = HomogeneousTask(cpu=2e9, com=0.0)
    assert ends(machine, [(0.0, trace, [0, 1]), (0.0, five, [0] * 5)])[1] == 2.0


def mpi(*ranks: str, placement: tuple[int, ...] | None = None) -> SmpiTrace:
    """A trace from one text a rank, such as ``compute 1e9; send 1 0 1e9``."""
    actions = [[one.split() for one in rank.split(";")] for rank in ranks]
    return SmpiTrace(
        ranks=tuple(tuple((name, tuple(map(float, n))) for name, *n in own) for own in actions),
        placement=placement,
    )


def test_mpi_ranks_wait_for_messages() -> None:
    there_and_back = mpi("compute 1e9; send 1 0 2e9; recv 1 7 1e9", "recv 0 0 2e9; send 0 7 1e9")
    assert ends(star(), [(0.0, there_and_back, [0, 1])]) == [4.0]
    twice = Sequence(parts=(there_and_back, Delay(duration_s=1.0)), repeat=3)
    assert ends(star(), [(0.0, twice, [0, 1])]) == [15.0]
    on_one = ends(star(), [(0.0, there_and_back, [0])])
    assert on_one == [1.0]  # messages within a host take no time here
    turned = mpi("compute 1e9", "compute 3e9", placement=(1, 0))
    busy = HomogeneousTask(cpu=3e9, com=0.0)
    assert ends(star(), [(0.0, turned, [0, 1]), (0.0, busy, [0])])[0] == 6.0


def test_mpi_collectives_are_one_task_of_all_ranks() -> None:
    machine = star(4, latency=0.001)
    machine.gamma = math.inf
    calls = "bcast 1000000000 0 6; barrier; alltoall 500000000 500000000 6 6; reduce 1e9 1e9 1 6"
    trace = mpi(*[calls] * 4)
    # 3 s on the root's link; 2 latencies; 3 s on each link both ways; 3 s of data or 1 s of flops
    expected = (3 + 2 * 0.001) + (2 * 0.002 + 2e-9 * 3) + 3 + (3 + 0.002)
    assert ends(machine, [(0.0, trace, [0, 1, 2, 3])]) == pytest.approx([expected], abs=0.01)


def test_mpi_traces_that_cannot_end_are_refused() -> None:
    for trace, what in (
        (mpi("send 1 0 1e9", "compute 1"), "rank 0 sends a message that rank 1 never receives"),
        (mpi("compute 1", "recv 0 0 1e9"), "rank 1 receives a message from rank 0 that is never"),
        (mpi("barrier", "compute 1"), "do not call the same collectives"),
        (mpi("send 5 0 1e9"), "rank 5, which does not exist"),
    ):
        with pytest.raises(ConfigError, match=what):
            PhaseBuilder(star()).build(trace, [0, 1])
    # Each waits for the other's message first: nothing is left that could happen.
    circular = mpi("recv 1 0 1; send 1 0 1", "recv 0 0 1; send 0 0 1")
    assert ends(star(), [(0.0, circular, [0, 1])]) == [math.inf]


def test_tasks_that_need_nothing_end_at_once() -> None:
    for what in (HomogeneousTask(cpu=0.0, com=0.0), ParallelTask(cpu=None, com=None)):
        assert ends(star(), [(3.0, what, [0, 1])]) == [3.0]
    assert ends(star(), [(3.0, Sequence(parts=()), [0])]) == [3.0]


def test_a_task_of_other_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 ranks cannot run on 3 nodes"):
        PhaseBuilder(star()).build(send(1.0), [0, 1, 2])


def test_a_host_without_speed_never_computes() -> None:
    machine = star(1)
    machine.host_speed[0] = 0.0
    assert ends(machine, [(0.0, HomogeneousTask(cpu=1.0, com=0.0), [0])]) == [math.inf]


def test_thousands_of_jobs_need_no_more_rows_than_those_that_run() -> None:
    machine = star(4)
    network, builder = Network(machine), PhaseBuilder(machine)
    for number in range(3000):
        network.advance(float(number))
        network.start(
            number, float(number), builder.build(send(1e9), [number % 4, (number + 1) % 4])
        )
    network.advance(math.inf)
    assert network.running == []
    assert len(network._arrays["uses"]) <= 64
