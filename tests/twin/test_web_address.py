"""An explanation ends with the address of its page, if one is configured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hpctwin.cli.app import main
from hpctwin.errors import HpctwinError
from hpctwin.twin.settings.config import TwinConfig
from tests.twin.test_runner import Setting


def test_explanations_link_their_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = Setting(tmp_path)
    setting.submit(1)
    setting.until(lambda: setting.running() == {"1"})
    last = setting.twin.decision_id
    setting.twin.end()
    setting.journal.close()
    path = tmp_path / "twin.yaml"
    about = {
        "manager": {"kind": "emulated", "address": "none"},
        "journal": {"path": str(tmp_path / "j.sqlite")},
    }

    def said(*asked: str, **more: str) -> str:
        path.write_text(yaml.safe_dump({**about, **more}))
        with pytest.raises(SystemExit) as ended:
            main(["twin", "explain", *asked, "--config", str(path)])
        assert ended.value.code == 0
        return capsys.readouterr().out

    address = "https://twin.example/"
    job = said("job", "1", web_address=address)
    assert job.splitlines()[-1] == "https://twin.example/job/1"
    assert said(web_address=address).splitlines()[-1] == f"https://twin.example/decision/{last}"
    assert said("job", "1") == job.removesuffix("https://twin.example/job/1\n")
    page = json.loads(said("job", "a[1].srv", "--json", web_address=address))["page"]
    assert page == "https://twin.example/job/a%5B1%5D.srv"
    with pytest.raises(HpctwinError, match="web_address"):
        TwinConfig.of({**about, "web_address": "javascript:alert(1)"})
