"""The live facility: jobs from one queue placed at several clusters, each mirrored."""
