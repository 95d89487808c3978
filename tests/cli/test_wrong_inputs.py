"""Wrong files and names: one line that says what, where and what would be right, in our words."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hpctwin import generate, write_workload
from hpctwin.errors import OutputError, exit_code_of
from tests.cli.test_cli import run

FILES = {
    "other.csv": b"a,b\n1,2\n",
    "bad.json": b"{",
    "empty.swf": b"",
    "header.csv": b"submit_s,runtime_s,walltime_s,nodes\n",
    "binary.swf": bytes(range(256)),
    "short.swf": b"1 2 3\n",
    "cut.parquet": b"PAR1xx",
    "bad.yaml": b"nodes: [\n",
    "list.yaml": b"- 1\n",
    "key.yaml": b"nodez: [{name: a, count: 4}]\nnodes: [{name: a, count: 4}]\n",
    "negative.yaml": b"nodes: [{name: a, count: -4}]\n",
    "twice.yaml": b"nodes: [{name: a, count: 4}, {name: a, count: 2}]\n",
    "field.yaml": b"nodes: [{name: a, count: 4}]\npartitions: [{name: p, nodes: [b]}]\n",
    "dates.csv": b"a,b\n2026-01-01 00:00:00,2026-01-01 00:01:00\n",
    "empty.py": b"x = 1\n",
    "syntax.py": b"x = 1\ndef f(now, job)\n    return 1\n",
    "lacks.py": b"import nosuchpackage\n",
    "text.safetensors": b"nothing",
    "twin.yaml": b"manager: {kind: emulated, address: nobody.sock}\n",
}
TRAIN = "agent train JobSelection t.swf a.safetensors -n 8 --jobs 9 --steps 64"
SWEEP = "workloads: [t.swf]\nclusters: [8]\npolicies: [fcfs+easy]\n"
SWEEPS = {
    "fine": SWEEP,
    "key": SWEEP + "plicies: [sjf]\n",
    "policy": SWEEP.replace("fcfs", "fcsf"),
    "trace": SWEEP.replace("t.swf", "none.swf"),
    "table": SWEEP.replace("t.swf", "other.csv"),
    "folder": SWEEP.replace("t.swf", "folder"),
    "generator": SWEEP.replace("t.swf", "{generate: lublen}"),
    "nodes": SWEEP.replace("8", "-8"),
    "load": SWEEP + "loads: [0.7, -1]\n",
    "seeds": SWEEP + "seeds: -3\n",
    "figure": SWEEP + "metrics: [mean_wiat_s]\n",
    "baseline": SWEEP + "baseline: sjf+easy\n",
    "parameter": SWEEP.replace("easy", "easy:{k}"),
    "samples": SWEEP + "samples: 5\n",
}
SEARCH = (
    "workloads: [t.swf]\npolicies: ['-wait**{a}+easy']\nparameters: {a: {low: 1, high: 2}}\n"
    "objectives: [mean_wait_s]\ntrain: [{begin: 0, end: 100}]\nheld_out: [{begin: 100, end: 200}]\n"
)
SEARCHES = {
    "fine": SEARCH,
    "figure": SEARCH.replace("mean_wait_s", "mean_wiat_s"),
    "place": SEARCH.replace("{a}", "{b}"),
    "bounds": SEARCH.replace("low: 1", "low: 3"),
    "trials": SEARCH + "trials: -2\n",
    "baseline": SEARCH + "baseline: wfpp+easy\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    write_workload(generate("poisson", jobs=30, nodes=8, seed=1), made / "t.swf")
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    for kind, files in (("sweep", SWEEPS), ("search", SEARCHES)):
        for name, text in files.items():
            (made / f"{kind}-{name}.yaml").write_text(text)
    (made / "folder").mkdir()
    return made


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("folder", 2, "folder contains no policy.yaml; give a trace, a folder"),
        ("none.swf", 2, "none.swf: No such file or directory"),
        ("other.csv -n 4", 2, "other.csv, field submit_s: the column is missing; required are"),
        ("bad.json -n 4", 2, "bad.json, line 1: not JSON"),
        ("empty.swf -n 4", 2, "empty.swf: the file is empty"),
        (
            "header.csv -n 4",
            2,
            "header contains no jobs to simulate; give a trace, or a part of one",
        ),
        ("binary.swf -n 4", 2, "binary.swf, line 1: found 1 column, expected 18"),
        ("short.swf -n 4", 2, "short.swf, line 1: found 3 columns, expected 18"),
        ("cut.parquet -n 4", 2, "cut.parquet: not a Parquet file, or truncated"),
        ("t.swf -M folder", 2, "folder: Is a directory"),
        ("t.swf -M bad.yaml", 2, "bad.yaml, line 2, column 1: not YAML"),
        ("t.swf -M list.yaml", 2, "list.yaml: expected fields such as 'nodes:', found [1]"),
        ("t.swf -M key.yaml", 2, "line 1, nodez: unknown field. Did you mean 'nodes'?"),
        ("t.swf -M negative.yaml", 2, "line 1, nodes.0.count: it must be 1 or more, not -4"),
        ("t.swf -M twice.yaml", 2, "twice.yaml: node group 'a' is defined twice"),
        ("t.swf -M field.yaml", 2, "line 2, partitions.0.nodes: unknown field. Did you"),
        ("t.swf -M fronteir", 2, "unknown file or system 'fronteir'. Did you mean 'frontier'?"),
        ("t.swf -n 8 -o wfpp", 2, "unknown ordering 'wfpp'. Did you mean 'wfp'?"),
        ("t.swf -n 8 -o wait+nodez", 2, "formula 'wait+nodez': unknown field 'nodez'"),
        ("t.swf -n 8 -o wait/", 2, "formula 'wait/' cannot be read"),
        ("t.swf -n 8 -o syntax.py:f", 2, "syntax.py, line 2: not valid Python: expected ':'"),
        (
            "t.swf -n 8 -o lacks.py:f",
            2,
            "lacks.py: it imports 'nosuchpackage', which is not installed",
        ),
        ("t.swf -n 8 --timezone Mars", 2, "--timezone is only valid for dates without a zone"),
        (
            "dates.csv -n 8 --timezone Mars --columns submit=a,start=a,end=b",
            2,
            "unknown time zone 'Mars'",
        ),
        ("t.swf -n 8 -o empty.py:f", 2, "unknown function in empty.py 'f'"),
        ("t.swf -n 8 -o none.py:f", 2, "none.py: no such file"),
        ("t.swf -n 8 -o __import__('os')", 2, "'__import__' is not a supported function"),
        ("t.swf -n 8 -b eazy", 2, "unknown backfill 'eazy'. Did you mean 'easy'?"),
        ("t.swf -n 8 -b easy:0", 2, "easy: reservations is '0'; it must be a whole number"),
        ("t.swf -n 8 -b easy:x", 2, "easy: 'x' is not a number of reservations"),
        ("t.swf -n 8 -b pack:patience=long", 2, "'long' is not a duration; write seconds, '15m'"),
        (
            "t.swf -n 8 -b pack:patiense=1h",
            2,
            "setting of pack 'patiense'. Did you mean 'patience'",
        ),
        ("t.swf -n 8 --placement bestfit", 2, "placement 'bestfit'. Did you mean 'best-fit'?"),
        ("t.swf -n 8 --candidates sfj", 2, "unknown ordering 'sfj'. Did you mean 'sjf'?"),
        ("t.swf -n 8 -p wfp+easy+easy", 2, "formula 'wfp+easy': unknown field 'wfp'"),
        ("t.swf -n 8 --reservations 0", 2, "easy: reservations is 0; it must be a whole number"),
        (
            "t.swf -n 8 --overrun stop",
            2,
            "--overrun is 'stop'; it must be one of terminate, continue.",
        ),
        ("t.swf -n 8 --by sizes", 2, 'Did you mean "size"?'),
        ("t.swf -n 8 --format swff", 2, "unknown format 'swff'. Did you mean 'swf'?"),
        ("t.swf -n 8 --cancelled no", 2, "--cancelled is 'no'; it must be one of keep, drop."),
        ("t.swf -n 8 --missing-walltime sometimes", 2, "'sometimes' is not a duration"),
        ("t.swf -n 8 --from 1d", 2, "give both --from and --until"),
        ("t.swf -n 8 --from x --until 2d", 2, "'x' is not a duration"),
        ("t.swf -n 8 --plot a.gif", 2, "a.gif: suffix is not supported; use .png, .svg, .pdf"),
        ("t.swf -n 8 --plot none/a.png", 2, "cannot be written: the folder none is not there"),
        ("t.swf -n 8 --out t.swf", 2, "it is a file, but a folder is needed"),
        ("t.swf -n 8 --out-every 1s", 2, "--out-every: the output folder is missing; add --out"),
    ],
)
def test_a_wrong_input_of_simulate_is_reported_in_one_line(
    folder: Path,
    line: str,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert run("simulate", *line.split()) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert not any(word in shown.err for word in ("Traceback", "polars", "pydantic", "Error("))


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (
            "simulate t.swf -n 8 --explain 99999",
            2,
            "t has no job '99999'; it has 30 jobs, such as 1",
        ),
        (
            "simulate t.swf -n 8 --priorities-from x",
            2,
            "give an incentive and a file of accounts",
        ),
        (
            "simulate t.swf -n 8 --priorities-from low-power:no.json",
            2,
            "no.json: no such file; create it with hpctwin simulate --accounts no.json",
        ),
        ("simulate t.swf -n 8 --accounts a.txt", 2, "give a file name ending in .json or .parquet"),
        ("simulate t.swf -n 8 --price x.csv", 2, "--price: the cluster has no power model"),
        ("simulate t.swf -n 8 --power-cap 9", 2, "--power-cap: the cluster has no power model"),
        ("simulate t.swf -n 8 --weather hot", 2, "--weather: the cluster has no power model"),
        ("simulate t.swf -n 8 --scheduler nosuchprogram", 2, "'nosuchprogram' cannot be started"),
        (
            "simulate t.swf -n 8 --stream",
            2,
            "--stream: the output folder is missing; add --out FOLDER",
        ),
        ("simulate t.swf -n 8 --jsn", 2, "Did you mean --json?"),
        ("simulate t.swf -n 8 --nodes", 2, "--nodes needs a value"),
        ("simulate t.swf -n 8 --nodes 9", 2, "--nodes is given twice; give it once"),
        ("simulate t.swf -n 8 extra", 2, "'extra' is not accepted here; see --help"),
        (
            "simulate t.swf -n 8 --only x",
            2,
            "--only is only valid for published data sets, and t.swf is not a known one",
        ),
        ("simulate t.swf -n 8 --columns a", 2, "field JobID: the column is missing"),
        ("compare t.swf -n 8 -p sjf+easy -p sjf+easy", 2, "policy 'sjf+easy' is listed twice"),
        ("compare t.swf -n 8 --threads x", 2, "--threads is 'x'; it must be a whole number"),
        ("compare t.swf -n 8 --html folder", 2, "it is a folder, but a file is needed"),
        ("workload describe none", 2, "none: No such file or directory"),
        ("workload describe", 2, "TRACE is missing; see hpctwin workload describe --help"),
        ("serve --port x", 2, "--port is 'x'; it must be a whole number"),
        ("compare t.swf -n 8 -p sjf -p", 2, "-p needs a value"),
        ("workload convert t.swf t.swf", 2, "t.swf already exists; --overwrite replaces it"),
        ("workload filter t.swf o.swf --after x", 2, "'x' is not a duration"),
        ("workload filter t.swf none/o.swf", 2, "the folder none is not there"),
        ("workload generate lublen o.swf", 2, "generator 'lublen'. Did you mean 'lublin'?"),
        ("workload generate lublin o.swf jobs=x", 2, "jobs is 'x'; it must be a whole number"),
        ("workload generate lublin o.swf jobs", 2, "write NAME=VALUE, for example seed=7"),
        ("workload generate lublin o.swf job=3", 2, "'lublin' 'job'. Did you mean 'jobs'?"),
        ("workload download nolog", 2, "unknown log 'nolog'. Known: ANL-Intrepid-2009-1"),
        ("policy chek", 2, 'Unknown command "chek". Did you mean "check"?'),
        ("cluster check folder", 2, "folder: Is a directory"),
        ("cluster check none.yaml", 2, "none.yaml: No such file or directory"),
        ("dataset describe m100", 2, "unknown data set 'm100'. Did you mean 'marconi100'?"),
        ("dataset check folder", 2, "folder: columns match no known data set"),
        ("system show fronteir", 2, "'fronteir'. Did you mean 'frontier'?"),
        ("accounts", 2, "no accounts given; give files written by hpctwin simulate --accounts"),
        ("accounts t.swf", 2, "t.swf is not an accounts file"),
        ("calibrate none.csv", 2, "none.csv: cannot be read as a table"),
        ("calibrate other.csv", 2, "other.csv, field time_s: column is missing; found a, b"),
        ("replay t.swf -n 8", 2, "has no recorded start times to replay"),
        ("report", 2, "no runs given; give folders written by"),
        ("report folder --html o.html", 2, "folder: the folder contains no run; a run's folder is"),
        (
            "export folder",
            2,
            "no output given; add --perfetto, --evalys, --batsim or --openmetrics",
        ),
        ("export folder --evalys e.csv", 2, "a run's folder is written by hpctwin simulate --out"),
        ("import slurm --from none --out o", 2, "none: expected a folder with the site's files"),
        ("facility check bad.yaml", 2, "bad.yaml, line 2, column 1: not YAML"),
        ("facility queue none.yaml", 2, "none.yaml: No such file or directory"),
        ("twin check none.yaml", 2, "none.yaml: No such file or directory"),
        ("twin explain jobb", 2, 'Did you mean "job"?'),
        ("twin explain decision x", 2, "explain decision: 'x' is not a number"),
        ("twin schema confg", 2, 'Did you mean "config"?'),
        ("when", 2, "give a job's id, or --nodes and --walltime of a future job"),
        ("when --nodes 4", 2, "together with --walltime"),
        ("rms slurm rule --lease x", 2, "'x' is not a duration"),
        ("serve folder", 2, "folder: the folder contains no run"),
        ("simulat", 2, 'Did you mean "simulate"?'),
        ("sweep folder", 2, "folder contains no workload.parquet; give a trace, a folder"),
        ("sweep binary.swf", 2, "binary.swf, line 1: found 1 column, expected 18"),
        (
            "sweep sweep-key.yaml",
            2,
            "line 4, plicies: unknown field. Did you mean 'policies'?",
        ),
        ("sweep sweep-policy.yaml", 2, "unknown ordering 'fcsf'. Did you mean 'fcfs'?"),
        ("sweep sweep-trace.yaml", 2, "none.swf: No such file or directory"),
        ("report empty.swf --figures f", 2, "empty.swf: file is empty; give a journal"),
        ("sweep sweep-table.yaml", 2, "other.csv, field submit_s: the column is missing"),
        ("sweep sweep-folder.yaml", 2, "folder: Is a directory"),
        ("sweep sweep-generator.yaml", 2, "generator 'lublen'. Did you mean 'lublin'?"),
        (
            "sweep sweep-nodes.yaml",
            2,
            "sweep-nodes.yaml, line 2, clusters.0: it must be 1 node or more",
        ),
        ("sweep sweep-load.yaml", 2, "line 4, loads.1: it must be more than 0, not -1"),
        (
            "sweep sweep-seeds.yaml",
            2,
            "line 4, seeds: it must be a number of seeds, 1 to 1,000,000",
        ),
        ("sweep sweep-figure.yaml", 2, "metric 'mean_wiat_s'. Did you mean 'mean_wait_s'?"),
        ("sweep sweep-baseline.yaml", 2, "baseline 'sjf+easy' is not among the policies."),
        ("sweep sweep-parameter.yaml", 2, "policies.0: it must be text (quote it if it has a"),
        ("sweep sweep-samples.yaml", 2, "samples: no parameter has bounds"),
        ("sweep sweep-fine.yaml --metric energy", 2, "unknown metric 'energy'."),
        (
            "sweep sweep-fine.yaml --dask nowhere",
            2,
            "nowhere: address is invalid; give one such as tcp://HOST",
        ),
        ("sweep sweep-fine.yaml --jobqueue slrum", 2, 'Did you mean "slurm"?'),
        ("sweep sweep-fine.yaml --out t.swf", 2, "it is a file, but a folder is needed"),
        ("sweep sweep-fine.yaml --plot none/a.png", 2, "the folder none is not there"),
        ("policy search folder", 2, "folder contains no workload.parquet; give a trace, a"),
        ("policy search search-figure.yaml", 2, "'mean_wiat_s'. Did you mean 'mean_wait_s'?"),
        ("policy search search-place.yaml", 2, "search-place.yaml: {b} is no parameter. Known: a"),
        ("policy search search-bounds.yaml", 2, "low is 3 and high is 2; low must be less"),
        ("policy search search-trials.yaml", 2, "line 7, trials: it must be 1 or more, not -2"),
        ("policy search search-baseline.yaml", 2, "ordering 'wfpp'. Did you mean 'wfp'?"),
        ("policy search search-fine.yaml --out t.swf", 2, "it is a file, but a folder is needed"),
        ("agent train JobSelecton t.swf a.safetensors", 2, 'Did you mean "JobSelection"?'),
        (
            "agent train JobSelection folder a.safetensors",
            2,
            "folder contains no workload.parquet",
        ),
        ("agent train JobSelection t.swf folder -n 8", 2, "it is a folder, but a file is needed"),
        (
            "agent train JobSelection t.swf a.txt -n 8",
            2,
            "a.txt: suffix is not supported; agents are stored as .safetensors",
        ),
        (
            "agent train JobSelection other.csv a.safetensors",
            2,
            "field submit_s: the column is missing",
        ),
        (
            "agent train JobSelection t.swf a.safetensors -n 8 --first -1",
            2,
            "--first is '-1'; it must be",
        ),
        (f"{TRAIN} --option backfiling=true", 2, "'backfiling'. Did you mean 'backfilling'?"),
        (
            f"{TRAIN} --option window=many",
            2,
            "window of JobSelection: it must be a whole number, not",
        ),
        (
            f"{TRAIN} --option backfilling=eazy",
            2,
            "unknown backfilling 'eazy'. Did you mean 'easy'?",
        ),
        (
            f"{TRAIN} --option backfilling=2",
            2,
            "unknown backfilling '2'. Known: easy, false, rlsch",
        ),
        (f"{TRAIN} --option window=-1", 2, "window has -1 places; it must have 1 or more"),
        (f"{TRAIN} --option observation=4", 2, "observation of JobSelection: it must be a name"),
        (f"{TRAIN} --option reward=slow", 2, "unknown reward 'slow'"),
        (f"{TRAIN} --option reward=[", 2, "--option 'reward=[': '[' is not a value"),
        (f"{TRAIN} --option window", 2, "--option 'window' is invalid; write NAME=VALUE"),
        (f"{TRAIN} --checkpoints t.swf", 2, "it is a file, but a folder is needed"),
        (
            "agent evaluate folder t.swf -n 8 --jobs 9",
            2,
            "folder: Is a directory; train an agent with",
        ),
        (
            "agent evaluate none.safetensors t.swf -n 8 --jobs 9",
            2,
            "none.safetensors: No such file",
        ),
        (
            "agent evaluate text.safetensors t.swf -n 8 --jobs 9",
            2,
            "text.safetensors is not an agent file",
        ),
        ("agent evaluate text.safetensors none.swf -n 8", 2, "none.swf: No such file or directory"),
        ("agent evaluate a t.swf -n 8 --metric mean_wait", 2, 'Did you mean "mean_wait_s"?'),
        ("agent evaluate a t.swf -n 8 --episodes 0", 2, "--episodes is '0'; it must be 1 or more"),
        ("agent list none", 2, "none is not a folder"),
        ("agent list t.swf", 2, "t.swf is not a folder"),
        ("predictor forecast folder", 2, "folder contains no workload.parquet"),
        ("predictor forecast other.csv", 2, "other.csv, field submit_s: the column is missing"),
        (
            "predictor forecast t.swf -n 8",
            2,
            "has no start times of jobs; give the policy to start them by (--under)",
        ),
        ("predictor forecast t.swf -n 8 --under fcsf", 2, "'fcsf'. Did you mean 'fcfs'?"),
        ("predictor forecast t.swf -n 8 --arrivals soon", 2, "'soon' is not a duration"),
        (
            "predictor forecast t.swf -n 8 --futures -1",
            2,
            "--futures is '-1'; it must be a whole number",
        ),
        ("predictor train t.swf t.swf", 2, "t.swf already exists; --overwrite replaces it"),
        (
            "predictor apply t.swf o.parquet --predictor t.swf",
            2,
            "t.swf is not a predictor, or is truncated",
        ),
        ("when 12 -c folder", 2, "folder: Is a directory"),
        ("when 12 -c twin.yaml", 1, "nobody.sock: No such file or directory"),
        (
            "when 12 -c twin.yaml --plot a.gif",
            2,
            "a.gif: suffix is not supported; use .png, .svg, .pdf",
        ),
        ("when 12 -c twin.yaml --plot none/a.png", 2, "the folder none is not there"),
        ("when --nodes 0 --walltime 2h -c twin.yaml", 2, "--nodes is '0'; it must be 1 or more"),
        ("when --nodes 4 --walltime long -c twin.yaml", 2, "'long' is not a duration"),
        ("twin accuracy -c folder", 2, "folder: Is a directory"),
        (
            "twin accuracy -c twin.yaml",
            2,
            "journal does not exist; make one with `hpctwin twin run`",
        ),
        ("twin accuracy -c twin.yaml --by sizes", 2, 'Did you mean "size"?'),
    ],
)
def test_a_wrong_line_is_reported_in_one_line(
    folder: Path,
    line: str,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert run(*line.split()) == code
    shown = capsys.readouterr().err
    assert told in shown
    assert len(shown.splitlines()) == 1
    assert not any(word in shown for word in ("Traceback", "pydantic", "Error("))


def test_an_empty_policy_is_no_policy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for command in ("simulate", "compare"):
        assert run(command, "t.swf", "-n", "8", "-p", "") == 2
        told = "the policy is empty; write ORDER+BACKFILL, such as wfp+easy"
        assert capsys.readouterr().err == f"hpctwin: {told}\n"


READERS = {
    "simulate {} -n 8": ("", ".swf", ".csv", ".json", ".parquet"),
    "simulate {} -n 8 --columns submit=a,runtime=b": (".csv", ".parquet"),
    "simulate {} -n 8 --stream --out o": (".swf", ".csv", ".parquet"),
    "simulate {}": (".yaml",),
    "simulate t.swf -n 8 --columns {}": (".yaml",),
    "simulate t.swf -M {}": (".yaml", ".json", ".xml"),
    "simulate t.swf -n 8 --outages {}": (".csv",),
    "simulate t.swf -M power.yaml --price {}": (".csv",),
    "simulate t.swf -M power.yaml --carbon {}": (".csv",),
    "simulate t.swf -n 8 --priorities-from low-power:{}": (".json", ".parquet"),
    "simulate t.swf -n 8 -o {}:f": (".py",),
    "simulate t.swf -n 8 --scheduler ./{}": ("",),
    "compare {} -n 8": (".swf", ".json"),
    "compare t.swf {} -n 8": (".swf",),
    "compare t.swf -M {}": (".yaml",),
    "replay {} -n 8": (".swf", ".parquet"),
    "replay t.swf -M {}": (".yaml",),
    "sweep {}": (".yaml",),
    "sweep {} -n 8": (".swf", ".parquet"),
    "sweep t.swf -M {}": (".yaml",),
    "export {} --evalys e.csv": ("",),
    "report {} --html o.html": ("",),
    "workload describe {}": (".swf", ".json", ".csv"),
    "workload convert {} o.csv": (".swf", ".json"),
    "workload filter {} o.csv": (".swf", ".parquet"),
    "predictor train {} o.predictor": (".swf",),
    "predictor score {}": (".swf",),
    "predictor intervals {}": (".swf",),
    "predictor apply t.swf o.parquet --predictor {}": ("",),
    "predictor forecast {} -n 8 --under fcfs": (".swf",),
    "agent train JobSelection {} a.safetensors -n 8": (".swf",),
    "agent evaluate {} t.swf -n 8 --jobs 9": (".safetensors",),
    "policy check {}:f": (".py",),
    "policy search {}": (".yaml",),
    "policy search {} -n 8": (".swf",),
    "cluster check {}": (".yaml", ".json", ".xml"),
    "dataset check {}": ("", ".csv"),
    "accounts {}": (".json", ".parquet"),
    "calibrate {}": (".csv",),
    "facility check {}": (".yaml",),
    "facility simulate t.swf {}": (".yaml",),
    "facility compare t.swf {}": (".yaml",),
    "facility compare {} -n 8": (".swf",),
    "facility queue {}": (".yaml",),
    "twin check {}": (".yaml",),
    "twin status -c {}": (".yaml",),
    "twin run -c {}": (".yaml",),
    "twin accuracy -c {}": (".yaml",),
    "twin explain decision 1 -c {}": (".yaml",),
    "twin verify 1 -c {}": (".yaml",),
    "twin approve 1 -c {}": (".yaml",),
    "when 12 -c {}": (".yaml",),
    "serve {}": ("",),
    "mcp -c {}": (".yaml",),
}
"""Every command that reads a file, and endings of what it reads."""


@pytest.fixture(scope="module")
def files(folder: Path) -> Path:
    """A file of each kind that no command can use, under each ending."""
    power = "nodes: [{name: a, count: 8, modes: {base: {power_w: 100, idle_w: 50}}}]\n"
    (folder / "power.yaml").write_text(power)
    for ending in {one for endings in READERS.values() for one in endings}:
        (folder / f"a-folder{ending}").mkdir(exist_ok=True)
        (folder / f"nothing{ending}").write_bytes(b"")
        (folder / f"bytes{ending}").write_bytes(bytes(range(256)))
        (folder / f"words{ending}").write_text("hello there\nworld: [\n")
    return folder


@pytest.mark.parametrize("kind", ["missing", "a-folder", "nothing", "bytes", "words"])
@pytest.mark.parametrize("command", READERS)
def test_a_file_that_cannot_be_used_exits_2_and_is_reported_by_name(
    files: Path,
    command: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    for ending in READERS[command]:
        line = command.replace("{}", kind + ending)
        assert run(*line.split()) == 2, line
        shown = capsys.readouterr()
        said = [one for one in shown.err.splitlines() if "compiling the engine" not in one]
        told = said or shown.out.splitlines()
        assert any(kind in one for one in told), line
        assert len(said) <= 1, line
        assert "Traceback" not in shown.err + shown.out


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 2),
        (PermissionError(errno.EACCES, "Permission denied"), 2),
        (OSError(errno.EROFS, "Read-only file system"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1),
        (OSError(errno.EIO, "Input/output error"), 1),
    ],
)
def test_a_wrong_path_exits_2_and_a_failing_disk_exits_1(cause: OSError, code: int) -> None:
    failed = OutputError("out", cause.strerror)
    failed.__cause__ = cause
    within = OutputError("folder/out", cause.strerror)
    within.__cause__ = failed
    assert [exit_code_of(one) for one in (cause, failed, within)] == [code] * 3
