"""Python of the user's: found by ``FILE.py:NAME`` or ``module:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hpctwin.errors import PolicyError, UnknownNameError

__all__ = ["functions_in", "load_module", "named_in"]


def load_module(name: str) -> ModuleType:
    """Run a file, or import a module.

    Args:
        name: ``FILE.py``, or a module's name as in an import.

    Raises:
        PolicyError: it is not there, or fails.
    """
    path = Path(name)
    try:
        if path.suffix != ".py":
            return import_module(name)
        spec = spec_from_file_location(f"hpctwin_user_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise PolicyError(f"{path}: there is no such file")
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except PolicyError:
        raise
    except SyntaxError as error:
        where = name if error.lineno is None else f"{error.filename or name}, line {error.lineno}"
        raise PolicyError(f"{where}: this is not Python: {error.msg}") from error
    except ModuleNotFoundError as error:
        lacking = (
            "there is no such module"
            if error.name == name
            else f"it imports {error.name!r}, which is not installed"
        )
        raise PolicyError(f"{name}: {lacking}") from error
    except (Exception, SystemExit) as error:  # whatever a user's code raises when it is loaded
        raise PolicyError(f"{name} fails when it is loaded: {error!r}") from error
    return module


def named_in(module: ModuleType, name: str, where: str, also: Iterable[str] = ()) -> Any:
    """What has a name in a module.

    Args:
        module: as `load_module` gives it.
        name: of a function, or of what a decorator made of it.
        where: the file or module, for messages.
        also: names besides its functions that could be meant.

    Raises:
        UnknownNameError: nothing has; the message lists what there is.
    """
    if not hasattr(module, name):
        raise UnknownNameError(f"function in {where}", name, {*functions_in(module), *also})
    return getattr(module, name)


def functions_in(module: ModuleType) -> list[str]:
    """The names of what can be called and is the module's own."""
    return sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    )
