"""Start times of jobs, and the accuracy of such forecasts for a past."""
