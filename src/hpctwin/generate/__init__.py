"""Workload generators: models with a seed; the same seed gives the same jobs."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model.arguments import check_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpctwin.model import Workload

__all__ = ["GENERATORS", "find_generator", "generate"]

GENERATORS = {
    "poisson": "poisson",
    "lublin": "lublin",
    "four-phase": "four_phase",
    "pas": "pas",
    "theta-year": "theta_year",
}
"""Module of each generator by name; the function has the module's name."""


@check_arguments()
def generate(name: str, **options: Any) -> Workload:
    """Generate a workload.

    Args:
        name: ``poisson``, ``lublin``, ``four-phase``, ``pas`` or ``theta-year``.
        options: Options of that generator, among them ``seed``, and those of
            `hpctwin.generate.communication.with_communication`.

    Raises:
        UnknownNameError: There is no such generator, or it has no such option.
        ConfigError: The value of an option is not valid.
    """
    from hpctwin.generate.communication import COMMUNICATION_OPTIONS, with_communication

    function = find_generator(name, options)
    sent = {name: options.pop(name) for name in COMMUNICATION_OPTIONS if name in options}
    try:
        made: Workload = function(**options)
        if sent:
            made = with_communication(made, **sent, seed=options.get("seed", 0))
    except TypeError as error:
        raise ConfigError(f"generator {name!r}: an option has the wrong type ({error})") from error
    return made


def find_generator(name: str, options: Iterable[str]) -> Callable[..., Workload]:
    """Return the generator of a name, if it has all given options.

    Raises:
        UnknownNameError: There is no such generator, or it has no such option.
    """
    from hpctwin.generate.communication import COMMUNICATION_OPTIONS

    if name not in GENERATORS:
        raise UnknownNameError("workload generator", name, GENERATORS)
    module = GENERATORS[name]
    function: Callable[..., Workload] = getattr(
        importlib.import_module(f"hpctwin.generate.{module}"), module
    )
    known = [*inspect.signature(function).parameters, *COMMUNICATION_OPTIONS]
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of generator {name!r}", option, known)
    return function


class _Room(ModuleType):
    """A callable package: ``hpctwin.generate`` may be imported as a module first."""

    def __call__(self, name: str, **options: Any) -> Workload:
        return generate(name, **options)


sys.modules[__name__].__class__ = _Room
