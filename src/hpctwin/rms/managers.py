"""The kinds of resource manager: built-in ones by name, and a site's custom class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, WrapValidator

from hpctwin.errors import ConfigError, in_brief
from hpctwin.model.trusted import load_module, named_in
from hpctwin.rms.emulated.client import EmulatedSettings
from hpctwin.rms.pbs.settings import PbsSettings
from hpctwin.rms.settings import ManagerSettings, Probe
from hpctwin.rms.slurm.settings import SlurmSettings

MANAGERS: Mapping[str, type[ManagerSettings]] = {
    "emulated": EmulatedSettings,
    "slurm": SlurmSettings,
    "pbs": PbsSettings,
}
"""Settings of each built-in kind, by the value of ``manager.kind``."""


def kind_of(manager: object) -> type[ManagerSettings] | None:
    """Return the kind in a manager's settings, validated or not; None if unknown."""
    if isinstance(manager, ManagerSettings):
        return type(manager)
    name = manager.get("kind") if isinstance(manager, Mapping) else None
    if not isinstance(name, str):
        return None
    return _own(name) if ":" in name else MANAGERS.get(name)


def probe(folder: str = "", conf: Path | None = None) -> list[Probe]:
    """Search for resource managers on this host; only commands that read are run.

    Args:
        folder: Folder of the commands; if empty, the path is searched.
        conf: ``SLURM_CONF``, if it is not the default.
    """
    found = (kind.probe(folder, conf) for kind in MANAGERS.values())
    return [one for one in found if one is not None]


def _own(name: str) -> type[ManagerSettings]:
    """Return the class of a site's custom settings."""
    where, _, attribute = name.rpartition(":")
    found = named_in(load_module(where), attribute, where)
    if not (isinstance(found, type) and issubclass(found, ManagerSettings)):
        raise ConfigError(
            f"{name} is {in_brief(found)}; it must be a subclass of "
            "hpctwin.rms.settings.ManagerSettings"
        )
    return found


def _validated(value: Any, known: Callable[[Any], ManagerSettings]) -> ManagerSettings:
    kind = kind_of(value)
    if kind is None or kind in MANAGERS.values():
        return known(value)
    return value if isinstance(value, kind) else kind.checked(value, value["kind"])


def _plain(settings: ManagerSettings) -> dict[str, Any]:
    return settings.model_dump(mode="json")


if TYPE_CHECKING:
    AnyManager = ManagerSettings
else:
    AnyManager = Annotated[
        Annotated[reduce(or_, MANAGERS.values()), Field(discriminator="kind")],
        WrapValidator(_validated),
        PlainSerializer(_plain),
    ]
    """Settings of a manager of any kind, given by ``kind``."""
