"""Preemption of a Slurm site, taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpctwin.model import Cluster
from hpctwin.rms.site import IMPORTED, NO_EFFECT, NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site, pseudonyms

WHOLE = ("SelectType=select/linear", "NodeName=n[1-4] CPUs=8")
TIERS = (
    "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=30",
    "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF",
)
BY_TIER = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
QOS = "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode\n"


def imported(tmp_path: Path, *lines: str, qos: str = "") -> Imported:
    (tmp_path / "slurm.conf").write_text("\n".join(lines) + "\n")
    if qos:
        (tmp_path / "qos.txt").write_text(QOS + qos)
    return import_site("slurm", tmp_path)


def said(cluster: Cluster) -> dict[str, Any]:
    assert cluster.preemption is not None
    return cluster.preemption.model_dump(exclude_unset=True)


def became(made: Imported, which: str) -> dict[str, str]:
    return {one.name: one.why for one in made.site.settings if one.became == which}


def test_tiers_modes_graces_and_exempt_time_of_partitions_are_imported(tmp_path):
    made = imported(tmp_path, *WHOLE, *BY_TIER, *TIERS, "PreemptExemptTime=00:10:00")
    assert said(made.site.cluster) == {
        "mode": "requeue",
        "exempt": 600,
        "requeue_after": 120,
        "partitions": {"low": {"tier": 1, "grace": 30}, "high": {"tier": 10, "mode": "off"}},
    }
    taken = became(made, IMPORTED)
    assert taken["PreemptMode"] == "preemption: mode requeue"
    assert taken["low: GraceTime"] == "preemption: grace"
    assert "preempts jobs of lower tiers" in taken["PriorityTier"]
    assert not [name for name in became(made, NOT_MODELED) if "reempt" in name]


def test_preemption_between_qos_is_imported(tmp_path):
    made = imported(
        tmp_path, *WHOLE, "PreemptType=preempt/qos", "PreemptMode=CANCEL",
        "PreemptParameters=youngest_first,strict_order", "AuthInfo=cred_expire=60", TIERS[0],
        qos="normal|10|00:00:00|||requeue\nhigh|100|00:01:00|normal,gone|00:30:00|cluster\n",
    )  # fmt: skip
    assert said(made.site.cluster) == {
        "mode": "cancel",
        "requeue_after": 60,
        "youngest_first": True,
        "qos": {
            "normal": {"mode": "requeue"},
            "high": {"preempts": ("normal",), "grace": 60, "exempt": 1800},
        },
    }
    left = became(made, NOT_MODELED)
    assert left["QOS high: Preempt"] == "the QOS does not exist"
    assert left["PreemptParameters: strict_order"] == "jobs to preempt are chosen as by default"


SUSPEND = (BY_TIER[0], "PreemptMode=SUSPEND,GANG")


def test_suspending_is_imported_if_jobs_have_whole_nodes(tmp_path):
    made = imported(
        tmp_path, *WHOLE, *SUSPEND, *TIERS, "PartitionName=mid Nodes=ALL PriorityTier=5 PreemptMode=CANCEL",
    )  # fmt: skip
    assert said(made.site.cluster) == {
        "mode": "suspend",
        "partitions": {
            "low": {"tier": 1},
            "high": {"tier": 10, "mode": "off"},
            "mid": {"tier": 5, "mode": "cancel"},
        },
    }
    assert became(made, IMPORTED)["PreemptMode"] == "preemption: mode suspend"
    assert became(made, NO_EFFECT)["low: GraceTime"] == "suspended jobs have no grace time"
    assert "SelectTypeParameters" not in became(made, NOT_MODELED)


def test_memory_that_suspended_jobs_keep_is_reported_by_name(tmp_path):
    made = imported(tmp_path, *WHOLE, *SUSPEND, *TIERS, "SelectTypeParameters=CR_Memory")
    assert "keep their memory in Slurm" in became(made, NOT_MODELED)["SelectTypeParameters"]


def test_suspending_by_qos_says_what_time_slices_there_are(tmp_path):
    made = imported(
        tmp_path, *WHOLE, "PreemptType=preempt/qos", "PreemptMode=SUSPEND,GANG", TIERS[0],
        qos="normal|10||||\nhigh|100||normal||requeue\n",
    )  # fmt: skip
    assert said(made.site.cluster)["mode"] == "suspend"
    assert said(made.site.cluster)["qos"]["high"] == {"preempts": ("normal",), "mode": "requeue"}
    assert (
        "Slurm gives time slices to both jobs of one partition"
        in became(made, IMPORTED)["PreemptMode"]
    )


def test_suspending_is_imported_if_jobs_share_nodes_and_memory(tmp_path):
    made = imported(
        tmp_path, WHOLE[1], *SUSPEND, TIERS[0] + " PreemptMode=CANCEL", TIERS[1],
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory",
    )  # fmt: skip
    assert said(made.site.cluster)["mode"] == "suspend"
    assert said(made.site.cluster)["partitions"]["low"]["mode"] == "cancel"
    assert became(made, IMPORTED)["PreemptMode"] == "preemption: mode suspend"
    assert "SelectTypeParameters" not in became(made, NOT_MODELED)


def test_jobs_that_are_not_requeued_are_cancelled(tmp_path):
    made = imported(tmp_path, *WHOLE, *BY_TIER, *TIERS, "JobRequeue=0")
    assert said(made.site.cluster)["mode"] == "cancel"
    assert "requeue_after" not in said(made.site.cluster)


def test_equal_tiers_preempt_no_job(tmp_path):
    made = imported(tmp_path, *WHOLE, *BY_TIER, TIERS[0])
    assert made.site.cluster.preemption is None


def test_jobs_are_preempted_where_they_share_nodes_too(tmp_path):
    made = imported(tmp_path, WHOLE[1], *BY_TIER, *TIERS)
    assert said(made.site.cluster)["partitions"] == {
        "low": {"tier": 1, "grace": 30},
        "high": {"tier": 10, "mode": "off"},
    }
    assert became(made, IMPORTED)["PreemptMode"] == "preemption: mode requeue"


def test_pseudonyms_are_the_same_everywhere(tmp_path):
    made = imported(
        tmp_path, *WHOLE, "PreemptType=preempt/qos", "PreemptMode=CANCEL", TIERS[0],
        qos="normal|10||||\nhigh|100||normal||\n",
    )  # fmt: skip
    hidden = pseudonyms(made, b"0123456789abcdef").site.cluster
    assert hidden.preemption is not None
    (one,) = [name for name, of in hidden.preemption.qos.items() if of.preempts]
    assert hidden.preemption.qos[one].preempts == tuple({*hidden.qos} - {one})
    assert "high" not in str(hidden.preemption)
