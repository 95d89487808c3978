"""Policies that decide on how many nodes each job runs."""
