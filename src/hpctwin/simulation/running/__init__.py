"""Running a simulation: to the end, from the present, or step by step."""
