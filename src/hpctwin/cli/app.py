"""The command ``hpctwin``: its subcommands and how it reports errors."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib import metadata
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError, Parameter

from hpctwin._version import __version__
from hpctwin.cli.option_values import read_value
from hpctwin.errors import HpctwinError, exit_code_of

__all__ = ["app", "main"]


app = App(
    name="hpctwin",
    help="Digital twin for HPC batch scheduling.",
    version=__version__,
    version_flags=["--version"],
    default_parameter=Parameter(converter=read_value, negative=()),
    suppress_keyboard_interrupt=False,
)
for name, target, summary in (
    ("simulate", "simulating.simulate:simulate_command", "Simulate a trace under one policy."),
    ("compare", "simulating.compare:compare_command", "Simulate a trace under several policies."),
    (
        "sweep",
        "simulating.sweep:sweep_command",
        "Simulate all combinations of policies, clusters, loads, …",
    ),
    (
        "replay",
        "simulating.simulate:replay_command",
        "Replay a trace with its recorded start times.",
    ),
    ("export", "simulating.report:export_command", "Convert a finished run for other viewers."),
    (
        "report",
        "simulating.report:report_command",
        "Report on finished runs: one HTML file, charts.",
    ),
    (
        "workload",
        "data.workload:workload_app",
        "Describe, convert, filter, generate, download traces.",
    ),
    (
        "predictor",
        "learning.predictor:predictor_app",
        "Learn runtimes, power and memory; predict, score.",
    ),
    ("agent", "learning.agent:agent_app", "Train scheduling agents; compare and list them."),
    (
        "policy",
        "learning.policy:policy_app",
        "List policies, check custom ones; schedule for Batsim.",
    ),
    ("cluster", "data.cluster:cluster_app", "Check a cluster file."),
    (
        "dataset",
        "data.dataset:dataset_app",
        "List published data sets and check their files.",
    ),
    ("system", "data.cluster:system_app", "List the clusters in the package."),
    (
        "accounts",
        "simulating.report:accounts_command",
        "Show the usage of users or accounts over several runs.",
    ),
    ("signal", "data.signal:signal_app", "Fetch prices and carbon intensities of the grid."),
    (
        "calibrate",
        "simulating.calibrate:calibrate_command",
        "Fit a power model to measured power and use.",
    ),
    ("import", "data.import_site:import_app", "Import a site's Slurm or PBS files."),
    ("facility", "simulating.facility:facility_app", "Choose among several clusters for each job."),
    ("twin", "live.twin:twin_app", "Run the live twin next to a cluster; explain its decisions."),
    ("when", "live.when:when_command", "Forecast when a job will start, with the reason."),
    (
        "serve",
        "live.serve:serve_command",
        "Serve the live twin's web page: dashboard, REST, metrics.",
    ),
    ("mcp", "live.serve:mcp_command", "Give an assistant read-only tools about the live twin."),
    ("rms", "live.rms:rms_app", "Check the resource manager; install hooks and submit rules."),
    ("demo", "live.demo:demo_command", "Watch the live twin run an emulated cluster."),
    ("warmup", "installation:warmup_command", "Compile the engine now instead of at first use."),
    ("man", "manual:man_command", "Print the manual page for man."),
    (
        "doctor",
        "installation:doctor_command",
        "Show versions and the installation, for bug reports.",
    ),
):
    app.command(f"hpctwin.cli.{target}", name=name, help=summary)

# Short names of commands of `hpctwin agent`; the help lists each command once.
for name, target in (("train", "train"), ("evaluate", "evaluate"), ("agents", "list_agents")):
    app.command(f"hpctwin.cli.learning.agent:{target}", name=name, show=False)

for plugin in metadata.entry_points(group="hpctwin.commands"):
    # A package that is broken or of another version must not stop the other commands.
    try:
        plugin.load()(app)
    except Exception as error:
        package = plugin.dist.name if plugin.dist is not None else plugin.value
        print(
            f"hpctwin: {package}: its commands cannot be loaded ({error}); install the "
            "package again",
            file=sys.stderr,
        )
for name in ("experiment", "incentives"):
    if name not in app:
        app.command("hpctwin.cli.simulating.run_options:missing_command", name=name, show=False)

app.register_install_completion_command()


STARTING_POINTS = """\
hpctwin is a digital twin for HPC batch scheduling. Four ways to start:

  Simulate a trace      hpctwin compare TRACE --nodes N
  Try the live twin     hpctwin demo
  Import your own site  hpctwin import slurm live --out site
  Read more             hpctwin --help, hpctwin COMMAND --help, hpctwin man

No trace yet? hpctwin workload generate poisson jobs.swf jobs=300 nodes=64
"""
"""Output of ``hpctwin`` without arguments."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: Arguments to use instead of the process's; the process then continues.

    Exit codes: 0 success, 1 the work failed, 2 invalid command or input, 130 interrupted.
    """
    if arguments is None:
        _end_like_ctrl_c()
    given = sys.argv[1:] if arguments is None else arguments
    outcome = None
    try:
        if given:
            outcome = app(
                given, exit_on_error=False, print_error=False, result_action="return_value"
            )
        else:
            print(STARTING_POINTS, end="")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError as error:
        from hpctwin.cli.output import in_our_words

        _end(2, in_our_words(str(error)))
    except HpctwinError as error:
        _end(exit_code_of(error), str(error))
    except BrokenPipeError:
        # The reader closed the pipe (as `head` does), so there is no output for a message.
        _give_up_output()
        _end(1)
    except KeyboardInterrupt:
        if arguments is not None:
            _end(130, "interrupted")
        _interrupted()
    except MemoryError as error:
        _end(1, f"memory is insufficient: {error}" if str(error) else "out of memory")
    except OSError as error:
        where = error.filename if error.filename is not None else "standard output"
        _give_up_output()
        _end(exit_code_of(error), f"{where}: {error.strerror or error}")
    code = outcome if isinstance(outcome, int) else 0
    if arguments is None and threading.active_count() == 1:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End the process without freeing its memory first, which takes 0.2 s."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


_ended_by: int | None = None
"""The signal that asked the process to end, if one did."""


def _end_like_ctrl_c() -> None:
    """End like after Ctrl-C, so without half-written files, if a signal asks the process to end.

    A signal that is ignored, as by ``nohup``, stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _note_end)


def _note_end(number: int, frame: FrameType | None) -> None:
    global _ended_by
    _ended_by = number
    raise KeyboardInterrupt


def _interrupted() -> NoReturn:
    if _ended_by is not None:
        # The parent process sees the signal, as if there were no handler.
        atexit._run_exitfuncs()
        signal.signal(_ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), _ended_by)
    with suppress(OSError):
        print("hpctwin: interrupted", file=sys.stderr, flush=True)
    if threading.active_count() == 1:
        _leave(130)
    # Ctrl-C may come while the engine's modules are imported: then none of its threads runs.
    advance = sys.modules.get("hpctwin.simulation.running.advance")
    prefix = getattr(advance, "THREAD_NAME", None)
    if prefix is not None and any(t.name.startswith(prefix) for t in threading.enumerate()):
        # The interpreter would wait for the compiled code to end, or unload it while it runs.
        with suppress(OSError, AttributeError):
            sys.stdout.flush()
        os._exit(130)
    _end(130)


def _end(code: int, message: str | None = None) -> NoReturn:
    if message is not None:
        with suppress(OSError):
            print(f"hpctwin: {message}", file=sys.stderr, flush=True)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _give_up_output()
    sys.exit(code)


def _give_up_output() -> None:
    """Discard buffered output, so that the interpreter reports no error at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
