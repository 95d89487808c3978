"""What is fetched, trained or listened for: a wrong line is told in one, before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.energy.prices.sources import SOURCES
from tests.cli.test_cli import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with all keys of all sources but one."""
    for source in SOURCES.values():
        for name in source.secrets:
            monkeypatch.setenv(name, "a-key")
    monkeypatch.delenv("WATTTIME_PASSWORD")
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("signal list all", 2, "'all' is not accepted here; see --help"),
        ("signal list --jsn", 2, "Did you mean --json?"),
        ("signal list --source entsoe", 2, "--source"),
        ("signal lst", 2, 'Did you mean "list"?'),
        ("signal list --json yes", 2, "'yes' is not accepted here; see --help"),
        ("signal fetch entsoee DE-LU --out p.csv --from 2026-01-01", 2, "Did you mean 'entsoe'?"),
        ("signal fetch entsoe DE-UL --out p.csv --from 2026-01-01", 2, "Did you mean 'DE-LU'?"),
        ("signal fetch entsoe --out p.csv --from 2026-01-01", 2, "ZONE is missing; see hpctwin"),
        ("signal fetch entsoe FR --from 2026-01-01", 2, "--out needs a value"),
        ("signal fetch entsoe FR --out p.csv", 2, "give --from or --source-forecast"),
        ("signal fetch entsoe FR --out p.csv --source-forecast", 2, "entsoe offers no forecasts"),
        (
            "signal fetch electricitymaps DE --out p.csv --source-forecast --until 2026-01-01",
            2,
            "--until works only with --from",
        ),
        (
            "signal fetch entsoe FR --out p.csv --from yesterday",
            2,
            "--from is 'yesterday'; give a date such as 2026-01-31T13:00",
        ),
        (
            "signal fetch entsoe FR --out p.csv --from 2026-01-02 --until 2026-01-01",
            2,
            "--from is 2026-01-02; it must be before 2026-01-01",
        ),
        (
            "signal fetch entsoe FR --out p.csv --from 3026-01-02",
            2,
            "--from is 3026-01-02; it must be before now",
        ),
        (
            "signal fetch watttime CAISO_NORTH --out p.csv --from 2026-01-01",
            2,
            "watttime: environment variable WATTTIME_PASSWORD is not set",
        ),
        (
            "signal fetch entsoe FR --out none/p.csv --from 2026-01-01",
            2,
            "the folder none is not there",
        ),
        (
            "signal fetch entsoe FR --out folder --from 2026-01-01",
            2,
            "it is a folder, but a file is needed",
        ),
        (
            "signal fetch electricitymaps DE --out p.csv --source-forecast --url localhost:9",
            2,
            "the URL must start with http:// or https:// and name a host",
        ),
        (
            "signal fetch electricitymaps DE --out p.csv --source-forecast --url http://127.0.0.1:9",
            1,
            "http://127.0.0.1:9: no answer: ConnectionRefusedError",
        ),
        ("policy serve", 2, "ADDRESS is missing; see hpctwin policy serve --help"),
        ("policy serve nowhere", 2, "'nowhere': cannot listen at this address"),
        ("policy serve tcp://127.0.0.1:99999", 2, "port 99999 is invalid; it must be 1 to 65535"),
        ("policy serve tcp://127.0.0.1:0", 2, "port 0 is invalid; it must be 1 to 65535"),
        ("policy serve tcp://127.0.0.1:28000 -p fcsf", 2, "ordering 'fcsf'. Did you mean 'fcfs'?"),
        ("policy serve tcp://127.0.0.1:28000 -p fcfs+eazy", 2, "'eazy'. Did you mean 'easy'?"),
        ("policy serve tcp://127.0.0.1:28000 -p fcfs~psus:5m", 2, "has no power model"),
    ],
)
def test_a_wrong_line_is_reported_in_one_line_before_the_work(
    folder: Path, line: str, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert run(*line.split()) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert sorted(folder.rglob("*")) == before
