"""The scheduler of docs/how-to/connect-an-external-scheduler.md in plain Python: FCFS or EASY."""

import json
import sys

jobs, running, queue, nodes = {}, {}, [], 0
easy = "easy" in sys.argv


def decide(now, free):
    started = []
    while queue and jobs[queue[0]]["nodes"] <= free:
        free -= begin(queue.pop(0), now, started)
    if not (easy and queue):
        return started
    # The head starts when enough nodes are back by walltime; others may pass if they do not delay it.
    head, shadow, extra = jobs[queue[0]]["nodes"], now, free
    for end, job in sorted((end, job) for job, end in running.items()):
        if extra >= head:
            break
        shadow, extra = end, extra + jobs[job]["nodes"]
    at_shadow = sum(jobs[job]["nodes"] for job, end in running.items() if end <= shadow) + free
    extra = at_shadow - head
    for job in queue[1:]:
        wide, ends = jobs[job]["nodes"], now + jobs[job]["walltime_s"]
        if wide <= free and (ends <= shadow or wide <= extra):
            queue.remove(job)
            extra -= 0 if ends <= shadow else wide
            free -= begin(job, now, started)
    return started


def begin(job, now, started):
    started.append(job)
    running[job] = now + jobs[job]["walltime_s"]
    return jobs[job]["nodes"]


for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "happened":
        for job, _ in message["ended"]:
            running.pop(job, None)
            if job in queue:
                queue.remove(job)
        for job in message["submitted"]:
            jobs[job["job_id"]] = job
            queue.append(job["job_id"])
        print(json.dumps({"start": decide(message["now_s"], message["free_nodes"])}), flush=True)
