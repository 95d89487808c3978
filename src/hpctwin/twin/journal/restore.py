"""Inputs of the journal, given to a core once more."""

from __future__ import annotations

import json

from pydantic import ValidationError

from hpctwin.errors import JournalError
from hpctwin.model.input.settings import first_fault
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
    """A core that goes on where the journal ends; a new one if nothing is recorded.

    What was recorded was decided by the settings of then: they make it again, and the state that comes
    out goes on under the settings of now.

    Args:
        journal: the journal.
        settings: of now.
        what_ifs: runs them.

    Raises:
        HpctwinError: the journal cannot be read.
        Exception: what it holds cannot be used.
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
    """Give an input to the core, as it was given the first time; the decision if it asked for one."""
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
            # All had answered where nothing is said of it.
            return core.decide(**{"unanswered": (), **body})
        case "asked":
            core.asked_to_start(**body)
        case "refused":
            core.refused(**body)
        case "gap":
            core.mirror.give_up_waiting()
    return None
