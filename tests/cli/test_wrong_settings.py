"""Files that people write: what is wrong in one is told in a line with file, line, field and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import run

CLUSTER = """name: theta
nodes:
  - name: a
    count: 64
partitions:
  - name: batch
    max_walltime: 24h
failures:
  on_failure: requeue
"""
FACILITY = """name: alcf
staging: 10m
clusters:
  - name: polaris
    nodes: 552
    policy: wfp+easy
    factor: {cpu: 2}
kinds:
  - name: cpu
"""
TWIN = """manager:
  kind: slurm
  cluster: theta
  events: {spool: /tmp/spool}
core:
  pool: [wfp+easy]
  objective:
    normalize: mean
act:
  mode: observe
resync_interval: 60
"""
RESYNC = "resync_interval: 60\n"
METER = """meter:
  kind: csv
  path: m.csv
  unit: kW
  step: 30s
"""
LIVE = """facility:
  clusters:
    - {name: a, nodes: 4}
sites:
  a:
    manager: {kind: emulated, address: /tmp/a}
strategy: sgs-t
every: 1s
"""
POWER = """nodes:
  - name: a
    count: 4
    modes: {base: {power_w: 220, idle_w: 95}}
    sleep:
      - power_w: 9
        switch_off: {time: 30m, power_w: 90}
        switch_on: {time: 45m, power_w: 190}
cap: 20kW
"""
LIMITS = """name: c
nodes:
  - {name: a, count: 4, cores: 8}
accounts:
  - {name: physics, share: 3, users: {ann: 2}}
  - {name: lattice, parent: physics}
limits:
  - {qos: normal, per: user, jobs: 10}
  - {account: physics, nodes: 64}
fairshare: {kind: tree, half_life: 14d}
"""
WHAT_IFS = """manager: {kind: emulated, address: /tmp/a}
what_ifs:
  deadline: 500ms
  dask: tcp://host:8786
"""
SPARS = """paths:
  workload: three.json
  platform: four.json
run:
  algorithm: fcfs_psus
  timeout: 600
  overrun_policy: terminate
  start_time: 0
"""
COMMANDS = {
    POWER: ("cluster", "check"),
    SPARS: ("simulate",),
    CLUSTER: ("cluster", "check"),
    FACILITY: ("facility", "check"),
    TWIN: ("twin", "check"),
    LIVE: ("facility", "queue"),
    LIMITS: ("cluster", "check"),
    WHAT_IFS: ("twin", "check"),
}


@pytest.mark.parametrize(
    ("good", "old", "new", "told"),
    [
        (CLUSTER, "count", "cuont", ["line 3, nodes.0.count: it is missing", "line 4, nodes.0.cuont: "
         "unknown field. Did you mean 'count'? Known: components, consumables, cores, "
         "cores_per_socket, count, features, "]),
        (CLUSTER, "64", "many", ["line 4, nodes.0.count: it must be a whole number, not 'many'"]),
        (CLUSTER, "64", "0", ["line 4, nodes.0.count: it must be 1 or more, not 0"]),
        (CLUSTER, "24h", "a day", ["line 7, partitions.0.max_walltime: 'a day' is not a duration; write "
         "seconds, '15m', '1d 12h', '2:30:00' or '1-12:00:00'"]),
        (CLUSTER, "requeue", "requeu", ["line 9, failures.on_failure: 'requeu' is unknown. Did you mean "
         "'requeue'? Known: requeue, fail"]),
        (CLUSTER, "nodes:\n  - name: a\n    count: 64\n", "nodes: 64\n", ["line 2, nodes: it must be a list, "
         "not 64"]),
        (FACILITY, "nodes: 552", "node: 552", ["line 5, clusters.0.node: unknown field. Did you "
         "mean 'nodes'? Known: carbon, factor, kinds, machine, max_queued, "
         "max_queued_per_user, name, node_hour_price, nodes, partition, policy, power_w, price"]),
        (FACILITY, "wfp+easy", "wpf+easy", ["line 6, clusters.0.policy: unknown ordering 'wpf'. Did you mean "
         "'wfp'?"]),
        (FACILITY, "cpu: 2", "cpu: 0", ["line 7, clusters.0.factor.cpu: it must be more than 0, not 0"]),
        (FACILITY, "10m", "soon", ["line 2, staging: 'soon' is not a duration"]),
        (FACILITY, "552", "[552]", ["line 5, clusters.0.nodes: it must be a whole number, not [552]"]),
        (TWIN, "kind: slurm", "kind: slurn", ["line 1, manager: kind 'slurn' is unknown. Did you mean "
         "'slurm'? Known: emulated, slurm, pbs"]),
        (TWIN, "cluster: theta", "timeot: 5", ["line 3, manager.timeot: unknown field. Did you mean "
         "'timeout'?"]),
        (TWIN, "mode: observe", "mode: look", ["line 10, act.mode: 'look' is unknown. Known: observe, "
         "advise, approve, act"]),
        (TWIN, "[wfp+easy]", "wfp+easy", ["line 6, core.pool: it must be a list, not 'wfp+easy'"]),
        (TWIN, "manager:\n  kind: slurm\n  cluster: theta\n  events: {spool: /tmp/spool}\n", "",
         ["twin.yaml, manager: it is missing"]),
        (TWIN, RESYNC, METER.replace("csv", "csvv", 1), ["line 11, meter: kind 'csvv' is unknown. Did "
         "you mean 'csv'? Known: csv, jsonl, prometheus"]),
        (TWIN, RESYNC, METER.replace("kW", "kVA"), ["line 14, meter.unit: 'kVA' is unknown."]),
        (TWIN, RESYNC, METER.replace("30s", "2h"), ["line 15, meter.step: it must be 3,600 or less, not "]),
        (TWIN, RESYNC, METER.replace("  path: m.csv\n", ""), ["meter.path: it is missing"]),
        (TWIN, RESYNC, METER.replace("step", "stpe"), ["line 15, meter.stpe: unknown field. Did you "
         "mean 'step'? Known: "]),
        (TWIN, RESYNC, "meter: {kind: jsonl, path: m, where: [a]}\n", ["line 11, meter.where: it must be "
         "fields with values, not ['a']"]),
        (TWIN, RESYNC, "meter: {kind: prometheus, url: 'localhost:9090', query: up}\n", ["line 11, "
         "meter.url: the URL must start with http:// or https:// and name a host"]),
        (TWIN, RESYNC, "meter: {kind: prometheus, url: 'http://h/?token=a', query: up}\n", ["line 11, "
         "meter.url: passwords are not allowed here; token_env names an environment variable with a token"]),
        (LIVE, "kind: emulated, ", "", ["line 6, sites.a.manager: kind is missing"]),
        (LIVE, "nodes: 4", "nodes: 4, power_w: -1", ["line 3, facility.clusters.0.power_w: it must be 0 or "
         "more, not -1"]),
        (LIVE, "  a:\n    m", "  b:\n    m", ["live.yaml: sites: cluster 'a' is missing"]),
        (LIVE, "sgs-t", "sgs-tt", ["live.yaml: strategy: unknown strategy 'sgs-tt'. Did you mean 'sgs-t'?"]),
        (POWER, "power_w: 9\n", "power_w: -9\n", ["line 6, nodes.0.sleep.0.power_w: it must be 0 or "
         "more, not -9"]),
        (POWER, "        switch_on: {time: 45m, power_w: 190}\n", "", ["nodes.0.sleep.0.switch_on: it is "
         "missing: a sleep state needs a transition in and a transition out, each with time and power_w"]),
        (POWER, "idle_w", "idle", ["line 4, nodes.0.modes.base.idle: unknown field. Did you mean "
         "'idle_w'? Known: idle_w, min_load_w, power_w, speed"]),
        (POWER, "    modes: {base: {power_w: 220, idle_w: 95}}\n", "", ["line 2, nodes.0: node group 'a' has "
         "'sleep' but no 'modes'"]),
        (POWER, "30m", "half an hour", ["line 7, nodes.0.sleep.0.switch_off.time: 'half an hour' is not a "
         "duration"]),
        (POWER, "20kW", "20 horses", ["line 9, cap: "]),
        (LIMITS, "account: phy", "account: phi", ["a limit names the unknown account 'phisics'. Did "
         "you mean 'physics'?"]),
        (LIMITS, "per: user", "per: usr", ["line 8, limits.0.per: 'usr' is unknown. Did you mean 'user'? "
         "Known: all, user, account, job"]),
        (LIMITS, "jobs: 10", "job: 10", ["line 8, limits.0.job: unknown field. Did you mean 'jobs"]),
        (LIMITS, "jobs: 10", "jobs: ten", ["line 8, limits.0.jobs: it must be a whole number, not 'ten'"]),
        (LIMITS, "nodes: 64", "minutes: {core: 9}", ["line 9, limits.1.minutes.core: 'core' is unknown. "
         "Did you mean 'cores'? Known: nodes, cores, gpus, memory_gb"]),
        (LIMITS, "nodes: 64", "walltime: 1h", ["line 9, limits.1: 'walltime', 'min_request' and "
         "'per_node' limit a single job: set per: job"]),
        (LIMITS, "{account: physics, nodes: 64}", "physics", ["line 9, limits.1: it must be fields with"]),
        (LIMITS, "share: 3", "share: -3", ["line 5, accounts.0.share: it must be 0 or more"]),
        (LIMITS, "users: {ann: 2}", "users: [ann]", ["line 5, accounts.0.users: it must be fields with"]),
        (LIMITS, "parent: p", "parent: f", ["account 'lattice': unknown parent 'fhysics'. Did you "
         "mean 'physics'?"]),
        (LIMITS, "parent: physics", "parent: lattice", ["account 'lattice' is its own ancestor"]),
        (LIMITS, "lattice, ", "physics, ", ["account 'physics' is defined twice"]),
        (LIMITS, "kind: tree", "kind: trees", ["line 10, fairshare.kind: 'trees' is unknown. Did you mean "
         "'tree'? Known: classic, tree"]),
        (LIMITS, "kind: tree, ", "", ["account 'physics' has shares, which only kind: tree reads: set "
         "fairshare: {kind: tree}"]),
        (LIMITS, "kind: tree", "kind: tree, by: account", ["line 10, fairshare: kind: tree ranks users "
         "account by account; remove 'by', or set kind: classic"]),
        (LIMITS, "kind: tree", "kind: tree, shares: {a: 1}", ["line 10, fairshare: kind: tree reads shares "
         "from 'accounts:'"]),
        (LIMITS, "14d", "fortnight", ["line 10, fairshare.half_life: 'fortnight' is not a duration"]),
        (WHAT_IFS, "500ms", "soon", ["line 3, what_ifs.deadline: 'soon' is not a duration"]),
        (WHAT_IFS, "500ms", "0", ["line 3, what_ifs.deadline: it must be more than 0, not 0"]),
        (WHAT_IFS, "  deadline: 500ms\n", "", ["line 2, what_ifs: what-ifs on Dask's workers need a "
         "deadline, such as deadline: 500ms"]),
        (WHAT_IFS, "deadline", "deadlin", ["what_ifs.deadlin: unknown field. Did you mean 'dead"]),
        (WHAT_IFS, "tcp://host:8786", "8786", ["line 4, what_ifs.dask: it must be text, not 8786"]),
        (WHAT_IFS, "tcp://host:8786", "''", ["line 4, what_ifs.dask: it must be text of 1 or more"]),
        (WHAT_IFS, "8786\n", "8786\n  scheduler_file: s.json\n", ["line 2, what_ifs: give dask "
         "or scheduler_file, not both"]),
        (SPARS, "fcfs_psus", "fcfs_pssu", ["line 5, run.algorithm: 'fcfs_pssu' is unknown. Did you mean "
         "'fcfs_psus'? Known: "]),
        (SPARS, "600", "soon", ["line 6, run.timeout: it must be seconds or null, not 'soon'"]),
        (SPARS, "terminate", "kill", ["line 7, run.overrun_policy: it must be terminate or continue, not "
         "'kill'"]),
        (SPARS, "  platform: four.json\n", "", ["line 1, paths.platform: it must name a file, not None"]),
        (SPARS, "run:\n", "runs:\n", ["no section 'run:'; is this SPARS's simulator_config.yaml?"]),
        (LIVE, "every: 1s", "every: true", ["line 8, every: True is not a duration"]),
    ],
)  # fmt: skip
def test_errors_in_a_file_are_reported_with_line_field_and_remedy(
    good: str,
    old: str,
    new: str,
    told: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert old in good
    names = {
        CLUSTER: "cluster",
        FACILITY: "facility",
        TWIN: "twin",
        LIVE: "live",
        LIMITS: "limits",
        WHAT_IFS: "what_ifs",
        POWER: "power",
        SPARS: "simulator_config",
    }
    path = tmp_path / f"{names[good]}.yaml"
    path.write_text(good.replace(old, new, 1))
    assert run(*COMMANDS[good], path) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == len(told)
    for line, says in zip(lines, told, strict=True):
        assert line.removeprefix("hpctwin: ").startswith(str(path))
        assert says in line
    for word in ("Input", "Extra", "Field required", "Value error", "pydantic"):
        assert word not in shown.err
