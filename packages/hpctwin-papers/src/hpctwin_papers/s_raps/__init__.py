"""S-RAPS: rescheduled traces, prediction, incentives, external schedulers."""
