# mypy: ignore-errors
"""PBS hook of hpctwin: keeps jobs that the twin has leased from starting.

It also records events. While the heartbeat is fresh, the hook refuses PBS's scheduler the jobs that
must wait. These are the jobs that the twin's file names with a future time. For a moment, jobs just
submitted must wait too, so that the twin can decide whether they may go first. Jobs of queues that
the heartbeat does not name are never refused. A mark shows which jobs are the twin's: a resource
that users cannot write, with the value 0. An operator takes a job out with 1. Without a fresh
heartbeat nothing is refused.

(Begin times would be simpler. But PBS 23.06 keeps the timer of each begin time that a job ever had.
When such a timer goes off, PBS puts a job that is just ending back into its queue: it runs twice.)

A refusal is expensive. PBS saves every vnode to its database after each, and its scheduler tries
each job that fits again in each cycle. So a job that must wait also has 1 of the resource WAIT. By
a limit of the server (max_run_res) no job with any of it may run. The scheduler then skips the job
by itself, and the code below seldom refuses one. This hook gives WAIT to new jobs while the twin is
alive, and takes it from any job that starts. The twin gives and takes it for all others. Once the
twin's heartbeat is stale, the periodic part lifts the limit and has the scheduler look at all jobs.

The hook runs inside the PBS server. It reads two local files, appends one line to another and
connects to nothing (the periodic part, to the server alone). So nothing slow or down elsewhere can
delay a job. It never refuses a submission or a change, and after any error in the hook itself it
refuses nothing. If the event file has grown to LIMIT because no reader takes it, events are
omitted; the twin then learns of them from its next poll. Written for every Python that PBS may
bring (2.7 and later).
"""

import json
import os
import re
import stat
import subprocess
import sys
import time

import pbs

SPOOL = "/var/spool/hpctwin/pbs-events.jsonl"
HEARTBEAT = "/run/hpctwin/alive"
QUEUES = ()
LEASE_S = 20
FRESH_S = 15
EXPRESS = 150
LIMIT = 256 * 1024 * 1024
MARK = "hpctwin"
WAIT = "hpctwin_wait"
MESSAGE = "hpctwin: waits for its turn"

QUEUEJOB, MODIFYJOB, RUNJOB, PERIODIC, POSTQUEUEJOB = 0x1, 0x2, 0x10, 0x8000, 0x8000000
AWAY = (
    "OFFLINE", "OFFLINE_BY_MOM", "DOWN", "DELETED", "STALE", "UNKNOWN", "UNRESOLVABLE", "INIT", "PROV",
    "WAIT_PROV", "SLEEP", "MAINTENANCE",
)  # fmt: skip
JOB = (
    "id", "Job_Name", "Job_Owner", "job_state", "substate", "queue", "Hold_Types", "Priority",
    "ctime", "qtime", "etime", "stime", "obittime", "Execution_Time", "depend", "exec_vnode",
    "Exit_status", "run_count", "project", "Account_Name", "euser", "array", "reserve_ID",
    "Resource_List", "schedselect",
)  # fmt: skip


def opened(path, flags, mode=0o640):
    """Open a regular file with one name, never through a link; never block.

    Raises ValueError if the file has another name or is not regular, OSError if it cannot be
    opened.
    """
    plain = os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    file = os.open(path, flags | plain, mode)
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(file)
        raise ValueError(path + " is a link or not a regular file")
    return file


def read(path, most):
    """Return the content of a file of the twin, as JSON."""
    file = opened(path, os.O_RDONLY)
    try:
        data = b""
        while len(data) <= most:
            more = os.read(file, 1 << 20)
            if not more:
                break
            data += more
    finally:
        os.close(file)
    return json.loads(data.decode("utf-8"))


def acts(queue=None):
    """Return whether the twin is in control, and acts on jobs of a queue."""
    try:
        said = read(HEARTBEAT, 1 << 20)
        fresh = abs(time.time() - said["time_s"]) <= FRESH_S
        return fresh and (queue is None or queue in said.get("queues", [queue]))
    except Exception:
        return False


def is_express(name):
    """Return whether PBS's scheduler preempts for a queue's jobs.

    It has done so before it asks this hook.
    """
    found = safely(lambda: pbs.server().queue(name).Priority)
    # PBS returns a priority that is set as a special object, which is no number.
    return found is not None and int(str(found)) >= EXPRESS


def submitted(job):
    """Mark a job as the twin's."""
    name = str(job.queue or "") or str(pbs.server().default_queue or "")
    # PBS itself starts the jobs of a reservation, in the reservation's own queue.
    if (QUEUES and name not in QUEUES) or re.match("[RSM][0-9]+$", name) or is_express(name):
        return
    job.Resource_List[MARK] = 0
    if acts(name):
        job.Resource_List[WAIT] = 1


def waits(job):
    """Return whether the twin wants a job to wait."""
    now = time.time()
    mark = job.Resource_List[MARK]
    queue = str(job.queue or "")
    if mark is None or int(mark) != 0 or not acts(queue or None):
        return False
    if re.match("[RSM][0-9]+$", queue) or is_express(queue):
        return False
    number = str(job.id)
    try:
        until = read(HEARTBEAT + ".leases", LIMIT)["until_s"]
        array = re.sub(r"\[[0-9]+\]", "[]", number)
        found = until.get(number, until.get(array))
    except Exception:
        found = None
    if found is not None:
        return found > now
    return 0 <= now - int(job.ctime) < LEASE_S


def lacks(job):
    """Return why a job's vnodes cannot take it: one is away, in use, or too small.

    PBS's server does not check: it relies on its scheduler. That knows no more of what the twin has
    started since its cycle began than the twin knows of what the scheduler starts.
    """
    if not acts() or re.match("[RSM][0-9]+$", str(job.queue or "")):
        return None
    try:
        counted = read(HEARTBEAT + ".leases", LIMIT).get("rooms")
    except Exception:
        return None
    asked = {}
    alone = "excl" in str(job.Resource_List["place"])
    for piece in re.split(r"[()+]+", str(job.exec_vnode or "")) if counted else ():
        pairs = piece.split(":")
        for pair in pairs[1:]:
            name, _, said = pair.partition("=")
            if name in counted:
                here = asked.setdefault(pairs[0], {})
                here[name] = here.get(name, 0) + amount(said)
    for vnode in sorted(asked):
        about = pbs.server().vnode(vnode)
        state = int(about.state or 0)
        for word in AWAY:
            if state & getattr(pbs, "ND_STATE_" + word, 0):
                return vnode + " is " + word.lower()
        if alone and about.jobs:
            return vnode + " has jobs, but the job needs it exclusively"
        for name in sorted(asked[vnode]):
            has = about.resources_available[name]
            used = about.resources_assigned[name]
            if asked[vnode][name] > amount(has or 0) - amount(used or 0):
                return vnode + " has too little free " + name
    return None


def amount(said):
    """Return a number, or a size in bytes."""
    match = re.match(r"([0-9.]+)([kmgtp]?)([bw]?)$", str(said).strip().lower())
    unit = 1024 ** "_kmgtp".index(match.group(2) or "_")
    return float(match.group(1)) * unit * (8 if match.group(3) == "w" else 1)


def let_through(job):
    """Free a starting job's share of the limit, so that others may be admitted."""
    if job.Resource_List[WAIT]:
        job.Resource_List[WAIT] = 0


def show_life():
    """Show the twin that the limit would be lifted."""
    data = json.dumps({"time_s": time.time(), "rooms": True}).encode("utf-8")
    file = opened(HEARTBEAT + ".lifting", os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    try:
        os.write(file, data)
    finally:
        os.close(file)
    os.rename(HEARTBEAT + ".lifting", HEARTBEAT + ".lifts")


def lift():
    """Lift the limit if its twin is gone, and have PBS look at all jobs."""
    if acts():
        return
    server = pbs.server()
    if WAIT not in str(server.max_run_res):
        return
    qmgr = os.path.join(pbs.pbs_conf["PBS_EXEC"], "bin", "qmgr")
    subprocess.call([qmgr, "-c", "unset server max_run_res." + WAIT])
    if server.scheduling:
        subprocess.call([qmgr, "-c", "set server scheduling=true"])


def texts(thing, names):
    """Return the attributes that are set, as text."""
    found = {}
    for name in names:
        try:
            value = getattr(thing, name)
            if value is not None and str(value) != "":
                found[name] = str(value)
        except Exception:  # an attribute that this version or event does not have
            pass
    return found


def note(event):
    """Append the event to the file."""
    append({"v": 1, "t": time.time(), "type": int(event.type), "job": texts(event.job, JOB)})


def append(line):
    """Append a line to the file, in one write."""
    data = (json.dumps(line) + "\n").encode("utf-8")
    file = opened(SPOOL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if os.fstat(file).st_size < LIMIT:
            os.write(file, data)
    finally:
        os.close(file)


def safely(what, *arguments):
    """Call a function; report an error with a line in the log and one for the twin."""
    try:
        return what(*arguments)
    except Exception:
        try:
            fault = what.__name__ + ": " + repr(sys.exc_info()[1])
            try:
                append({"v": 1, "t": time.time(), "type": 0, "fault": fault[:500]})
            finally:
                # With PBS 23.06 and Python 3.10 or later, this call fails too.
                pbs.logmsg(pbs.LOG_DEBUG, "hpctwin: " + fault)
        except Exception:
            pass


def take_in():
    """Handle this event; return why it is refused, if it is."""
    event = pbs.event()
    kind = int(event.type)
    own = refused = False
    if kind == QUEUEJOB:
        safely(submitted, event.job)
        # If a later event knows the job's id, that one is recorded.
        own = hasattr(pbs, "POSTQUEUEJOB")
    elif kind == RUNJOB:
        refused = safely(waits, event.job) and MESSAGE
        if not refused:
            short = safely(lacks, event.job)
            refused = short and "hpctwin: " + short
        own = refused
        if not refused:
            safely(let_through, event.job)
    elif kind == MODIFYJOB:
        # PBS passes only what is changed: this is the twin's own doing.
        asks = event.job.Resource_List
        own = bool(asks) and asks[WAIT] is not None
    elif kind == PERIODIC:
        own = True
        safely(show_life)
        safely(lift)
    elif kind == POSTQUEUEJOB:
        # PBS also queues the next job of an array at each attempt to start it.
        own = "[" in str(event.job.id) and "[]" not in str(event.job.id)
    if not own:
        safely(note, event)
    return refused


why = safely(take_in)
if why:
    pbs.event().reject(why)
pbs.event().accept()
