"""Settings of a PBS connection, the probe of PBS on this host, and its gate.

The probe reports the version, the user's rights, and which ways to act would work. The gate submits
jobs with the key in a variable of the job's environment.
"""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from hpctwin.errors import CommandError, FormatError, UnreachableError
from hpctwin.rms.commands import Commands
from hpctwin.rms.gate import CommandGate, Gate, JobRequest, ListedJob, Mark
from hpctwin.rms.manager import ResourceManager, Way
from hpctwin.rms.pbs.install import LIFTING_HOOK
from hpctwin.rms.pbs.listing.output import begin_time, objects, read_output
from hpctwin.rms.pbs.listing.parse import server_attributes
from hpctwin.rms.pbs.manager import PbsManager
from hpctwin.rms.settings import PolledSettings, Probe, is_here, look, tried

MOST_ITERATION_S = 60
"""Longest interval at which PBS's scheduler should look at its jobs by itself."""


def probe_pbs(folder: str) -> Probe:
    """See `ManagerSettings.probe`."""
    result = Probe("pbs")
    manager = PbsManager("probe", folder=folder)
    run = manager.commands.run
    about = tried(
        lambda: server_attributes(run("qstat", ["-B", "-f", "-F", "json"])), result, "server"
    )
    if about is not None:
        result.version = about["pbs_version"]
        result.add("version", True, f"PBS {result.version}")
        result.add("own scheduling", True, f"scheduling is {about.get('scheduling', '?')}")
        _pbs_ends(run, about, result)
        estimates = "est_start_time_freq" in about
        result.add(
            "own start-time estimates",
            estimates,
            "est_start_time_freq is set" if estimates else "est_start_time_freq is not set",
        )
        _pbs_rights(about, result)
    look(manager, result)
    try:
        said = run("qmgr", ["-c", "list hook hpctwin"]).decode(errors="replace")
        enabled = re.search(r"enabled = true", said, re.I) is not None
        result.add(
            "pushed events",
            enabled,
            "the hook is installed" + ("" if enabled else ", but not enabled"),
        )
        _places(run, result)
    except CommandError as error:
        says = f"{error}; run `hpctwin rms pbs install` as root on the server to install the hook"
        result.add("pushed events", False, says)
    except UnreachableError as error:
        result.add("pushed events", None, str(error))
    return result


def _places(run: Callable[..., bytes], result: Probe) -> None:
    """Report whether ``act.by: start`` would run jobs on the twin's choice of vnodes."""
    what = "starts on the twin's vnodes (`act.by: start`)"
    try:
        said = run("qmgr", ["-c", "export hook hpctwin application/x-python default"])
    except (CommandError, UnreachableError) as error:
        result.add(what, None, f"the installed hook cannot be read: {error}")
        return
    watches = b"has too little free" in said
    says = "qrun -H: the hook rejects jobs that do not fit" if watches else (
        "qrun, and PBS chooses the vnodes: the hook is outdated; run `hpctwin rms pbs install`"
    )  # fmt: skip
    result.add(what, watches, says)


def _pbs_ends(run: Callable[..., bytes], about: dict[str, object], result: Probe) -> None:
    """Report whether PBS looks at the jobs of a twin that is gone."""
    with contextlib.suppress(CommandError, UnreachableError):
        said = run("qmgr", ["-c", f"list hook {LIFTING_HOOK}"]).decode(errors="replace")
        if re.search(r"enabled = true", said, re.I):
            result.add("ends of leases", True, f"the hook {LIFTING_HOOK} ends leases")
            return
    every = str(about.get("scheduler_iteration", "600"))
    soon = every.isdecimal() and int(every) <= MOST_ITERATION_S
    says = f"no hook {LIFTING_HOOK}, scheduler_iteration is {every} s"
    says += (
        "" if soon else f"; set it to {MOST_ITERATION_S} s or less, so that lost leases end soon"
    )
    result.add("ends of leases", soon, says)


def _pbs_rights(about: dict[str, object], result: Probe) -> None:
    me = getpass.getuser()
    lists = f"{about.get('managers', '')},{about.get('operators', '')}"
    named = {entry.strip().partition("@")[0] for entry in lists.split(",")}
    if me in named:
        result.add("rights", True, f"{me} is an operator or manager")
    elif os.getuid() == 0:
        result.add(
            "rights", None, "root is a manager only if acl_roots lists it, or on the server's host"
        )
    else:
        result.add(
            "rights",
            False,
            f"{me} is neither operator nor manager; add it to the operators, so that the twin can act",
        )


VARIABLE = "HPCTWIN_KEY"
"""Environment variable of the job that holds the mark."""

_ENDED = {"F", "X", "M"}


class PbsGate(CommandGate):
    """Gate into PBS, see `CommandGate`; the owner of the jobs is the current user.

    Args:
        commands: PBS's commands, with TZ=UTC.
        mark: Marks written into the jobs' environments.
        options: Further options of ``qsub``, such as ``-W umask=022``.
        changed: Function called after a job was submitted or admitted, because its events
            will follow.
    """

    manager = "PBS"
    submitter = "qsub"
    admitter = ("qrls", "-h", "u")
    canceller = ("qdel",)
    id = re.compile(r"\d{1,12}\.[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
    lost = re.compile(
        r"timed out|end of file|connect|communicat|socket|protocol|reset|batch system|errno", re.I
    )

    def __init__(
        self,
        commands: Commands,
        mark: Mark,
        options: Sequence[str] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        others, self.variables = _apart(options)
        super().__init__(commands, mark, getpass.getuser(), others, changed)

    def _listed(self) -> Iterator[ListedJob]:
        try:
            said = self.commands.run("qstat", ["-f", "-F", "json"])
            rows = objects(read_output(said, "qstat -f -F json", []), "Jobs")
        except (CommandError, FormatError) as error:
            raise UnreachableError(f"PBS: {error}") from error
        for job_id, row in rows.items():
            if str(row.get("job_state")) not in _ENDED and self.id.fullmatch(job_id):
                variables = row.get("Variable_List")
                mark = variables.get(VARIABLE) if isinstance(variables, dict) else None
                owner = str(row.get("Job_Owner")).partition("@")[0]
                yield ListedJob(mark, owner, job_id, _held(row))

    def _asked(self, job: JobRequest, delay_s: float) -> list[str]:
        chunk = [f"{job.nodes}:ncpus={max(1, math.ceil(job.cores))}"]
        if job.gpus:
            chunk.append(f"ngpus={math.ceil(job.gpus)}")
        if job.memory_gb:
            chunk.append(f"mem={math.ceil(1024 * job.memory_gb)}mb")
        variables = ",".join([*self.variables, f"{VARIABLE}={self.mark.of(job.key)}"])
        asked = {
            "-N": _name(job.name or job.key),
            "-q": job.partition,
            "-A": job.account,
            "-a": begin_time(math.ceil(time.time() + delay_s)) if delay_s > 0 else "",
            "-v": variables,
        }
        options = [word for name, value in asked.items() if value for word in (name, value)]
        resources = [f"select={':'.join(chunk)}", "place=vscatter"]
        resources.append(f"walltime={math.ceil(job.walltime_s)}")
        # -h: held. -f: qsub itself sends it, and leaves no process behind that keeps its output
        # open.
        return ["-f", "-h", *options, *(word for r in resources for word in ("-l", r))]


def _apart(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return options without ``-v``, and its values: qsub uses only the last of two."""
    others: list[str] = []
    variables: list[str] = []
    words = iter(options)
    for word in words:
        if word == "-v":
            variables.append(next(words, ""))
        elif word.startswith("-v"):
            variables.append(word[2:].strip())
        else:
            others.append(word)
    return others, list(filter(None, variables))


def _name(text: str) -> str:
    """Return a name that PBS accepts: up to 230 characters, a letter first."""
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", text)[:200]
    return name if name[0].isalpha() else f"j{name}"


def _held(row: dict[str, Any]) -> bool:
    return str(row.get("job_state")) == "H" and "u" in str(row.get("Hold_Types", "n"))


class PbsSettings(PolledSettings):
    """A PBS server, reached by its commands.

    Args:
        folder: Folder of ``qstat``, ``pbsnodes``, ``qalter`` and ``qrun``; by default the path is
            searched.
        server: Name of the server, if it is not the default.
        conf: Value of ``PBS_CONF_FILE``, if it is not the default.
        heartbeat: File that shows that the twin is in control; the hook gives leases only then.
        events: Source of the events that the hook of `hpctwin rms pbs install` writes.
    """

    ways: ClassVar[tuple[Way, ...]] = ("lease", "start", "priority")

    kind: Literal["pbs"]
    cluster: str = "pbs"
    folder: str = ""
    server: str = ""
    conf: Path | None = None

    def open(self, *, longest_lease_s: float = 600.0) -> ResourceManager:
        """See `ManagerSettings`."""
        return PbsManager(
            self.cluster,
            folder=self.folder,
            server=self.server,
            conf=self.conf,
            timeout_s=self.timeout,
            heartbeat_file=self.heartbeat,
        )

    def gate(
        self,
        manager: ResourceManager,
        mark: Mark,
        options: tuple[str, ...],
        changed: Callable[[], None],
    ) -> Gate:
        """See `ManagerSettings`."""
        assert isinstance(manager, PbsManager)
        # Separate commands: the mirror's poller runs them in another thread.
        return PbsGate(manager.commands.again(), mark, options, changed)

    @classmethod
    def probe(cls, folder: str = "", conf: Path | None = None) -> Probe | None:
        """See `ManagerSettings`."""
        return probe_pbs(folder) if is_here(folder, "qstat", "pbsnodes") else None

    def environment(self) -> dict[str, tuple[str, ...]]:
        """See `ManagerSettings`."""
        found: dict[str, tuple[str, ...]] = {}
        if self.conf is None:
            found["conf"] = ("PBS_CONF_FILE",)
        if not self.server:
            found["server"] = ("PBS_SERVER", "PBS_DEFAULT")
        return found
