#!/bin/sh
# hpctwin: notes that a job has begun or ended, for the twin to read.
# For PrologSlurmctld (begins) and JobCompLoc of jobcomp/script (ends). It writes one line to a local
# file and succeeds, whatever happens: it talks to nobody, and a full or missing file stops nothing.
# It follows no symbolic link to another file and waits for no reader of a pipe.
SPOOL=/var/spool/hpctwin/slurm-events.jsonl
LIMIT=268435456
{
  umask 027
  folder=${SPOOL%/*}
  # What is written there is for the folder's group to read.
  [ -d "$folder" ] || mkdir -m 2750 "$folder"
  size=$(stat -c %s "$SPOOL" || echo 0)
  if [ "$size" -lt "$LIMIT" ]; then
    now=$(date +%s.%N)
    if [ -n "$JOBSTATE" ]; then
      job=$JOBID
      [ "${ARRAYJOBID:-0}" -gt 0 ] && job=${ARRAYJOBID}_$ARRAYTASKID
      line=$(printf '{"v":1,"t":%s,"kind":"end","job":"%s","state":"%s"}' \
        "$now" "$job" "$JOBSTATE")
    else
      job=$SLURM_JOB_ID
      [ -n "$SLURM_ARRAY_TASK_ID" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
      line=$(printf '{"v":1,"t":%s,"kind":"begin","job":"%s","nodes":"%s"}' \
        "$now" "$job" "$SLURM_JOB_NODELIST")
    fi
    # One block, so that lines written at the same time stay whole.
    printf '%s\n' "$line" |
      dd of="$SPOOL" bs=1M iflag=fullblock oflag=append,nofollow,nonblock conv=notrunc status=none
  fi
} 2>/dev/null
exit 0
