"""Inputs of the journal, given to a core once more."""

from __future__ import annotations

import json

from hpctwin.rms.events import parse_event
from hpctwin.rms.records import Snapshot
from hpctwin.twin.choice import Decision
from hpctwin.twin.core import Core
from hpctwin.twin.journal import Input

__all__ = ["apply_input"]


def apply_input(core: Core, one: Input) -> Decision | None:
    """Give an input to the core, as it was given the first time; the decision if it asked for one."""
    if one.kind == "event":
        core.take_event(parse_event(one.body))
        return None
    if one.kind == "snapshot":
        core.take_snapshot(Snapshot.model_validate_json(one.body))
        return None
    body = json.loads(one.body)
    match one.kind:
        case "decide":
            return core.decide(**body)
        case "asked":
            core.asked_to_start(**body)
        case "refused":
            core.refused(**body)
        case "gap":
            core.mirror.give_up_waiting()
    return None
