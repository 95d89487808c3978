"""What other packages call: create, advance, fork and inspect a simulation."""
