"""Workloads as CSV and Parquet."""
