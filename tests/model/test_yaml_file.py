"""One loader for all settings in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.facility import Facility
from hpctwin.formats.clusters import read_cluster
from hpctwin.formats.spars_config import read_spars_config
from hpctwin.model import Cluster, read_yaml
from hpctwin.twin.facility.service import LiveFacility
from hpctwin.twin.settings.config import TwinConfig

READERS = {
    "cluster": Cluster.from_yaml,
    "facility": Facility.from_yaml,
    "twin": TwinConfig.from_yaml,
    "live facility": LiveFacility.from_yaml,
    "platform": read_cluster,
    "spars": read_spars_config,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_key_that_is_there_twice_is_rejected_with_both_lines(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("name: a\nnodes:\n  - name: n\n    count: 4\n    count: 40\n")
    with pytest.raises(ConfigError, match="line 5: 'count' is given twice, first in line 4"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "expected fields such as '.*:', found nothing"),
        (b"- 1\n", r"expected fields such as '.*:', found \[1\]"),
        (b"a: [1\nb: 2\n", "line 2, column 2: not YAML: .*expected ',' or ']'"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"a: \x01\n", "not YAML: .*special characters are not allowed"),
        (b"day: 2022-13-45\n", "not a usable value: month must be in 1..12"),
        (b"[" * 5000, "nested too deeply"),
        (b"a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        (b"--- {a: 1}\n--- {b: 2}\n", "expected a single document"),
    ],
)
def test_invalid_settings_are_reported_in_one_line(
    tmp_path: Path, reader: str, content: bytes, told: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as found:
        READERS[reader](path)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_or_a_folder_is_reported(tmp_path: Path, reader: str) -> None:
    for path, told in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(ConfigError, match=told):
            READERS[reader](path)


def test_the_same_key_in_other_places_and_merged_ones_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  x: 3\nlist: [{x: 1}, {x: 2}]\n1: a\n'1': b\n"
    )
    found = read_yaml(path, "base")
    assert found["more"] == {"x": 3, "y": 2}
    assert found[1] == "a"
    assert found["1"] == "b"


@pytest.mark.parametrize(
    "node", ["{name: off, count: 4}", "{name: n, count: 4, modes: {on: {power_w: 9}}}"]
)
def test_a_word_that_yaml_takes_for_a_boolean_must_be_quoted(tmp_path: Path, node: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: c\nnodes:\n  - {node}\n")
    with pytest.raises(
        ConfigError, match=r"line 3.* must be text, not (True|False): quote on, off"
    ):
        read_cluster(path)
