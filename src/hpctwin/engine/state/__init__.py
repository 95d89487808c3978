"""Records and arrays that hold the state of a simulation."""
