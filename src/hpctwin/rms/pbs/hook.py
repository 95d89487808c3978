# mypy: ignore-errors
"""PBS hook of hpctwin: gives jobs their first lease, and notes what happens for the twin to read.

A lease is a begin time a little ahead. While the twin shows life, a job that is submitted gets one, so
that the twin can say whether it may go first; what its user asked for with -a is kept beside it, in a
resource that users cannot write. A user may put off their own job, but not end its lease. Without the
twin nothing is changed but that mark.

It runs inside the PBS server. It reads one local file, appends one line to another and accepts, whatever
happens: it talks to nobody, so nothing that is slow or down elsewhere can delay a job, and it never
rejects one. When the file has grown to LIMIT because nobody reads it, events are left out; the twin then
learns of them from its next look at the queue. Written for every Python that PBS may bring (2.7 and
later).
"""

import fnmatch
import json
import os
import re
import stat
import sys
import time

import pbs

SPOOL = "/var/spool/hpctwin/pbs-events.jsonl"
HEARTBEAT = "/run/hpctwin/alive"
QUEUES = ()
LEASE_S = 20
FRESH_S = 15
LIMIT = 256 * 1024 * 1024
MARK = "hpctwin"
COMMENT = "hpctwin: waits for its turn"

QUEUEJOB, MODIFYJOB, ROUTE = 1, 2, 2
RUNS = (4, 5, 6, 8, 9)
JOB = (
    "id", "Job_Name", "Job_Owner", "job_state", "substate", "queue", "Hold_Types", "Priority",
    "ctime", "qtime", "etime", "stime", "obittime", "Execution_Time", "depend", "exec_vnode",
    "Exit_status", "run_count", "project", "Account_Name", "euser", "array", "reserve_ID",
    "Resource_List",
)  # fmt: skip
VNODE = ("name", "state")


def opened(path, flags, mode=0o640):
    """A regular file of one name, never through a link; never waits."""
    plain = os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    file = os.open(path, flags | plain, mode)
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(file)
        raise ValueError(path + " is not a file of its own")
    return file


def lives(now):
    """Whether the twin is in charge: its file says when it was last."""
    try:
        file = opened(HEARTBEAT, os.O_RDONLY)
        try:
            beat = json.loads(os.read(file, 4096).decode("utf-8"))["time_s"]
        finally:
            os.close(file)
        return abs(now - beat) <= FRESH_S
    except Exception:
        return False


def seconds(value):
    """A time of PBS as a number, 0 where there is none."""
    return int(value) if value else 0


def submitted(job):
    """Mark a job as the twin's, and give it its first lease."""
    now = int(time.time())
    server = pbs.server()
    name = str(job.queue or "") or str(server.default_queue or "")
    # The jobs of a reservation are the reservation's.
    if (QUEUES and name not in QUEUES) or re.match("[RSM][0-9]+$", name):
        return
    asked = seconds(job.Execution_Time)
    job.Resource_List[MARK] = asked if asked > now else 0
    if not lives(now):
        return
    queue = server.queue(name)
    # A job that waits for a time is routed only where the site says so.
    if queue.queue_type == ROUTE and not queue.route_waiting_jobs:
        return
    if asked < now + LEASE_S:
        job.Execution_Time = now + LEASE_S
        if not str(job.comment or ""):
            job.comment = COMMENT


def trusted(event):
    """Whether a manager or an operator asks."""
    who, host = str(event.requestor), str(event.requestor_host)
    if who == "root":
        return True
    server = pbs.server()
    for entry in (str(server.managers) + "," + str(server.operators)).split(","):
        name, _, where = entry.strip().partition("@")
        if name == who and fnmatch.fnmatch(host, where or "*"):
            return True
    return False


def modified(event):
    """Keep a begin time that is asked for as its user's own, and the lease that is still on.

    Whoever sets the mark too is the twin: PBS lets nobody but operators and managers do that.

    Returns:
        Whether it was the twin.
    """
    job, before = event.job, event.job_o
    asked = job.Execution_Time
    if asked is None:
        return False
    if job.Resource_List[MARK] is not None:
        return True
    own = before.Resource_List[MARK]
    if own is None or seconds(before.job_state) in RUNS:
        return False
    now, asked, until = int(time.time()), seconds(asked), seconds(before.Execution_Time)
    job.Resource_List[MARK] = asked if asked > now else 0
    if lives(now) and not trusted(event):
        # Where their own time hid it, there is no telling how long the lease is: it begins anew.
        lease = until if until > int(own) else now + LEASE_S
        if asked < lease:
            job.Execution_Time = lease
    return False


def texts(thing, names):
    """Those attributes that are set, as text."""
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
    """Append the event to the file, in one write."""
    line = {"v": 1, "t": time.time(), "type": int(event.type)}
    for key, names in (("job", JOB), ("vnode", VNODE)):
        try:
            thing = getattr(event, key)
        except Exception:  # this event has no such thing
            thing = None
        if thing is not None:
            line[key] = texts(thing, names)
    data = (json.dumps(line) + "\n").encode("utf-8")
    file = opened(SPOOL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if os.fstat(file).st_size < LIMIT:
            os.write(file, data)
    finally:
        os.close(file)


def safely(what, *arguments):
    """Do something; of a fault, no more than a line in the server's log."""
    try:
        return what(*arguments)
    except Exception:
        try:
            fault = sys.exc_info()[1]
            pbs.logmsg(pbs.LOG_DEBUG, "hpctwin: " + what.__name__ + ": " + repr(fault))
        except Exception:
            pass


def take_in():
    """Do what is to be done at this event."""
    event = pbs.event()
    kind = int(event.type)
    own = False
    if kind == QUEUEJOB:
        safely(submitted, event.job)
        # Where there is a later event that knows the job's id, that one is noted.
        own = hasattr(pbs, "POSTQUEUEJOB")
    elif kind == MODIFYJOB:
        own = safely(modified, event)
    if not own:
        safely(note, event)


safely(take_in)
pbs.event().accept()
