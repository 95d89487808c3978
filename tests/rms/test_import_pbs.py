"""A PBS site's own files as a machine and the policy ``pbs``: real ones of OpenPBS 23.06, and made ones."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import pytest

from hpctwin import simulate
from hpctwin.policies import parse_policy
from hpctwin.policies.formulas import FUNCTIONS, PBS_NAMES
from hpctwin.rms.pbs.site.ordering import TERMS
from hpctwin.rms.pbs.site.recognition import pbsnodes_text
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms
from tests.by_hand import jobs, labels

PBS = Path(__file__).parent / "recorded" / "pbs-site"
QUEUES = "create queue a\nset queue a Priority = 10\ncreate queue b\nset queue b Priority = 20\n"
WORKQ = "create queue workq\nset queue workq queue_type = Execution\n"


def site(tmp_path: Path, sched: str = "", server: str = "", queues: str = WORKQ) -> Imported:
    """What comes of four nodes of one core each, lines of sched_config and of qmgr."""
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(PBS / "pbsnodes.txt", folder)
    if sched:
        (folder / "sched_config").write_text(f"{sched}\nsmp_cluster_dist: pack\n")
    (folder / "server").write_text(f"{queues}set server scheduling = True\n{server}\n")
    return import_site("pbs", folder)


def policy(made: Imported) -> str:
    return parse_policy(made.site.policy).name


def became(made: Imported, what: str) -> dict[str, str]:
    """Why settings became something, by name and value."""
    return {f"{s.name}: {s.value}": s.why for s in made.site.settings if s.became == what}


def test_a_real_pbs_s_files_give_its_cluster_and_its_policy():
    made = import_site("pbs", PBS)
    assert [(g.count, g.cores, g.memory_gb) for g in made.site.cluster.nodes] == [(4, 1, 1.0)]
    assert [(p.name, p.default) for p in made.site.cluster.partitions] == [("workq", True)]
    assert policy(made) == "fcfs+pbs"
    assert became(made, NOT_MODELED)["preemptive_sched: true"] == "no job is preempted"
    assert "scheduler_iteration: 600" in became(made, IMPORTED)
    assert "strict_ordering: false" in became(made, IMPORTED)
    # Each line of the file is told, whatever became of it.
    written = [line for line in (PBS / "sched_config").read_text().splitlines() if ":" in line]
    told = [s for s in made.site.settings if s.where.startswith("sched_config")]
    assert len(told) == sum(not line.startswith("#") for line in written)


@pytest.mark.parametrize(
    ("sched", "server", "expected"),
    [
        ("", "", "fcfs+pbs"),
        ("strict_ordering: true ALL\nby_queue: true ALL", "", "fcfs+pbs:strict_ordering=yes"),
        (
            "strict_ordering: True",
            "set server backfill_depth = 4\nset server scheduler_iteration = 60",
            "fcfs+pbs:strict_ordering=yes,backfill_depth=4,scheduler_iteration=1m,by_queue=no",
        ),
        (
            "strict_ordering: 1\nbackfill: false ALL\nround_robin: true",
            "",
            "fcfs+pbs:strict_ordering=yes,backfill_depth=0,by_queue=no,round_robin=yes",
        ),
        ("by_queue: true", "set server backfill_depth = 9", "fcfs+pbs"),
        ('by_queue: true\njob_sort_key: "ncpus HIGH" ALL', "", "-ncpus+pbs"),
        ("by_queue: true\njob_sort_key: 'job_priority HIGH'", "", "-job_priority+pbs"),
        (
            'by_queue: true\njob_sort_key: "ncpus HIGH"\njob_sort_key: "walltime LOW"',
            "",
            f"-ncpus*{2**26} + walltime+pbs",
        ),
        ("by_queue: true\nfair_share: true ALL", "", "fairshare+pbs"),
        (
            'by_queue: true\nfair_share: true\njob_sort_key: "nodect LOW"',
            "",
            f"-fairshare*{2**46} + nodect+pbs",
        ),
        (
            "by_queue: true",
            'set server job_sort_formula = "eligible_time*2+nodect"',
            "pbs:eligible_time*2+nodect+pbs",
        ),
        (
            "by_queue: true",
            "set sched default job_sort_formula = 10*mem+eligible_time\n"
            "set server eligible_time_enable = False",
            "pbs:10*(mem*1048576)+0+pbs",
        ),
        (
            "by_queue: true",
            "set server job_sort_formula = eligible_time\n"
            "set sched default job_sort_formula_threshold = 3600.5",
            "pbs:(eligible_time) if (eligible_time) > 3600.5 else -1e999+pbs",
        ),
    ],
)
def test_ordering_and_cycles_are_as_the_settings_say(tmp_path, sched, server, expected):
    assert policy(site(tmp_path, sched, server)) == expected


def test_settings_of_prime_time_hold_and_others_are_reported_by_name(tmp_path):
    made = site(
        tmp_path,
        "by_queue: True prime\nby_queue: False non_prime\n"
        "fair_share: false prime\nfair_share: False non_prime\n"
        "strict_ordering: true ALL  # as agreed\nround_robin: true none",
    )
    assert policy(made) == "fcfs+pbs:strict_ordering=yes"
    left = became(made, NOT_MODELED)
    assert left["by_queue: False non_prime"] == "the policy of prime time is used all day"
    assert "fair_share: False non_prime" in became(made, NO_EFFECT)
    assert "round_robin: true none" in became(made, NO_EFFECT)


def test_the_last_line_of_a_parameter_counts_and_all_of_the_sort_keys(tmp_path):
    made = site(
        tmp_path,
        "strict_ordering: true\nstrict_ordering: false\nby_queue: true\n"
        'job_sort_key: "mem LOW"\njob_sort_key: "nodect HIGH"',
    )
    assert policy(made) == f"mem*1024*{2**20} - nodect+pbs"
    assert became(made, NO_EFFECT)["strict_ordering: true"] == "a later line overrides it"


@pytest.mark.parametrize(
    ("sched", "server", "name", "why"),
    [
        ("strict_orderng: true", "", "strict_orderng: true", "Did you mean 'strict_ordering'?"),
        (
            'job_sort_key: "gold HIGH"',
            "",
            "job_sort_key: gold HIGH",
            "jobs cannot be sorted by gold",
        ),
        ('job_sort_key: "ncpus"', "", "job_sort_key: ncpus", "expected a resource and HIGH or LOW"),
        (
            'job_sort_key: "mem LOW"\njob_sort_key: "ncpus LOW"\njob_sort_key: "walltime LOW"',
            "",
            "job_sort_key: walltime LOW",
            "too many sort keys for one number",
        ),
        ("help_starving_jobs: true", "", "help_starving_jobs: true", "PBS 23.06 ignores it"),
        ("by_queue: true", "set server backfill_depth = many", "backfill_depth: many", "default"),
        (
            "by_queue: true",
            "set server scheduler_iteration = 0",
            "scheduler_iteration: 0",
            "not a time above 0",
        ),
        (
            "by_queue: true",
            "set server job_sort_formula = ncpus*gold",
            "job_sort_formula: ncpus*gold",
            "unknown terms in the formula: gold",
        ),
        (
            "by_queue: true",
            'set server job_sort_formula = "ncpus*(2"',
            "job_sort_formula: ncpus*(2",
            "the formula is not valid Python",
        ),
        (
            "by_queue: true",
            "set sched gpu job_sort_formula = ncpus",
            "gpu job_sort_formula: ncpus",
            "other than the default",
        ),
        (
            "by_queue: true",
            "set queue workq backfill_depth = few",
            "queue workq: backfill_depth: few",
            "the server's value is used",
        ),
        (
            "by_queue: true",
            "set server job_sort_formula = ncpus\nset sched job_sort_formula_threshold = high",
            "job_sort_formula_threshold: high",
            "not a number",
        ),
        (
            "by_queue: true",
            "set sched job_sort_formula_threshold = 5",
            "job_sort_formula_threshold: 5",
            "no formula is imported",
        ),
        ("prime_spill: 1:00:00 ALL", "", "prime_spill: 1:00:00", "prime time is not modeled"),
        ("dedicated_prefix: ded", "", "dedicated_prefix: ded", "reservations for dedicated time"),
        (
            "by_queue: true",
            "set sched opt_backfill_fuzzy = high",
            "opt_backfill_fuzzy: high",
            "at the exact time",
        ),
    ],
)
def test_settings_without_a_counterpart_are_named_with_the_reason(
    tmp_path, sched, server, name, why
):
    made = site(tmp_path, sched, server)
    told = became(made, NOT_MODELED) | became(made, NO_EFFECT)
    assert why in told[name]


def test_all_terms_of_formulas_are_known_to_policies():
    assert {*PBS_NAMES, *FUNCTIONS, "walltime"} == TERMS


def test_lines_that_pbs_cannot_read_are_reported(tmp_path):
    made = site(
        tmp_path, "by_queue: true\nbackfil_prime: false ALL\nnonsense\nround_robin: perhaps"
    )
    assert [note for note in made.site.notes if note.startswith("sched_config:")] == [
        "sched_config:2: 'backfil_prime': PBS ignores the line: unknown parameter. "
        "Did you mean 'backfill_prime'?",
        "sched_config:3: 'nonsense': PBS ignores the line: it is not a valid setting",
    ]
    assert policy(made) == "fcfs+pbs:round_robin=yes"
    assert "PBS reads 'perhaps' as true" in became(made, IMPORTED)["round_robin: perhaps"]


def test_queues_go_by_their_priority(tmp_path):
    queues = f"{QUEUES}set queue a resources_max.walltime = 02:00:00\n"
    made = site(tmp_path, "by_queue: True prime", "set server default_queue = a", queues)
    assert {p.name: (p.priority, p.max_walltime) for p in made.site.cluster.partitions} == {
        "a": (10, 7200), "b": (20, None),
    }  # fmt: skip
    assert policy(made) == "fcfs+pbs"
    # One job at a time has room: those of the queue of higher priority come first, whenever they came.
    workload = jobs(
        (0, 10, 10, 4), (1, 10, 10, 4), (2, 10, 10, 4), (3, 10, 10, 4), partition=labels("a", "a", "b", "b")
    )  # fmt: skip
    run = simulate(workload, made.site.cluster, made.site.policy)
    assert run.jobs["start_s"].to_list() == [0, 30, 10, 20]


@pytest.mark.parametrize(
    ("sched", "server", "expected"),
    [
        ("", "", f"submit - {10**12}*(queue_priority >= 150)+pbs:by_queue=no"),
        ("", "set sched preempt_queue_prio = 300", "fcfs+pbs:by_queue=no"),
        ("by_queue: true", "", "fcfs+pbs"),
        ("fair_share: true", "", "-fairshare - 1000000*(queue_priority >= 150)+pbs:by_queue=no"),
        (
            "",
            "set server job_sort_formula = ncpus",
            f"pbs:(ncpus) + {10**12}*(queue_priority >= 150)+pbs:by_queue=no",
        ),
    ],
)
def test_jobs_of_express_queues_go_first(tmp_path, sched, server, expected):
    queues = "create queue a\ncreate queue x\nset queue x Priority = 200\n"
    made = site(tmp_path, f"preemptive_sched: true ALL\n{sched}", server, queues)
    assert policy(made) == expected


def test_a_queue_keeps_its_own_backfill_depth(tmp_path):
    made = site(tmp_path, "strict_ordering: true", "set queue workq backfill_depth = 3")
    assert [p.backfill_depth for p in made.site.cluster.partitions] == [3]
    assert (
        became(made, IMPORTED)["queue workq: backfill_depth: 3"] == "the partition's backfill_depth"
    )


def test_use_is_forgotten_as_fast_as_pbs_does(tmp_path):
    made = site(
        tmp_path, "fair_share: true\nfairshare_decay_time: 12:00:00\nfairshare_decay_factor: 0.25"
    )
    assert made.site.cluster.fairshare.half_life == pytest.approx(6 * 3600)
    assert "fairshare_decay_factor: 0.25" in became(made, IMPORTED)
    other = tmp_path / "other"
    other.mkdir()
    wrong = site(other, "fair_share: true\nfairshare_decay_factor: 7")
    assert math.isclose(wrong.site.cluster.fairshare.half_life, 24 * 3600)


@pytest.mark.parametrize(
    ("lines", "shares", "what", "why"),
    [
        ("ann 60 root 5\nben 61 root 10\n", {"ann": 1.0, "ben": 2.0}, IMPORTED, "fairshare.shares"),
        (
            "# groups\nchem 50 root 10\nphys 51 root 30\nann 60 chem 1\nben 61 chem 1\ncat 62 phys 2\n",
            {"ann": 1.0, "ben": 1.0, "cat": 6.0},
            NOT_MODELED,
            "its part of the whole tree",
        ),
        ("ann 60 root 0\nben 61 root 3\n", {"ben": 1.0}, NOT_MODELED, "1 have no shares"),
    ],
)
def test_shares_are_those_of_resource_group(tmp_path, lines, shares, what, why):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "resource_group").write_text(lines)
    shutil.copy(PBS / "pbsnodes.txt", folder)
    (folder / "sched_config").write_text("fair_share: true ALL\nfairshare_entity: euser\n")
    made = import_site("pbs", folder)
    assert made.files["resource_group"] == "resource_group"
    assert made.site.cluster.fairshare.shares == shares
    (told,) = [s.why for s in made.site.settings if s.name == "resource_group" and s.became == what]
    assert why in told
    # Who has more shares, and has used as much, goes first.
    assert policy(made) == "fairshare+pbs:by_queue=no"
    (folder / "sched_config").write_text("fair_share: true\nfairshare_entity: queue\n")
    other = import_site("pbs", folder)
    assert other.site.cluster.fairshare.shares == {}
    assert became(other, NOT_MODELED)["fairshare_entity: queue"] == "usage is counted per user"


def test_limits_of_the_server_and_of_queues_hold(tmp_path):
    made = site(
        tmp_path,
        "by_queue: true",
        "set server max_run = [u:PBS_GENERIC=5]\nset server max_run += [u:ann=9]\n"
        "set server max_run += [o:PBS_ALL=50]\nset server max_queued = [u:PBS_GENERIC=100]\n"
        "set server max_run_res.mem = [u:bob=4gb]\n"
        "set server max_run_res.gold = [u:PBS_GENERIC=1]\nset server max_run_soft = [u:ann=1]",
        f"{QUEUES}set queue a max_run = [u:PBS_GENERIC=2]\n"
        "set queue a max_run_res.ncpus = [o:PBS_ALL=3]\nset queue b max_run = [g:chem=2]\n",
    )
    shown = [limit.model_dump(exclude_defaults=True) for limit in made.site.cluster.limits]
    assert shown == [
        {"partitions": ("a",), "per": "user", "jobs": 2},
        {"partitions": ("a",), "cores": 3.0},
        {"partitions": ("b",), "account": "chem", "jobs": 2},
        {"partitions": "all", "per": "user", "jobs": 5},
        {"partitions": "all", "user": "ann", "jobs": 9},
        {"partitions": "all", "jobs": 50},
        {"partitions": "all", "per": "user", "submitted": 100},
        {"partitions": "all", "user": "bob", "memory_gb": 4.0},
    ]
    left = became(made, NOT_MODELED)
    assert left["max_run_res.gold: [u:PBS_GENERIC=1]"] == "the limit has no counterpart"
    assert "max_run_soft: [u:ann=1]" not in left
    workload = jobs(
        *[(0, 10, 10, 1)] * 3, partition=labels("a", "a", "a"), user=labels("eve", "eve", "eve")
    )
    run = simulate(workload, made.site.cluster, made.site.policy)
    assert run.jobs["start_s"].to_list() == [0, 0, 10]


RACKS = "".join(
    f"v{n}\n     Mom = v{n}\n     ntype = PBS\n     state = free\n     pcpus = 8\n"
    f"     resources_available.mem = 64gb\n     resources_available.ncpus = 8\n{rack}"
    "     sharing = default_shared\n\n"
    for n, rack in enumerate(
        [f"     resources_available.rack = r{number}\n" for number in (1, 1, 2, 2)]
    )
)
ON = "set server node_group_enable = True\n"


@pytest.mark.parametrize(
    ("server", "queue", "sets", "became_"),
    [
        (f"{ON}set server node_group_key = rack", "", ["rack", None, "rack"], {"node_group_key": IMPORTED}),
        (f"{ON}", "rack", ["rack", None, None], {"queue a: node_group_key": IMPORTED}),
        ("set server node_group_key = rack", "", [None] * 3, {"node_group_key": NO_EFFECT}),
        (f"{ON}set server node_group_key = host", "", [None] * 3, {"node_group_key": NOT_MODELED}),
        (
            f'{ON}set server node_group_key = "rack,row"\nset sched do_not_span_psets = True',
            "", ["rack", None, "rack"], {"node_group_key": NOT_MODELED, "do_not_span_psets": NOT_MODELED},
        ),
    ],
)  # fmt: skip
def test_jobs_get_nodes_of_one_placement_set(tmp_path, server, queue, sets, became_):
    (tmp_path / "pbsnodes.txt").write_text(RACKS)
    (tmp_path / "sched_config").write_text("by_queue: true\n")
    of_queue = f"set queue a node_group_key = {queue}\n" if queue else ""
    (tmp_path / "server").write_text(
        f"create queue a\nset queue a queue_type = Execution\n{of_queue}create queue b\n"
        f"set server scheduling = True\n{server}\n"
    )
    # The second says itself that it is for one host; the third is of queue b.
    of = (("a", "free"), ("a", "group=host"), ("b", "free"))
    (tmp_path / "20260901").write_text(
        "".join(
            f"09/01/2026 10:0{n}:00;E;{n}.s;user=ann queue={name} ctime={1788256800 + n} "
            f"qtime={1788256800 + n} start={1788256900 + n} end={1788257000 + n} "
            f"exec_vnode=(v0:ncpus=8)+(v1:ncpus=8) Resource_List.select=2:ncpus=8 "
            f"Resource_List.place={place} "
            f"Resource_List.ncpus=16 Resource_List.nodect=2 Resource_List.walltime=00:10:00 Exit_status=0\n"
            for n, (name, place) in enumerate(of)
        )
    )
    made = import_site("pbs", tmp_path)
    found = made.jobs.sort("submit_s")
    assert (found["group_by"].to_list() if "group_by" in found.columns else [None] * 3) == sets
    told = {one.name: one.became for one in made.site.settings}
    assert {name: told[name] for name in became_} == became_
    racks = {feature for group in made.site.cluster.nodes for feature in group.features}
    assert racks == ({"rack=r1", "rack=r2"} if "rack" in sets else set())


@pytest.mark.parametrize(
    ("sched", "more", "became_of", "why"),
    [
        ("preemptive_sched: false ALL", "", NO_EFFECT, "only if preemptive_sched is on"),
        ("preemptive_sched: true ALL", "", NO_EFFECT, "soft limits change nothing"),
        (
            "preemptive_sched: true ALL",
            'set sched preempt_prio = "express_queue, normal_jobs, server_softlimits"\n',
            NOT_MODELED,
            "later and preempts them first",
        ),
        (
            'preemptive_sched: true ALL\npreempt_prio: "normal_jobs, queue_softlimits"',
            "",
            NOT_MODELED,
            "later and preempts them first",
        ),
    ],
)
def test_soft_limits_count_where_preemption_names_them(tmp_path, sched, more, became_of, why):
    server = f"{more}set server max_run_soft = [u:PBS_GENERIC=1]"
    queues = "create queue a\nset queue a max_run_res_soft.ncpus = [u:PBS_GENERIC=8]\n"
    told = became(site(tmp_path, sched, server, queues), became_of)
    assert why in told["max_run_soft: [u:PBS_GENERIC=1]"]
    assert why in told["queue a: max_run_res_soft.ncpus: [u:PBS_GENERIC=8]"]


def test_no_user_is_named_where_names_are_replaced(tmp_path):
    made = site(
        tmp_path,
        "fair_share: true",
        "set server max_run = [u:ann=9],[g:chem=2]\nset server max_run_soft = [u:ben=1]",
        "create queue a\nset queue a max_run = [u:cat=2]\n",
    )
    said = str(pseudonyms(made, b"0123456789abcdef").site)
    for name in ("ann", "ben", "cat", "chem"):
        assert re.search(rf"\b{name}\b", said) is None, name
    assert "user-" in said


@pytest.mark.parametrize(
    ("server", "queues", "starts"),
    [
        # What both say of all: 3 in the queue, and 2 at the server.
        ("max_run = [o:PBS_ALL=2]", {"a": "max_run = [o:PBS_ALL=3]"}, [0, 0, 10, 10, 20, 20]),
        ("max_run = [o:PBS_ALL=3]", {"a": "max_run = [o:PBS_ALL=1]"}, [0, 10, 20, 0, 0, 10]),
        # Of each user: ann has three jobs in a, ben one in b and two in c.
        ("max_run = [u:PBS_GENERIC=1]", {"a": "max_run = [u:PBS_GENERIC=2]"}, [0, 10, 20, 0, 10, 20]),
        ("max_run = [u:PBS_GENERIC=2]", {"a": "max_run = [u:PBS_GENERIC=1]"}, [0, 10, 20, 0, 0, 10]),
        ("max_run = [u:PBS_GENERIC=1],[u:ann=3]", {"a": "max_run = [u:PBS_GENERIC=2]"},
         [0, 0, 10, 0, 10, 20]),
        ("max_run = [u:PBS_GENERIC=1],[u:ann=3]", {"a": "max_run = [u:PBS_GENERIC=1],[u:ann=2]"},
         [0, 0, 10, 0, 10, 20]),
        # Of an amount, of which each job has one.
        ("max_run_res.ncpus = [u:PBS_GENERIC=1]", {"a": "max_run_res.ncpus = [u:PBS_GENERIC=2]"},
         [0, 10, 20, 0, 10, 20]),
        ("max_run_res.ncpus = [o:PBS_ALL=3]", {"a": "max_run_res.ncpus = [u:PBS_GENERIC=1]",
         "b": "max_run_res.ncpus = [o:PBS_ALL=1]"}, [0, 10, 20, 0, 0, 10]),
        ("max_run_res.ncpus = [u:PBS_GENERIC=2],[u:ben=1]", {}, [0, 0, 10, 0, 10, 20]),
        ("max_user_run = 1", {"a": "max_running = 1"}, [0, 10, 20, 0, 10, 20]),
        # Of groups, and of projects: x has two jobs, y two, z two; the first of z is in a.
        ("max_run = [g:PBS_GENERIC=1]", {}, [0, 0, 0, 10, 10, 10]),
        ("max_run = [p:PBS_GENERIC=1],[p:x=2]", {}, [0, 0, 0, 0, 10, 10]),
        ("max_run = [g:PBS_GENERIC=2],[u:PBS_GENERIC=1]", {"a": "max_run = [g:y=0]"},
         [0, None, 10, 0, 10, 20]),
        ("max_group_run = 1", {"a": "max_group_res.ncpus = 0"}, [None, None, None, 0, 0, 0]),
    ],
)  # fmt: skip
def test_limits_of_the_server_and_of_a_queue_on_one_thing_both_hold(
    tmp_path, server, queues, starts
):
    lines = "".join(f"create queue {name}\n" for name in "abc")
    lines += "".join(f"set queue {name} {said}\n" for name, said in queues.items())
    made = site(tmp_path, "by_queue: false", f"set server {server}", lines)
    assert not {name for name in became(made, NOT_MODELED) if "max_" in name}
    # Four nodes of a core each would take four at a time; which account they name is the same to PBS.
    workload = jobs(
        *[(0, 10, 10, 1)] * 6,
        partition=labels("a", "a", "a", "b", "c", "c"),
        user=labels("ann", "ann", "ann", "ben", "ben", "ben"),
        account=labels("x", "y", "z", "x", "y", "z"),
    )
    run = simulate(workload, made.site.cluster, made.site.policy)
    assert run.jobs["start_s"].to_list() == starts
    hidden = pseudonyms(made, b"s" * 16).site.cluster
    assert len(hidden.limits) == len(made.site.cluster.limits)


@pytest.mark.parametrize(
    ("said", "became_", "why"),
    [
        ("5", NO_EFFECT, "not a limit that PBS accepts"),
        ("[u:PBS_GENERIC=x]", NOT_MODELED, "not a number"),
    ],
)
def test_a_limit_that_cannot_be_imported_is_reported_by_name(tmp_path, said, became_, why):
    made = site(tmp_path, "by_queue: true", f"set server max_run = {said}")
    assert why in became(made, became_)[f"max_run: {said}"]
    assert made.site.cluster.limits == ()


@pytest.mark.parametrize(
    ("server", "sched", "accounts", "left"),
    [
        ("max_run = [g:PBS_GENERIC=5]", "", ["chem", "phys", "chem"], ""),
        ("max_run = [p:PBS_GENERIC=5]", "", ["p1", "_pbs_project_default", "p1"], ""),
        (
            "max_run = [p:p1=5],[p:p2=3],[g:chem=2]",
            "",
            ["p1", "_pbs_project_default", "p1"],
            "g:chem",
        ),
        ("max_run = [g:chem=5],[p:p1=5]", "", ["chem", "phys", "chem"], "p:p1"),
        (
            "max_run = [u:ann=5]",
            "fair_share: true\nfairshare_entity: egroup",
            ["chem", "phys", "chem"],
            "",
        ),
        ("max_run = [u:ann=5]", "", ["x", None, "p1"], ""),
    ],
)
def test_jobs_accounts_are_what_limits_or_fair_shares_are_of(
    tmp_path, server, sched, accounts, left
):
    site(tmp_path, sched, f"set server {server}")
    of = (
        "account=x project=p1 group=chem", "project=_pbs_project_default group=phys", "group=chem project=p1"
    )  # fmt: skip
    (tmp_path / "site" / "20260901").write_text(
        "".join(
            f"09/01/2026 10:0{n}:00;E;{n}.s;user=ann {said} queue=workq ctime={1788256800 + n} "
            f"qtime={1788256800 + n} start={1788256900 + n} end={1788257000 + n} exec_vnode=(n1:ncpus=1) "
            f"Resource_List.ncpus=1 Resource_List.nodect=1 Resource_List.walltime=00:10:00 Exit_status=0\n"
            for n, said in enumerate(of)
        )
    )
    made = import_site("pbs", tmp_path / "site")
    assert made.jobs.sort("submit_s")["account"].to_list() == accounts
    named = [one for one in made.site.settings if one.name == "max_run"]
    assert [one.became for one in named] == [NOT_MODELED if left else IMPORTED]
    assert left in named[0].why


def test_nodes_that_are_shared_are_chosen_as_node_sort_key_says(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    recorded = Path(__file__).parent / "recorded" / "openpbs-23.06-shared-pbsnodes.json"
    shutil.copy(recorded, folder)
    for key, placement in (
        ("HIGH unused", "@spread"),
        ("LOW unused", "@best-fit"),
        ("HIGH", "@weight"),
    ):
        (folder / "sched_config").write_text(f'by_queue: true\nnode_sort_key: "ncpus {key}" ALL\n')
        made = import_site("pbs", folder)
        assert policy(made) == f"fcfs+pbs{placement}"


@pytest.mark.parametrize(
    ("keys", "placement", "weights", "left"),
    [
        (("mem HIGH",), "@weight", [1, 0, 2], {}),
        (("sort_priority HIGH",), "@weight", [1, 1, 0], {}),
        (("sort_priority LOW total", "mem LOW"), "@weight", [0, 1, 2], {}),
        (("gold HIGH", "ncpus LOW"), "@weight", [1, 1, 0], {}),
        (("ngpus HIGH", "ncpus LOW unused"), "@best-fit", [0, 0, 0], {}),
        (
            ("mem HIGH", "ncpus LOW unused"),
            "@weight",
            [1, 0, 2],
            {"ncpus LOW unused": "is modeled only for ncpus"},
        ),
        (("mem HIGH unused",), "", [0, 0, 0], {"mem HIGH unused": "is modeled only for ncpus"}),
        (
            ("mem UP", "mem HIGH most"),
            "",
            [0, 0, 0],
            {"mem UP": "PBS ignores", "mem HIGH most": "PBS ignores"},
        ),
    ],
)
def test_vnodes_are_tried_in_the_order_of_all_keys(tmp_path, keys, placement, weights, left):
    """Three vnodes of 8 cores: 64, 128 and 32 GB, the last with gold and the greatest priority."""
    rows = (
        ("v1", "64gb", "", 0),
        ("v2", "128gb", "", 0),
        ("v3", "32gb", "     resources_available.gold = 4\n", 5),
    )
    (tmp_path / "pbsnodes.txt").write_text(
        "\n".join(
            f"{name}\n     Mom = {name}\n     ntype = PBS\n     state = free\n     pcpus = 8\n"
            f"     Priority = {priority}\n     resources_available.mem = {mem}\n"
            f"     resources_available.ncpus = 8\n{more}     sharing = default_shared\n"
            for name, mem, more, priority in rows
        )
    )
    (tmp_path / "sched_config").write_text(
        "by_queue: true\n" + "".join(f'node_sort_key: "{key}" ALL\n' for key in keys)
    )
    made = import_site("pbs", tmp_path)
    assert policy(made) == f"fcfs+pbs{placement}"
    weight = {group.memory_gb: group.weight for group in made.site.cluster.nodes}
    assert [weight[memory] for memory in (64, 128, 32)] == weights
    told = [one for one in made.site.settings if one.name == "node_sort_key"]
    assert {one.value: one.became for one in told if one.became == NOT_MODELED} == dict.fromkeys(
        left, NOT_MODELED
    )
    assert len(told) == len(keys)
    for one in told:
        assert left.get(one.value, "") in one.why


def test_the_policy_s_text_reads_back_and_a_formula_of_pbs_s_is_still_one():
    for text in (
        "fcfs+pbs:strict_ordering=yes,backfill_depth=5,scheduler_iteration=5m,round_robin=yes",
        "pbs:eligible_time",
        "pbs:eligible_time+pbs:strict_ordering=yes",
        "pbs:ncpus*(nodect == 1)+pbs",
    ):
        assert parse_policy(parse_policy(text).name).name == parse_policy(text).name
    assert parse_policy("pbs:eligible_time").backfill == "easy"
    assert parse_policy("pbs").name == "fcfs+pbs"
    assert parse_policy("pbs:strict_ordering=yes").name == "fcfs+pbs:strict_ordering=yes"


def test_a_node_s_attribute_without_a_value_is_empty():
    text = "n1\n     state = free\n     comment = \n     resources_available.ncpus = 4\n"
    assert pbsnodes_text(text) == {
        "n1": {"state": "free", "comment": "", "resources_available": {"ncpus": "4"}}
    }
