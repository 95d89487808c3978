"""A policy in a file of its own, beside a machine's and a workload's."""

from __future__ import annotations

from pathlib import Path

from hpctwin.model.files.yaml_file import read_yaml
from hpctwin.model.input.settings import Settings

__all__ = ["PolicyFile", "read_policy"]


class PolicyFile(Settings):
    """What ``policy.yaml`` holds.

    Args:
        policy: the text of a policy, ``ORDER+BACKFILL@PLACEMENT~POWER``.
    """

    policy: str


def read_policy(path: str | Path) -> str:
    """The policy's text.

    Raises:
        ConfigError: the file cannot be read or is not valid; the message names the field.
    """
    return PolicyFile.checked(read_yaml(path, "policy"), str(path)).policy
