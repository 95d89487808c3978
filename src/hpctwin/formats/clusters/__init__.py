"""Clusters in files."""
