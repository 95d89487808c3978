"""PAS: jobs that depend on each other and share four resources."""
