"""The examples of the README and the guides run as they stand."""

from __future__ import annotations

import configparser
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from hpctwin import Cluster
from hpctwin.facility import Facility
from hpctwin.rms.records.events import event_schema
from hpctwin.twin.settings.config import TwinConfig, config_schema
from tests.conftest import lacking
from tests.example_slurm import write_commands
from tests.tutorial import Reader

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "/_" not in page.as_posix()),
]
PLAIN_TABLES = pl.Config(
    apply_on_context_enter=True,
    tbl_formatting="ASCII_MARKDOWN",
    tbl_hide_dataframe_shape=True,
    tbl_hide_column_data_types=True,
    tbl_rows=-1,
    tbl_cols=-1,
    tbl_width_chars=400,
    fmt_str_lengths=100,
)
TUTORIALS = [ROOT / "README.md", *sorted((ROOT / "docs/get-started").glob("*.md"))]
EXAMPLES = [
    pytest.param(page, number, id=f"{page.name}-{number}")
    for page in PAGES
    if page not in TUTORIALS
    for number in range(len(re.findall(r"```python\n", page.read_text())))
]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the examples of a page in Python, each with the table or text directly below it."""
    block = r"```python\n(.*?)```\n(?:\n((?:\|[^\n]*\n)+|```text\n.*?```))?"
    return re.findall(block, page.read_text(), re.DOTALL)


def cells(text: str) -> list[str]:
    """Return the words of a text or a table, without its frame."""
    words = re.sub(r"```(text)?|\|", " ", text).split()
    return [word for word in words if not re.fullmatch(r"-{3,}", word)]


@pytest.mark.parametrize(("page", "number"), EXAMPLES)
def test_the_example_runs(
    page: Path,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    *before, (code, shown) = blocks(page)[: number + 1]
    for earlier, _ in before:
        # What begins with the name of a file is that file, there for what follows on the page.
        if name := re.match(r"# (\w+\.py)\n", earlier):
            (tmp_path / name[1]).write_text(earlier.removeprefix(name[0]))
    # From a file: an ordering's source must be found, as it is when a user writes a script.
    script = tmp_path / "example.py"
    script.write_text(code)
    with PLAIN_TABLES:
        exec(compile(code, str(script), "exec", dont_inherit=True), {"__name__": "example"})
    if shown and (printed := capsys.readouterr().out):
        assert cells(printed) == cells(shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_a_reader_of_a_tutorial_sees_what_it_shows(page: Path, tmp_path: Path) -> None:
    slurm = tmp_path / "slurm"
    write_commands(slurm)
    (tmp_path / "empty").mkdir()
    Reader(tmp_path / "empty", slurm).follow(page.read_text())


@pytest.mark.parametrize(
    "name", ["backfilling", "cluster", "control-loop", "leases", "policy-grammar", "power-states"]
)
def test_a_diagram_is_the_one_that_its_script_draws(name: str) -> None:
    drawn = runpy.run_path(str(ROOT / "docs/images/diagrams.py"))["DIAGRAMS"][name]()
    assert drawn == (ROOT / f"docs/images/{name}.svg").read_text(), "python docs/images/diagrams.py"


def yaml_of(page: str) -> list[str]:
    """The blocks of YAML of a page, without their indentation in lists."""
    found = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [textwrap.dedent(one) for one in found]


def test_the_cluster_page_shows_a_valid_cluster(tmp_path: Path) -> None:
    (text,) = yaml_of("docs/how-to/describe-a-cluster.md")
    (preemption,) = yaml_of("docs/how-to/set-limits-and-preemption.md")
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert Cluster.from_yaml(path).node_count == 128
    path.write_text(
        "nodes: [{name: node, count: 8}]\npartitions: [{name: urgent}, {name: scavenge}]\n"
        + preemption
    )
    found = Cluster.from_yaml(path).preemption
    assert found is not None
    assert found.checkpoint == 3600


def test_the_network_page_shows_valid_clusters(tmp_path: Path) -> None:
    sizes = []
    for text in yaml_of("docs/how-to/describe-a-network.md"):
        (tmp_path / "cluster.yaml").write_text(text)
        platform = Cluster.from_yaml(tmp_path / "cluster.yaml").platform
        assert platform is not None
        sizes.append(len(platform.hosts_of("compute_node")))
    assert sizes == [128, 96, 32]


def test_the_network_page_shows_jobs_that_run(tmp_path: Path) -> None:
    page = ROOT / "docs/how-to/describe-a-network.md"
    (jobs,) = re.findall(r"```text\n(job_id.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "jobs.csv").write_text(jobs)
    (tmp_path / "small.yaml").write_text(yaml_of("docs/how-to/describe-a-network.md")[0])
    command = "hpctwin simulate jobs.csv --cluster small.yaml --sharing fair"
    assert command in page.read_text()
    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "3: 3 completed" in ran.stdout


LINKED = [*PAGES, *sorted(ROOT.glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of a page may name, as GitHub and MyST make it."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", dict.fromkeys(LINKED), ids=lambda page: page.name)
def test_links_of_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name}: {target}"
        if heading and file.suffix == ".md":
            assert heading in anchors(file), f"{page.name}: {target}#{heading}"


def test_a_heading_is_named_as_links_name_it() -> None:
    assert "0-probe" in anchors(ROOT / "docs/how-to/deploy-next-to-slurm.md")


@pytest.mark.parametrize(("name", "made"), [("events", event_schema), ("twin", config_schema)])
def test_the_published_schema_is_that_of_the_code(name: str, made) -> None:
    path = ROOT / f"docs/{name}.schema.json"
    assert json.loads(path.read_text()) == made(), f"hpctwin twin schema > {path.name}"


def test_the_twin_page_shows_a_valid_configuration(tmp_path: Path) -> None:
    (text,) = yaml_of("docs/how-to/configure-the-twin.md")
    path = tmp_path / "twin.yaml"
    path.write_text(text)
    assert TwinConfig.from_yaml(path).core.pool == ("wfp+easy", "fcfs+easy", "sjf+easy")


def test_the_facility_page_shows_a_valid_facility(tmp_path: Path) -> None:
    (text,) = yaml_of("docs/how-to/simulate-several-clusters.md")
    path = tmp_path / "facility.yaml"
    path.write_text(text)
    assert Facility.from_yaml(path).names == ["polaris", "theta"]


def command_lines(text: str) -> Iterator[list[str]]:
    """What follows ``hpctwin`` in each command of a shell's text, without what only the shell reads."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        command: list[str] = []
        for word in [*words, ";"]:
            if word in {"&&", "||", "|", "&", ";", ">", ">>", "<"}:
                if command[:1] == ["hpctwin"]:
                    yield command[1:]
                command = []
            else:
                command.append(word)


DOCUMENTED = [
    pytest.param(command, id=f"{page.name}: {' '.join(command)}")
    for page in [*PAGES, *sorted(ROOT.glob("contrib/**/README.md"))]
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL)
    for command in command_lines(block)
]


@pytest.mark.parametrize("command", DOCUMENTED)
def test_commands_that_pages_show_are_such(command: list[str]) -> None:
    from hpctwin.cli.app import app

    app.parse_args(command, exit_on_error=False, print_error=False)


def mentioned(page: Path) -> Iterator[list[str]]:
    """Commands that stand within a page's sentences."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for span in re.findall(r"`(hpctwin [a-z][^`]*)`", text):
        if not re.search(r"…|\.\.\.| \| |\[-", span):  # several commands, or a part of one
            yield from command_lines(" ".join(span.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_mention_are_such_as_far_as_they_go(page: Path) -> None:
    from cyclopts import CoercionError, MissingArgumentError

    from hpctwin.cli.app import app

    for command in mentioned(page):
        # A letter stands for a number, and a word may be all that is meant.
        with suppress(MissingArgumentError, CoercionError):
            app.parse_args(command, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "unit", sorted(ROOT.glob("contrib/systemd/*.service")), ids=lambda p: p.name
)
def test_a_service_starts_a_command_that_there_is(unit: Path) -> None:
    from hpctwin.cli.app import app

    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    assert program == "/opt/hpctwin/bin/hpctwin"
    app.parse_args(words, exit_on_error=False, print_error=False)
    assert parser["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_finds_no_error_in_the_services(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        lacking("systemd-analyze is not installed (Debian: apt-get install systemd)")
    units = []
    for unit in sorted(ROOT.glob("contrib/systemd/*.service")):
        # Of a template an instance is checked; the program is one that there is.
        units.append(tmp_path / unit.name.replace("@", "@polaris"))
        units[-1].write_text(unit.read_text().replace("/opt/hpctwin/bin/hpctwin", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
