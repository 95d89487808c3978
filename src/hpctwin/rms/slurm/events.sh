#!/bin/sh
# hpctwin: notes that a job has begun or ended, for the twin to read.
# For PrologSlurmctld (begins) and JobCompLoc of jobcomp/script (ends). It writes one line to a local
# file and succeeds, whatever happens: it talks to nobody, and a full or missing file stops nothing.
SPOOL=/var/spool/hpctwin/slurm-events.jsonl
LIMIT=268435456
{
  size=$(stat -c %s "$SPOOL" || echo 0)
  if [ "$size" -lt "$LIMIT" ]; then
    now=$(date +%s.%N)
    if [ -n "$JOBSTATE" ]; then
      line=$(printf '{"v":1,"t":%s,"kind":"end","job":"%s","state":"%s"}' \
        "$now" "$JOBID" "$JOBSTATE")
    else
      line=$(printf '{"v":1,"t":%s,"kind":"begin","job":"%s","nodes":"%s"}' \
        "$now" "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST")
    fi
    printf '%s\n' "$line" >>"$SPOOL"
  fi
} 2>/dev/null
exit 0
