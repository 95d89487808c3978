"""``hpctwin rms``: the resource manager beside the twin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

__all__ = ["rms_app"]

rms_app = App(name="rms", help="Look at the resource manager; the dead-man's handle.")

ConfigPath = Annotated[Path, Parameter(name=["--config", "-c"], env_var="HPCTWIN_CONFIG")]


@rms_app.command
def deadman(
    *,
    config: ConfigPath = Path("hpctwin.yaml"),
    after: str = "60s",
    every: str = "5s",
    once: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Give scheduling back to the resource manager when the twin shows no life.

    Runs apart from the twin, as a service or from cron with --once. It needs the heartbeat file named in
    the configuration, and the right to release jobs. Exit code with --once: 0 the twin lives or
    scheduling was given back, 1 it could not be given back.

    Args:
        config: the twin's YAML file.
        after: how old the last sign of life may be.
        every: how often to look.
        once: look once and end.
    """
    import logging
    import signal
    import threading

    from hpctwin.errors import ConfigError
    from hpctwin.model import parse_duration_s
    from hpctwin.rms.deadman import look, watch
    from hpctwin.twin.config import SlurmSettings, TwinConfig
    from hpctwin.twin.service import open_manager

    settings = TwinConfig.from_yaml(config).manager
    if not isinstance(settings, SlurmSettings) or settings.heartbeat is None:
        raise ConfigError(f"{config}: the handle needs manager.kind slurm and manager.heartbeat")
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    manager = open_manager(settings)
    after_s, every_s = parse_duration_s(after), parse_duration_s(every)
    if once:
        outcome = look(manager, settings.heartbeat, after_s)
        said = "the twin lives" if outcome is None else f"scheduling given back: {outcome.result}"
        print(said + (f" ({outcome.reason})" if outcome is not None and outcome.reason else ""))
        return 0 if outcome is None or outcome.result == "done" else 1
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    watch(manager, settings.heartbeat, after_s, stop, every_s=every_s)
    return 0


@rms_app.command(name="slurm-rule")
def slurm_rule(*, partition: tuple[str, ...] = ()) -> int:
    """Print the job_submit.lua that holds jobs for the twin, to be put beside slurm.conf.

    Args:
        partition: only jobs of this partition; give it once per partition. All if left out.
    """
    from importlib.resources import files

    from hpctwin.errors import ConfigError

    for name in partition:
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{name!r} is not the name of a partition")
    text = (files("hpctwin.rms.slurm") / "job_submit.lua").read_text()
    names = ", ".join(f'"{name}"' for name in partition)
    print(text.replace("local PARTITIONS = {}", f"local PARTITIONS = {{{names}}}"), end="")
    return 0
