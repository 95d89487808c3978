# mypy: ignore-errors
"""PBS hook of hpctwin: notes what happens, for the twin to read.

It runs inside the PBS server. It appends one line to a local file and accepts, whatever happens: it
talks to nobody, so nothing that is slow or down elsewhere can delay a job, and it never rejects one.
When the file has grown to LIMIT because nobody reads it, events are left out; the twin then learns of
them from its next look at the queue. Written for every Python that PBS may bring (2.7 and later).
"""

import json
import os
import sys
import time

import pbs

SPOOL = "/var/spool/hpctwin/pbs-events.jsonl"
LIMIT = 256 * 1024 * 1024

JOB = (
    "id", "Job_Name", "Job_Owner", "job_state", "substate", "queue", "Hold_Types", "Priority",
    "ctime", "qtime", "etime", "stime", "obittime", "Execution_Time", "depend", "exec_vnode",
    "Exit_status", "run_count", "project", "Account_Name", "euser", "array", "reserve_ID",
    "Resource_List",
)  # fmt: skip
VNODE = ("name", "state")


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
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
    file = os.open(SPOOL, flags, 0o640)
    try:
        if os.fstat(file).st_size < LIMIT:
            os.write(file, data)
    finally:
        os.close(file)


try:
    note(pbs.event())
except Exception:
    try:
        # Never more than a line in the server's log.
        fault = sys.exc_info()[1]
        pbs.logmsg(pbs.LOG_DEBUG, "hpctwin: event not noted: " + repr(fault))
    except Exception:
        pass
pbs.event().accept()
