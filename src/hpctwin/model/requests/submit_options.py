"""Options of commands that submit jobs, and requests of Kubernetes' pods.

Source:
    Manual pages sbatch(1), salloc(1) and srun(1) of Slurm 22.05 with the options of 14.03 to 25.05,
    qsub(1B) of PBS Professional 2022.1 and qsub of Torque 6.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpctwin.errors import near
from hpctwin.model.requests.chunks import Tasks
from hpctwin.model.requests.resources import NAME

Options = list[tuple[str, str]]
"""Names of options and their values, in the order written.

An option without a value has an empty one.
"""

_VALUED_NAMES = """
    accel-bind account acctg-freq array batch bb bbf bcast-exclude begin blrts-image chdir cluster-constraint
    clusters cnload-image comment conn-type constraint consolidate-segments container container-id core-spec
    cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task cpus-per-tres deadline delay-boot dependency
    distribution epilog error exclude export export-file external-launcher extra extra-node-info geometry gid
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint input
    ioload-image job-name jobid kill-on-invalid-dep licenses linux-image mail-type mail-user mcs-label mem
    mem-bind mem-per-cpu mem-per-gpu mincores mincpus minsockets minthreads mloader-image mpi msg-timeout
    network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    ntasks-per-tres ofile open-mode output pack-group partition power prefer priority profile prolog qos
    ramdisk-image relative reservation segment signal slurmd-debug sockets-per-node switches task-epilog
    task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp topology treewidth
    tres-bind tres-per-job tres-per-node tres-per-socket tres-per-task uid wait-all-nodes wckey workdir wrap
"""
_FLAGS_NAMES = """
    allocate bell contiguous disable-status exact expand-segments help hold ignore-pbs interactive label
    multi-prog no-allocate no-bell no-requeue no-rotate no-shell overcommit overlap oversubscribe parsable
    preserve-env preserve-slurm-env pty quiet quit-on-interrupt reboot requeue share spread-job
    spread-segments stepmgr test-only unbuffered usage use-min-nodes verbose version
"""
_MAYBE_NAMES = """
    bcast compress exclusive get-user-env immediate kill-command kill-on-bad-exit nice no-kill oom-kill-step
    propagate resv-ports send-libs wait x11
"""
"""Options with a value only if it follows ``=``."""

_VALUED = frozenset(_VALUED_NAMES.split())
_FLAGS = frozenset(_FLAGS_NAMES.split())
_MAYBE = frozenset(_MAYBE_NAMES.split())

_SHORT = {
    "a": "array", "A": "account", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task",
    "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "E": "preserve-env",
    "F": "nodefile", "g": "geometry", "G": "gpus", "h": "help", "H": "hold", "i": "input", "I": "immediate",
    "J": "job-name", "k": "no-kill", "K": "kill-command", "l": "label", "L": "licenses", "m": "distribution",
    "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "O": "overcommit", "p": "partition",
    "q": "qos", "Q": "quiet", "r": "relative", "R": "no-rotate", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "T": "threads", "u": "unbuffered", "v": "verbose", "V": "version",
    "w": "nodelist", "W": "wait", "x": "exclude", "X": "disable-status", "Z": "no-allocate",
}  # fmt: skip
_SAME = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir", "share": "oversubscribe"}

_QSUB_VALUED = frozenset("aAbcCdDeFJjkKlLmMNopPqrRStTuvwW")
_QSUB_FLAGS = frozenset("EfGhInVxXz")


def read_slurm(words: Sequence[str], *, srun: bool = False) -> list[Options]:
    """Read the options of ``sbatch``, ``salloc`` or ``srun``.

    Args:
        words: Words after the command, split as by a shell.
        srun: Whether the command is ``srun``, whose ``-W`` takes a value.

    Returns:
        The options of each part of a heterogeneous job, by their long names; one part for other
        jobs. A script or program ends the options; it is an option ``script``.

    Raises:
        ValueError: A word is no option, or an option lacks its value.
    """
    parts: list[Options] = [[]]
    left = list(words)[::-1]
    while left:
        word = left.pop()
        found = parts[-1]
        if word == ":":
            parts.append([])
        elif word.startswith("--") and len(word) > 2:
            name, given, value = word[2:].partition("=")
            name = _long(name.replace("_", "-"))
            if name in _VALUED and not given:
                value = _next(left, f"--{name}")
            found.append((_SAME.get(name, name), value))
        elif re.match(r"-[A-Za-z]", word):
            found += _letters(word, left, srun)
        elif not (found or parts[1:]):
            raise ValueError(
                f"{word!r} is not an option of Slurm, select= of PBS or --requests= of Kubernetes"
            )
        else:
            found.append(("script", word))
            while left and ":" in left and left[-1] != ":":
                left.pop()
            if ":" not in left:
                break
    return parts


def _letters(word: str, left: list[str], srun: bool) -> Options:
    """Read options of one letter; the last may have a value, as in ``-Hn4``."""
    found: Options = []
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter not in _SHORT:
            raise ValueError(f"-{letter} is not an option of sbatch, salloc or srun")
        name = _SHORT[letter]
        if name in _VALUED or (name == "wait" and srun):
            value = rest.removeprefix("=") if rest else _next(left, f"--{name}")
            found.append((name, value))
            break
        if name in _MAYBE and (rest.startswith("=") or rest[:1].isdecimal()):
            found.append((name, rest.removeprefix("=")))
            break
        found.append((_SAME.get(name, name), ""))
    return found


def _long(name: str) -> str:
    """Return the full name of a long option, which may be abbreviated."""
    known = _VALUED | _FLAGS | _MAYBE
    if name in known or name.startswith("container-"):
        return name
    fits = sorted(one for one in known if one.startswith(name))
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise ValueError(
            f"--{name} is ambiguous: write {' or '.join(f'--{one}' for one in fits[:6])}"
        )
    raise ValueError(f"--{name} is not an option of sbatch, salloc or srun.{near(name, known)}")


def _next(left: list[str], option: str) -> str:
    if not left:
        raise ValueError(f"{option} has no value")
    return left.pop()


def read_qsub(words: Sequence[str]) -> Options:
    """Read the options of PBS's or Torque's ``qsub``.

    Args:
        words: Words after the command, split as by a shell; resources need no ``-l``.

    Returns:
        The options by their letters; a script is an option ``script``.

    Raises:
        ValueError: A word is no option, or an option lacks its value.
    """
    found: Options = []
    left = list(words)[::-1]
    while left:
        word = left.pop()
        if word.startswith("--"):
            found.append((word[2:], ""))
            if word == "--":
                found[-1] = ("script", "")
                break
        elif re.match(r"-[A-Za-z]", word):
            letter, rest = word[1], word[2:]
            if letter in _QSUB_FLAGS:
                found.append((letter, ""))
                left += [f"-{rest}"] if rest else []
            elif letter in _QSUB_VALUED:
                found.append((letter, rest.removeprefix("=") or _next(left, f"-{letter}")))
            else:
                raise ValueError(f"-{letter} is not an option of qsub")
        elif re.match(r"[A-Za-z]\w*=", word):
            found.append(("l", word))
        else:
            found.append(("script", word))
            break
    return found


_OPTIONS = ("--requests", "--limits", "--replicas")
_BYTES: dict[str, int] = {
    "": 1,
    **{unit: 1000 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE")},
}
_GB = 1024**3
"""GB are those of 2^30 bytes, as everywhere in requests."""
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"


def is_pods(words: Sequence[str]) -> bool:
    """Return whether the words of a request are those of Kubernetes."""
    return any(word.startswith(_OPTIONS) for word in words)


def parse_pods(words: Sequence[str]) -> Tasks:
    """Return the tasks that pods request.

    An example is ``--requests=cpu=500m,memory=2Gi --limits=nvidia.com/gpu=1 --replicas=4``. As in
    Kubernetes' placement of pods, a resource with a limit and no request requests its limit. What a
    pod may use beyond its request keeps no other pod away.

    Returns:
        As many tasks as pods; extended resources are consumables.

    Raises:
        ValueError: The words are invalid, or request something that is not modeled.
    """
    said: dict[str, str] = {}
    for word in words:
        name, given, value = word.partition("=")
        if name not in _OPTIONS or not given:
            raise ValueError(
                f"{word!r} is not supported with --requests; write "
                f"{', '.join(_OPTIONS)}, each with ="
            )
        said[name] = value
    replicas = said.get("--replicas", "1")
    if not re.fullmatch(r"0*[1-9]\d{0,8}", replicas):
        raise ValueError(f"--replicas is {replicas!r}; it must be a whole number above 0")
    limits, requests = _amounts(said.get("--limits", "")), _amounts(said.get("--requests", ""))
    for name, amount in requests.items():
        if amount > limits.get(name, amount):
            raise ValueError(f"a pod requests more {name} than its limit")
    asked = {**limits, **requests}
    gpus = sum(amount for name, amount in asked.items() if name.endswith("/gpu"))
    cores, memory_gb = asked.get("cpu", 0.0), asked.get("memory", 0.0)
    others = {name: amount for name, amount in asked.items() if not _is_common(name)}
    if not (cores or memory_gb or gpus or any(others.values())):
        raise ValueError("a pod requests no cores, memory or GPUs")
    return Tasks(int(replicas), cores, memory_gb, gpus, tuple(others.items()))


def _is_common(name: str) -> bool:
    return name in ("cpu", "memory") or name.endswith("/gpu")


def _amounts(text: str) -> dict[str, float]:
    found = {}
    for part in filter(None, text.split(",")):
        name, _, quantity = part.partition("=")
        if name == "cpu":
            found[name] = _cores(quantity)
        elif name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
            found[name] = _gigabytes(name, quantity)
        elif re.fullmatch(rf"(?=[^/]+/[^/]+$){NAME}", name):
            found[name] = _devices(name, quantity)
        else:
            raise ValueError(
                f"resource {name!r} of a pod is not modeled; known are cpu, memory, "
                "ephemeral-storage, hugepages-… and vendor resources domain/name, such as "
                "nvidia.com/gpu"
            )
    return found


def _cores(quantity: str) -> float:
    match = re.fullmatch(_NUMBER + "(m?)", quantity)
    if not match:
        raise ValueError(f"cpu={quantity} is not a number of cores, such as 2, 0.5 or 500m")
    return float(match[1]) / (1000 if match[2] else 1)


def _gigabytes(name: str, quantity: str) -> float:
    match = re.fullmatch(_NUMBER + "([A-Za-z]*)", quantity)
    if not match or match[2] not in _BYTES:
        kind = "storage" if "storage" in name else "memory"
        raise ValueError(f"{name}={quantity} is not an amount of {kind}, such as 512Mi, 2Gi or 1G")
    return float(match[1]) * _BYTES[match[2]] / _GB


def _devices(name: str, quantity: str) -> float:
    if not re.fullmatch(r"\d{1,9}", quantity):
        kind = "GPUs" if name.endswith("/gpu") else "devices"
        raise ValueError(f"{name}={quantity}: Kubernetes allocates only whole {kind}, such as 1")
    return float(quantity)
