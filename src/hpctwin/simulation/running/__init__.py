"""Running a simulation: from submission to the end, from the present, or step by step."""
