"""Policies that set the number of nodes of each job."""
