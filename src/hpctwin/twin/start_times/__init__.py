"""When a job will start, and how good such forecasts were in the past."""
