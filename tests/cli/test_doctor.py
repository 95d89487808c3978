"""``hpctwin doctor``: what a bug report says of the machine."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpctwin.cli.installation import findings
from tests.cli.test_cli import run


def test_it_reports_versions_compiled_code_services_and_settings_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HPCTWIN_TOKENS", "me operator hush-hush")
    monkeypatch.setenv("HPCTWIN_TRACES", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in ("qstat", "pbsnodes", "qmgr"):
        (tmp_path / command).touch(mode=0o755)
    assert run("doctor", "--json") == 0
    shown = capsys.readouterr().out
    found = {(one["part"], one["what"]): (one["state"], one["says"]) for one in json.loads(shown)}
    assert found["packages", "polars"] == ("fine", metadata.version("polars"))
    assert found["engine", "cache"][0] == "fine"
    assert found["services", "PBS"] == ("fine", f"its commands are in {tmp_path}")
    assert found["services", "Slurm"][0] == "none"
    assert found["settings", "traces"] == ("fine", "3 files")
    assert "hush-hush" not in shown
    assert run("doctor") == 0
    plain = capsys.readouterr().out
    assert plain.startswith("system\n  hpctwin ")
    assert "hush-hush" not in plain


def test_a_cache_that_cannot_be_written_is_an_error_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    # Even root may not write to a file system that is mounted read-only.
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    (found,) = (one for one in findings() if one.what == "cache")
    says = f"{tmp_path} cannot be written: set NUMBA_CACHE_DIR to a folder that can be"
    assert (found.state, found.says) == ("fault", says)


def test_a_missing_package_is_an_error_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name in ("pyyaml", "redis"):
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(metadata, "version", version)
    faults = [one for one in findings() if one.state == "fault"]
    assert [(one.what, one.says) for one in faults] == [("pyyaml", "missing: pip install pyyaml")]
    assert run("doctor") == 1
    assert "! pyyaml" in capsys.readouterr().out


@pytest.mark.parametrize(("library", "state"), [(Path("engine.so"), "none"), (None, "fault")])
def test_numba_may_be_missing_only_where_the_engine_is_compiled(
    monkeypatch: pytest.MonkeyPatch, library: Path | None, state: str
) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name == "numba":
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("hpctwin.engine.compile.library.library_path", lambda: library)
    assert [one.state for one in findings() if one.what == "numba"] == [state]


def test_extras_for_users_are_reported_and_lines_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = [f"package-{number}" for number in range(20)]
    wanted = [
        f'{name}>=1; extra == "{extra}"' for name in packages for extra in ("web", "dev", "all")
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: [*wanted, "numpy>=1"])
    monkeypatch.setattr(metadata, "version", lambda name: "1.2.3")
    monkeypatch.setattr("hpctwin.cli.output.screen", lambda: SimpleNamespace(width=60))
    assert run("doctor") == 0
    shown = capsys.readouterr().out
    assert set(re.findall(r"\[(\w+)\]", shown)) == {"web"}
    told = shown.partition("packages\n")[2].partition("engine\n")[0].splitlines()
    assert len(told) > 5
    assert max(map(len, told)) <= 60
    assert re.findall(r"package-\d+", "".join(told)) == packages
