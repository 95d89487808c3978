"""The compiled discrete-event core and its state. Import its modules only when a simulation starts."""
