from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpctwin.formats import SwfRules, read_workload, write_workload
from tests.formats.format_strategies import assert_same_jobs

pytestmark = pytest.mark.traces

# Jobs and, where the file says it, the size of the cluster.
LOGS = {
    "CEA-Curie-sample-jad": (29998, 93312),
    "HPC2N-2002-2.2-cln-completed-reassembled": (201981, 240),
    "Mira-2018-lumos": (22508, 49152),
    "NASA-iPSC-1993-3.1-cln": (18239, 128),
    "NASA-iPSC-1993-3": (42264, 128),
    "Philly-2017-lumos": (151816, 2490),
    "Polaris-2023-schedulus": (26266, 560),
    "Theta-2023-lumos": (14374, 4392),
    "ThetaGPU-2023-lumos": (22606, 24),
    "lublin_256": (10000, 256),
    "mustang_release_v0.2.0-completed-reassembled": (1100814, 38400),
    "polaris_theta_23": (34547, None),
    "theta_2022": (23911, 4360),
    "theta_2023": (8281, None),
    "wagap-2013": (17898, None),
}
SPARS = {
    "spars_CERIT-soft-wall-0-3000": 504,
    "spars_DAS2-fs1-0-3000": 64,
    "spars_DAS2-fs2-0-3000": 64,
    "spars_DAS2-fs3-0-3000": 64,
    "spars_DAS2-fs4-0-3000": 64,
}


@pytest.mark.parametrize("name", LOGS)
def test_every_log_is_read_whole(traces: Path, name: str) -> None:
    jobs, size = LOGS[name]
    w = read_workload(traces / "swf" / f"{name}.swf.gz")
    assert (len(w), w.nodes_hint, w.name) == (jobs, size, name)
    assert w.submit_ms[0] == 0
    assert (w.walltime_ms > 0).all()
    assert w.notes.skipped == ()


@pytest.mark.parametrize("name", SPARS)
def test_every_spars_workload_is_read_whole(traces: Path, name: str) -> None:
    w = read_workload(traces / "jobs_json" / f"{name}.json.gz")
    assert (len(w), w.nodes_hint) == (3000, SPARS[name])
    assert w.user.labels


def test_theta_has_its_waits_and_its_date(traces: Path) -> None:
    w = read_workload(traces / "swf" / "theta_2022.swf.gz")
    assert w.start_epoch_s == 1641021254
    assert w.recorded_start_ms[0] == 52_645_000
    assert w.nodes.max() == 4048
    over = (w.runtime_ms > w.walltime_ms).mean()
    assert over == pytest.approx(0.262, abs=5e-4)


def test_nasa_gets_its_run_times_as_walltimes(traces: Path) -> None:
    w = read_workload(traces / "swf" / "NASA-iPSC-1993-3.1-cln.swf.gz")
    np.testing.assert_array_equal(w.walltime_ms, np.maximum(w.runtime_ms, 1))
    assert w.notes.counts == {
        "job without requested time, given its run time": 18239,
        "job without requested processors, given the allocated ones": 18239,
    }


def test_wagap_has_two_jobs_without_run_time_and_wide_lines(traces: Path) -> None:
    path = traces / "swf" / "wagap-2013.swf.gz"
    w = read_workload(path)
    assert w.notes.counts == {
        "job without run time, skipped": 2,
        "preceding jobs ignored: all jobs name the same, one of them itself": 17898,
        "line with more than 18 fields, the others ignored": 17900,
    }
    assert len(read_workload(path, rules=SwfRules(no_runtime="zero"))) == 17900


@pytest.mark.parametrize("name", ["theta_2022", "CEA-Curie-sample-jad", "ThetaGPU-2023-lumos"])
def test_a_log_written_and_read_again_is_the_same(traces: Path, tmp_path: Path, name: str) -> None:
    w = read_workload(traces / "swf" / f"{name}.swf.gz")
    write_workload(w, tmp_path / "again.swf.gz")
    back = read_workload(tmp_path / "again.swf.gz")
    assert_same_jobs(back, w)
    assert back.start_epoch_s == w.start_epoch_s
