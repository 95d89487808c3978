"""Jobs, nodes and reservations as Slurm's commands print them."""
