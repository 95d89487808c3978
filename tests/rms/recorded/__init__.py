"""Outputs recorded from real resource managers."""

from pathlib import Path

PBS = {
    name: (Path(__file__).parent / f"openpbs-23.06-{name}").read_bytes()
    for name in ("qstat.json", "pbsnodes.json", "queues.json", "server.json", "hook-lines.jsonl")
}
