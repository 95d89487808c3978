"""SchedTwin: the live twin on an emulated and a real cluster."""
