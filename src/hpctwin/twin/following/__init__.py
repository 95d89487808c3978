"""Following a cluster by the events on its bus and by snapshots."""
