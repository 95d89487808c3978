"""What Slurm says of jobs, nodes and partitions, in short."""

from __future__ import annotations

from typing import Any

PARTITIONS = b"PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=1-02:00:00 State=UP PriorityTier=3\n"
NONE = b"No reservations in the system\n"
NOW_S = 1_800_000_000.0


def job(**about: Any) -> dict[str, Any]:
    return {
        "job_id": 7, "job_state": "PENDING", "state_reason": "None", "priority": 10, "node_count": 2,
        "submit_time": 1_799_999_000, "start_time": 0, "time_limit": 30, "user_name": "ada",
        "partition": "main", "nodes": "", "dependency": "", "admin_comment": "", "restart_cnt": 0,
        "eligible_time": 0, "array_task_string": "", "het_job_id": 0, **about,
    }  # fmt: skip


NODE = {"name": "n1", "state": "idle", "state_flags": [], "partitions": ["main"], "cpus": 8,
        "real_memory": 2048, "gres": "gpu:a100:4(S:0-1)"}  # fmt: skip
NODES = [{**NODE, "name": f"n{i}"} for i in (1, 2, 3)]
