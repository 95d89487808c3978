"""Accounts, incentives, paired comparisons, descriptions of workloads."""
