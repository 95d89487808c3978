"""Replay of the journal's inputs in a core."""

from __future__ import annotations

import json

from pydantic import ValidationError

from hpctwin.errors import JournalError
from hpctwin.model.settings import first_fault
from hpctwin.rms.records.events import parse_event
from hpctwin.rms.records.records import Snapshot
from hpctwin.twin.core.core import Core
from hpctwin.twin.core.decision import Decision
from hpctwin.twin.journal.journal import Journal
from hpctwin.twin.journal.tables import Input
from hpctwin.twin.settings.config import CoreSettings, TwinConfig
from hpctwin.twin.what_if.pool import WhatIfs

__all__ = ["apply_input", "restored"]


def restored(journal: Journal, settings: CoreSettings, what_ifs: WhatIfs | None) -> Core:
    """Return a core that continues from the journal's end; a new one if it is empty.

    Recorded decisions are repeated under the settings that they were made with. The resulting
    state is then transferred to a core with the present settings.

    Args:
        journal: The journal.
        settings: The present settings.
        what_ifs: Executor of the what-ifs.

    Raises:
        HpctwinError: The journal cannot be read.
        Exception: Its content is not usable.
    """
    state, inputs = journal.read_inputs()
    last = journal.last_settings()
    core = Core(settings, what_ifs)
    if state is None or last is None:
        return core
    then = TwinConfig.of(last, f"{journal.path}, settings").core
    earlier = core if then == settings else Core(then, what_ifs)
    earlier.restore(state)
    for one in inputs:
        apply_input(earlier, one)
    if earlier is not core:
        core.restore(earlier.state())
    return core


def apply_input(core: Core, one: Input) -> Decision | None:
    """Give a recorded input to the core; return the decision that it asked for."""
    if one.kind == "event":
        core.take_event(parse_event(one.body))
        return None
    if one.kind == "snapshot":
        try:
            snapshot = Snapshot.model_validate_json(one.body)
        except ValidationError as error:
            raise JournalError(f"input {one.id} is no snapshot: {first_fault(error)}") from error
        core.take_snapshot(snapshot)
        return None
    body = json.loads(one.body)
    match one.kind:
        case "decide":
            # A record without this field means that all what-ifs had answered.
            return core.decide(**{"unanswered": (), **body})
        case "asked":
            core.asked_to_start(**body)
        case "refused":
            core.refused(**body)
        case "gap":
            core.mirror.give_up_waiting()
    return None
