"""Many environments in one call are the single ones, and each is the one simulation."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from hpctwin import Cluster, errors, generate, simulate
from hpctwin.engine.agents.agent_record import agent_at, put_seen
from hpctwin.learn import (
    BackfillingEnv,
    Curriculum,
    Episodes,
    Generated,
    JobSelectionEnv,
    Observation,
    PowerManagementEnv,
    SimulationEnv,
    many,
)
from hpctwin.metrics import with_job_metrics
from hpctwin.model import Failures, Mode, NodeGroup, Outage, Sleep, Transition, Workload

NODES = 16
WORKLOAD = generate("poisson", jobs=400, nodes=NODES, seed=4, load=0.9)
ASLEEP = Sleep(
    name="off",
    power_w=10.0,
    switch_off=Transition(time=60.0, power_w=80.0),
    switch_on=Transition(time=300.0, power_w=150.0),
)


def machine(**options: Any) -> Cluster:
    modes = {"base": Mode(power_w=200.0, idle_w=100.0)}
    group = NodeGroup(name="all", count=NODES, modes=modes, sleep=(ASLEEP,))
    return Cluster(name="powered", nodes=(group,), **options)


KINDS: dict[str, tuple[type[SimulationEnv], dict[str, Any]]] = {
    "selection": (JobSelectionEnv, {"window": 16}),
    "selection, backfilling": (JobSelectionEnv, {"window": 16, "backfilling": True}),
    "rlscheduler": (JobSelectionEnv, {"observation": "rlscheduler", "backfilling": "rlscheduler"}),
    "delays": (JobSelectionEnv, {"observation": "delays", "backfilling": True}),
    "backfilling": (BackfillingEnv, {"window": 16}),
    "backfilling, not strict": (BackfillingEnv, {"window": 16, "strict": False}),
    "power": (PowerManagementEnv, {"cluster": machine()}),
    "power, at instants": (PowerManagementEnv, {"cluster": machine(), "every_s": None}),
    "power, levels": (PowerManagementEnv, {"cluster": machine(), "levels": 5}),
    "power, seen by levels": (
        PowerManagementEnv,
        {"cluster": machine(), "levels": 5, "observation": "levels"},
    ),
    "power, reserve": (
        PowerManagementEnv,
        {"cluster": machine(), "action": "reserve", "reward": "jobs"},
    ),
    "power, spars": (PowerManagementEnv, {"cluster": machine(), "preset": "spars"}),
    "power, nodes": (PowerManagementEnv, {"cluster": machine(), "preset": "nodes"}),
}


def made(name: str, jobs: int = 30, **more: Any) -> SimulationEnv:
    kind, options = KINDS[name]
    return kind(WORKLOAD, **{"cluster": NODES, "jobs": jobs, **options, **more})


def some_action(environment: SimulationEnv, rng: np.random.Generator) -> Any:
    if environment.task.chosen == "place":
        return int(rng.choice(np.flatnonzero(environment.action_masks())))
    found = rng.random(1, np.float32)
    if isinstance(environment.action_space, gymnasium.spaces.Discrete):
        return int(rng.integers(environment.action_space.n))
    if environment.task.chosen == "share":
        return found
    return (rng.random(NODES) < 0.7).astype(np.int8)


@pytest.mark.parametrize("name", KINDS)
def test_gymnasiums_checker_has_nothing_to_say(name: str) -> None:
    check_env(made(name), skip_render_check=True)


@pytest.mark.parametrize("name", KINDS)
def test_two_runs_with_one_seed_are_equal_and_what_is_seen_is_of_the_space(name: str) -> None:
    def played() -> list[Any]:
        environment, rng = made(name), np.random.default_rng(3)
        seen, _ = environment.reset(seed=11)
        found, over = [seen.tobytes()], False
        while not over:
            assert environment.observation_space.contains(seen)
            seen, reward, ended, cut, told = environment.step(some_action(environment, rng))
            over = ended or cut
            found += [seen.tobytes(), reward, environment.action_masks().tobytes()]
        return [*found, told]

    assert played() == played()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_many_are_the_same_as_each_alone(name: str, threads: int) -> None:
    kind, options = KINDS[name]
    given_ = {"cluster": NODES, "jobs": 30, **options}
    vector = many(kind, WORKLOAD, num_envs=5, threads=threads, **given_)
    alone = [made(name) for _ in range(5)]
    drawn = np.random.default_rng(2)
    seen, _ = vector.reset(seed=2)
    for environment in alone:
        jobs = environment.episodes.draw(drawn).make()
        environment.reset(options={"jobs": jobs})
    rng, begun = np.random.default_rng(5), 5
    while begun < 9:
        actions = [some_action(environment, rng) for environment in alone]
        before = seen.copy(), seen
        seen, rewards, ended, cut, infos = vector.step(np.array(actions))
        assert np.array_equal(*before)  # what was seen stays until the step after the next
        for number, (environment, action) in enumerate(zip(alone, actions, strict=True)):
            own, reward, over, short, told = environment.step(action)
            assert (rewards[number], ended[number], cut[number]) == (reward, over, short)
            if over or short:
                assert np.array_equal(infos["final_obs"][number], own)
                assert infos["final_info"][number] == told
                own, _ = environment.reset(
                    options={"jobs": environment.episodes.draw(drawn).make()}
                )
                begun += 1
            assert np.array_equal(seen[number], own)
            if vector.task.masked:
                mask = environment.action_masks()
                assert np.array_equal(infos["action_mask"][number], mask)
    vector.close()


@pytest.mark.parametrize(("options", "backfill"), [({}, "none"), ({"backfilling": True}, "easy")])
@pytest.mark.parametrize("first", [3, 120])
def test_always_the_first_job_is_the_engines_own_policy(
    options: dict[str, Any], backfill: str, first: int
) -> None:
    environment = JobSelectionEnv(WORKLOAD, machine(), jobs=150, **options)
    environment.reset(options={"first": first})
    over = False
    while not over:
        *_, over, _, told = environment.step(0)
    own = simulate(environment.episodes.beginning_at(first), machine(), "fcfs", backfill)
    check_same(environment, own, told)


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
def test_selecting_no_job_is_no_backfilling_and_selecting_the_first_allowed_is_easy(
    order: str,
) -> None:
    for choose, backfill in (
        (lambda mask: len(mask) - 1, "none"),
        (lambda mask: int(np.argmax(mask)), "easy"),
    ):
        environment = BackfillingEnv(WORKLOAD, machine(), jobs=150, order=order)
        environment.reset(options={"first": 9})
        over, decisions = False, 0
        while not over:
            *_, over, _, told = environment.step(choose(environment.action_masks()))
            decisions += 1
        own = simulate(environment.episodes.beginning_at(9), machine(), order, backfill)
        assert decisions > 20
        check_same(environment, own, told)


@pytest.mark.parametrize("every_s", [600.0, 1800.0, None])
@pytest.mark.parametrize("name", ["power", "power, nodes", "power, spars"])
def test_always_all_nodes_on_is_the_engine_joule_for_joule(
    name: str, every_s: float | None
) -> None:
    environment = made(name, jobs=120, every_s=every_s)
    environment.reset(options={"first": 9})
    on = np.ones(environment.action_space.shape or (), np.float32)
    over = False
    while not over:
        *_, over, _, told = environment.step(on)
    own = simulate(environment.episodes.beginning_at(9), machine(), "fcfs+easy")
    check_same(environment, own, told)


@given(share=st.floats(0.3, 1.0), first=st.integers(0, 200), coming=st.booleans())
@settings(max_examples=12, deadline=None)
def test_always_one_share_is_a_control_function_joule_for_joule(
    share: float, first: int, coming: bool
) -> None:
    """The same rule written down in Python, asked by the engine at the same times."""
    from hpctwin.energy import Orders

    every_s = 900.0
    due = [0.0]

    def control(view: Any) -> Orders:
        if view.now_s < due[0]:
            return Orders(next_call_s=due[0])
        due[0] = (view.now_s // every_s + 1) * every_s
        on = len(view.nodes("idle")) + len(view.nodes("computing"))
        if coming:
            on += len(view.nodes("switching_on"))
        target = int(np.rint(float(np.float32(share)) * NODES))
        if on > target:
            return Orders(off=view.nodes("idle")[: on - target].tolist(), next_call_s=due[0])
        return Orders(on=view.nodes("sleeping")[: target - on].tolist(), next_call_s=due[0])

    environment = PowerManagementEnv(
        WORKLOAD,
        machine(),
        jobs=40,
        every_s=every_s,
        action="share" if coming else "share-spars",
    )
    jobs = environment.episodes.beginning_at(first)
    if jobs.nodes.max() > np.rint(share * NODES):
        share = 1.0
    environment.reset(options={"jobs": jobs})
    over = False
    while not over:
        *_, over, cut, told = environment.step(np.array([share], np.float32))
        assert not cut
    own = simulate(jobs, machine(), "fcfs+easy", power=control)
    check_same(environment, own, told)


def check_same(environment: SimulationEnv, own: Any, told: dict[str, Any]) -> None:
    """The environment's simulation went as one without it, and tells so."""
    found = environment.simulation.result()
    for column in ("start_s", "end_s"):
        assert found.jobs[column].to_list() == own.jobs[column].to_list()
    if own.energy is not None:
        assert found.energy.total_j == own.energy.total_j
        assert told["energy_j"] == pytest.approx(own.energy.total_j, rel=1e-12)
    served = with_job_metrics(own.jobs)
    assert told["mean_wait_s"] == pytest.approx(served["wait_s"].mean())
    assert told["mean_bounded_slowdown"] == pytest.approx(served["bounded_slowdown"].mean())


def test_waste_and_waits_of_all_steps_are_those_of_the_episode() -> None:
    environment = PowerManagementEnv(
        WORKLOAD, machine(), jobs=60, preset="spars", alpha=64.0, beta=0.0
    )
    environment.reset(options={"first": 0})
    rng, over, wasted = np.random.default_rng(1), False, 0.0
    while not over:
        share = rng.uniform(0.5, 1.0, 1).astype(np.float32)
        _, reward, over, cut, _ = environment.step(share)
        assert not cut
        wasted -= reward
    energy = environment.simulation.result().energy
    assert energy is not None
    assert wasted == pytest.approx(energy.node_j[energy.is_waste].sum())


@pytest.mark.parametrize(
    ("submit", "cancel"), [([0, 10], [-1, 2000]), ([5000, 5010], [-1, -1]), ([0, 10], [-1, 10])]
)
def test_the_energy_of_an_episode_is_that_of_the_result(
    submit: list[int], cancel: list[int]
) -> None:
    cluster = Cluster.uniform(
        2, active_w=190, idle_w=90, sleep_w=9, off_s=6, off_w=90, on_s=30, on_w=150
    )
    jobs = Workload.build(
        submit_s=submit, runtime_s=[50, 5], walltime_s=[50, 5], nodes=[1, 2], cancel_s=cancel
    )
    for kind, action in ((PowerManagementEnv, np.ones(1)), (JobSelectionEnv, 0)):
        environment = kind(jobs, cluster, jobs=2)
        environment.reset(options={"jobs": jobs})
        over = False
        while not over:
            *_, over, _, info = environment.step(action)
        assert info["energy_j"] == environment.simulation.result().energy.total_j


def test_slowdown_of_all_steps_is_the_mean_of_wait_over_run_time() -> None:
    environment = JobSelectionEnv(WORKLOAD, NODES, jobs=60, reward="slowdown")
    environment.reset(options={"first": 5})
    rng, over, earned = np.random.default_rng(1), False, 0.0
    while not over:
        action = rng.choice(np.flatnonzero(environment.action_masks()))
        _, reward, over, *_ = environment.step(action)
        earned += reward
    jobs = with_job_metrics(environment.simulation.result().jobs)
    own = jobs["wait_s"] / jobs["run_s"].clip(10.0)
    assert -earned == pytest.approx(own.mean())


@pytest.mark.parametrize("kind", [JobSelectionEnv, BackfillingEnv])
@given(first=st.integers(0, 100))
@settings(max_examples=5, deadline=None)
def test_relative_slowdown_of_always_the_shortest_that_can_is_one(kind: Any, first: int) -> None:
    # So many at once that somebody waits.
    jobs = WORKLOAD.take(np.arange(first, first + 40)).scale(3.0, NODES)
    environment = kind(jobs, NODES, jobs=40, window=40, order="sjf", reward="relative")
    environment.reset(options={"first": 0})
    total, over = 0.0, False
    while not over:
        place = int(np.argmax(environment.action_masks()))
        _, earned, over, _, _ = environment.step(place)
        total += earned
    assert total == pytest.approx(-1.0)


def check_queue(environment: SimulationEnv, seen: Any) -> None:
    """What SPARS's numbers say of the queue is so, looked at job by job."""
    state = environment.simulation.state
    jobs = state["job"][state["queue"][: state.clock.queued]]
    assert seen[0] == len(jobs)
    assert seen[2] == np.float32(jobs["limit"].sum() / 1000.0)
    assert seen[3] == jobs["nodes"].sum()


def test_the_queue_is_seen_as_it_is_after_any_arrival_and_departure() -> None:
    outages = tuple(Outage(node=n, start=3000.0 * (n + 1), duration=900.0) for n in range(NODES))
    failing = machine(failures=Failures(outages=outages, on_failure="requeue"))
    rng = np.random.default_rng(2)
    first = WORKLOAD.take(np.arange(80)).scale(2.0, NODES)
    # Some users lose patience while their jobs wait.
    given_up = first.submit_ms + rng.integers(60_000, 3_600_000, len(first))
    jobs = first.replace(cancel_ms=np.where(rng.random(len(first)) < 0.3, given_up, -1))
    environment = PowerManagementEnv(jobs, failing, jobs=80, preset="spars", every_s=60.0)
    seen, _ = environment.reset(options={"jobs": jobs})
    over, lengths = False, set()
    while not over:
        check_queue(environment, seen)
        lengths.add(float(seen[0]))
        seen, _, ended, cut, _ = environment.step(rng.uniform(0.3, 1.0, 1).astype(np.float32))
        over = ended or cut
    result = environment.simulation.result()
    assert len(lengths) > 5
    assert (result.jobs["requeues"] > 0).any()
    assert (result.jobs["state"] == "cancelled").any()


def test_failures_and_shared_power_states_are_those_of_the_simulation() -> None:
    failing = machine(
        failures=Failures(
            outages=(Outage(node=2, start=5000.0, duration=4000.0),), on_failure="requeue"
        )
    )
    environment = PowerManagementEnv(WORKLOAD, failing, jobs=60)
    environment.reset(options={"first": 0})
    over = False
    while not over:
        *_, over, _, told = environment.step(np.ones(1, np.float32))
    own = simulate(environment.episodes.beginning_at(0), failing, "fcfs+easy")
    check_same(environment, own, told)


def test_an_episode_is_truncated_after_its_number_of_steps() -> None:
    environment = made("selection", max_steps=7)
    environment.reset(seed=1)
    ends = [environment.step(0)[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]


def test_a_curriculum_goes_from_one_stage_to_the_next() -> None:
    cluster = Cluster.uniform(NODES)
    stages = [
        (2, Generated(cluster, jobs=5)),
        (1, Episodes.of(WORKLOAD, cluster, jobs=7)),
        (1, Episodes.of(WORKLOAD, cluster, jobs=9)),
    ]
    environment = JobSelectionEnv(Curriculum(stages))
    sizes = []
    environment.reset(seed=3)
    for _ in range(6):
        sizes.append(len(environment.simulation.workload))
        environment.reset()
    assert sizes == [5, 5, 7, 9, 9, 9]


def test_load_and_walltimes_vary_as_asked() -> None:
    episodes = Episodes.of(WORKLOAD, NODES, jobs=100, load=(0.5, 0.6), walltimes="uniform:1:3")
    rng = np.random.default_rng(1)
    for _ in range(3):
        jobs = episodes.draw(rng).make()
        span = jobs.submit_ms[-1] - jobs.submit_ms[0]
        load = np.dot(jobs.runtime_ms.astype(float), jobs.nodes) / (NODES * span)
        ratio = jobs.walltime_ms / jobs.runtime_ms
        assert 0.49 < load < 0.61
        assert 1.0 <= ratio.min() < 1.5 < 2.5 < ratio.max() <= 3.01


def test_a_custom_reward_and_a_custom_observation_are_compiled() -> None:
    from hpctwin.engine.agents.agent_record import agent_at, put_seen

    def queue_length(agent: int, sim: Any) -> None:
        put_seen(agent_at(agent).seen, 0, float(sim.clock.queued))

    def minus_one(agent: int, sim: Any) -> None:
        agent_at(agent).earned = -1.0

    environment = JobSelectionEnv(
        WORKLOAD,
        NODES,
        jobs=20,
        observation=Observation(queue_length, lambda window, nodes: (1,), high=np.inf),
        reward=minus_one,
    )
    seen, _ = environment.reset(seed=1)
    seen, reward, *_ = environment.step(0)
    assert seen.tolist() == [environment.simulation.state.clock.queued]
    assert reward == -1.0


def test_writes_outside_an_array_are_caught_if_bounds_are_checked() -> None:
    # Elsewhere it would be written over something else.
    place = 3 if config.BOUNDSCHECK else 2

    def beyond(agent: int, sim: Any) -> None:
        put_seen(agent_at(agent).seen, place, 1.0)

    seen = Observation(beyond, lambda window, nodes: (3,))
    environment = JobSelectionEnv(WORKLOAD, NODES, jobs=10, observation=seen)
    with pytest.raises(IndexError) if config.BOUNDSCHECK else nullcontext():
        assert environment.reset(options={"first": 0})[0][2] == 1.0


def test_make_vec_makes_many() -> None:
    vector = gymnasium.make_vec(
        "hpctwin/JobSelection-v0",
        3,
        vectorization_mode="vector_entry_point",
        workload=WORKLOAD,
        cluster=NODES,
        jobs=20,
    )
    seen, infos = vector.reset(seed=1)
    assert seen.shape == (3, 128, 8)
    assert infos["action_mask"].shape == (3, 128)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cluster": NODES}, "has no power model; add power and sleep states"),
        ({"policy": "fcfs+easy"}, "use power policy 'orders'"),
        ({"every_s": 0.0}, "above 0"),
        ({"levels": 1}, "2 or more"),
        ({"observation": "levels"}, "needs their number"),
        ({"action": "nodes"}, "action is 'nodes' and observation is .*; set both to 'nodes'"),
        ({"action": "nods"}, "nodes"),
        ({"preset": "spar"}, "spars"),
    ],
)
def test_invalid_power_management_is_reported(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises((errors.ConfigError, errors.UnknownNameError), match=told):
        PowerManagementEnv(WORKLOAD, **{"cluster": machine(), "jobs": 20, **wrong})


def test_a_changing_order_has_no_window() -> None:
    with pytest.raises(errors.ConfigError, match="changes while jobs are pending"):
        BackfillingEnv(WORKLOAD, NODES, order="wfp")
