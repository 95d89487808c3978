"""Draw the diagrams of the concept pages: ``python docs/images/diagrams.py`` writes the SVG files.

The Gantt charts are those of two simulations. Each file has its own background, and colors for light
and dark screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from hpctwin import Workload, simulate

STYLE = """
svg { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
.page { fill: #ffffff } text { fill: #1f2328 } .soft { fill: #59636e; font-size: 12px }
.box { fill: #eaf1fb; stroke: #2f6db5 } .calm { fill: #f3f4f6; stroke: #8a929c }
.line { fill: none; stroke: #59636e; stroke-width: 1.5 } .dash { stroke-dasharray: 5 4 }
.tip { fill: #59636e } .grid { stroke: #d5d9de } .now { stroke: #c2410c; stroke-width: 2 }
.bold { font-weight: 600 } .code { font: 600 19px ui-monospace, Menlo, Consolas, monospace }
.c0 { fill: #9cc3ea } .c1 { fill: #f0c27b } .c2 { fill: #a5d6a7 } .c3 { fill: #e6a1b4 }
.c4 { fill: #c9b6e4 } .c5 { fill: #f2e08a } .bar { stroke: #59636e } .bar + text { fill: #1f2328 }
@media (prefers-color-scheme: dark) {
  .page { fill: #15181c } text { fill: #e6e8eb } .soft { fill: #a9b1ba }
  .box { fill: #1d3557; stroke: #6ea8e8 } .calm { fill: #252a30; stroke: #8a929c }
  .line { stroke: #a9b1ba } .tip { fill: #a9b1ba } .grid { stroke: #3a4048 } .now { stroke: #f59e5b }
}
"""
JOBS = (("A", 5, 2), ("B", 8, 4), ("C", 4, 2), ("D", 6, 6), ("E", 2, 2), ("F", 2, 4))
"""Name, nodes and hours of the jobs of the Gantt charts, submitted half an hour apart."""
NODES = 10


class Drawing:
    """A drawing, to which shapes are added.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        title: What the drawing shows, for those who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
            ' markerHeight="8" orient="auto"><path class="tip" d="M0 0 10 5 0 10z"/></marker></defs>',
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """Write a line of text."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, lines: Sequence[str], kind: str = "box"
    ) -> None:
        """Draw a box with a bold first line and small other lines in its center."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5"/>'
        )
        top = y + h / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + w / 2, top + 17 * number, line, "soft" if number else "bold")

    def arrow(self, path: str, kind: str = "") -> None:
        """Draw a line with a tip along an SVG path."""
        self.parts.append(f'<path class="line {kind}" d="{path}" marker-end="url(#tip)"/>')

    def line(self, path: str, kind: str = "line") -> None:
        """Draw a line along an SVG path."""
        self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def svg(self) -> str:
        """Return the file's text."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def control_loop() -> str:
    """Draw the twin's control loop."""
    to = Drawing(860, 330, "The control loop of the live twin")
    to.box(20, 70, 130, 90, ["Cluster", "Slurm or PBS"], "calm")
    for x, lines in (
        (230, ["Mirror", "model of the", "cluster now"]),
        (390, ["Simulate", "one fork for", "each policy"]),
        (550, ["Score", "site's objective"]),
        (710, ["Decision", "policy, starts"]),
    ):
        to.box(x, 70, 130, 90, lines)
    for x, text in ((150, "events"), (360, ""), (520, ""), (680, "")):
        to.arrow(f"M{x} 115H{x + (80 if text else 30)}")
        to.text(x + 38, 107, text, "soft")
    to.arrow("M85 70V38H295V70", "dash")
    to.text(190, 30, "snapshot, every minute", "soft")
    to.arrow("M455 70V38H520")
    to.text(530, 43, "forecasts: hpctwin when, web page", "soft", "start")
    to.arrow("M775 160V215H85V160")
    to.text(535, 207, "leases, priorities or starts (only in the modes approve and act)", "soft")
    to.box(
        230,
        250,
        610,
        50,
        ["Journal", "events, decisions, actions and forecasts; any decision can be repeated"],
        "calm",
    )
    to.arrow("M775 215V250")
    to.arrow("M295 160V250")
    return to.svg()


def leases() -> str:
    """Draw the life of a lease, with a twin that works and with one that fails."""
    to = Drawing(860, 330, "The life of a lease")

    def row(y: float, title: str, spans: Sequence[tuple[float, float, str, str]]) -> None:
        to.text(20, y - 12, title, "bold", "start")
        for begin, end, text, kind in spans:
            to.box(begin, y, end - begin, 34, [text], kind)

    row(50, "The twin works", [
        (120, 260, "lease", "box"), (260, 400, "renewed", "box"), (400, 500, "renewed", "box"),
        (500, 600, "may start", "calm"), (600, 800, "runs", "c2 bar"),
    ])  # fmt: skip
    row(190, "The twin fails", [
        (120, 260, "lease", "box"), (260, 400, "renewed", "box"),
        (400, 690, "the cluster decides alone", "calm"), (690, 800, "runs", "c2 bar"),
    ])  # fmt: skip
    for x, y, *lines in (
        (120, 84, "job submitted"), (500, 84, "twin decides that", "the job is next"),
        (600, 84, "the cluster", "starts it"),
        (120, 224, "job submitted"), (400, 224, "the lease expires"), (690, 224, "the cluster", "starts it"),
    ):  # fmt: skip
        to.line(f"M{x} {y}v10", "line")
        for number, line in enumerate(lines):
            to.text(x, y + 26 + 16 * number, line, "soft")
    to.line("M330 183V234", "now")
    to.text(330, 178, "twin dies", "soft")
    to.text(
        430,
        310,
        "While a job has a lease, the cluster does not start it. A lease only delays, and always ends.",
        "soft",
    )
    return to.svg()


def backfilling() -> str:
    """Draw the same six jobs under EASY and conservative backfilling."""
    to = Drawing(860, 300, "Six jobs under EASY and conservative backfilling")
    hours = 14
    for left, name in ((50, "easy"), (475, "conservative")):
        scale_x, scale_y, top = 360 / hours, 20, 45
        to.text(left + 180, 28, f"fcfs+{name}", "bold")
        for hour in range(0, hours + 1, 2):
            x = left + hour * scale_x
            to.line(f"M{x:g} {top}V{top + NODES * scale_y}", "grid")
            to.text(x, top + NODES * scale_y + 18, f"{hour}", "soft")
        to.text(left + 180, top + NODES * scale_y + 38, "hours", "soft")
        to.text(left - 8, top + 14, f"{NODES}", "soft", "end")
        to.text(left - 8, top + NODES * scale_y, "1", "soft", "end")
        for job, start_h, end_h, first, count in _placed(name):
            x, y = left + start_h * scale_x, top + (NODES - first - count) * scale_y
            to.box(
                x, y, (end_h - start_h) * scale_x, count * scale_y, [JOBS[job][0]], f"c{job} bar"
            )
    to.text(38, 28, "node", "soft", "end")
    return to.svg()


def _placed(backfill: str) -> list[tuple[int, float, float, int, int]]:
    """Return job, start and end in hours, first node and number of nodes, from a simulation."""
    hours = [3600 * hours for _, _, hours in JOBS]
    jobs = Workload.build(
        submit_s=[1800 * number for number in range(len(JOBS))],
        nodes=[nodes for _, nodes, _ in JOBS],
        walltime_s=hours,
        runtime_s=hours,
    )
    places = simulate(jobs, NODES, f"fcfs+{backfill}@contiguous").node_map
    assert places is not None
    return [
        (
            row["job_id"] - 1,
            row["start_s"] / 3600,
            row["end_s"] / 3600,
            row["first_node"],
            row["count"],
        )
        for row in places.iter_rows(named=True)
    ]


def policy_grammar() -> str:
    """Draw the parts of a policy's name."""
    to = Drawing(860, 210, "A policy: ordering, backfill, placement and power policy")
    parts = (
        (40, "wfp", "ORDER", "Which pending job", "is first?", "default: fcfs"),
        (220, "+easy:2", "BACKFILL", "Which jobs may", "pass the first?", "default: easy"),
        (430, "@best-fit", "PLACEMENT", "On which nodes", "does it run?", "default: first-fit"),
        (650, "~psus:20m", "POWER", "When do idle nodes", "switch off?", "default: none"),
    )
    for x, code, name, *lines in parts:
        width = 11.5 * len(code) + 16
        to.text(x, 55, code, "code", "start")
        to.line(f"M{x} 66H{x + width - 16:g}", "line")
        to.line(f"M{x + (width - 16) / 2:g} 66V92", "line")
        to.text(x, 112, name, "bold", "start")
        for number, line in enumerate(lines):
            to.text(x, 134 + 19 * number, line, "soft", "start")
    return to.svg()


def cluster() -> str:
    """Draw node groups, partitions and switches of a cluster."""
    to = Drawing(860, 350, "Node groups, partitions and switches of a cluster")
    to.text(20, 34, "switches", "bold", "start")
    to.box(400, 16, 120, 32, ["core"], "calm")
    for x, name in ((190, "rack 1"), (410, "rack 2"), (650, "rack 3")):
        to.line(f"M460 48V62H{x + 50}V76", "line")
        to.box(x, 76, 100, 30, [name], "calm")
    to.text(20, 148, "node groups", "bold", "start")
    for x, w, lines in (
        (130, 430, ["cpu: 96 nodes", "64 cores, 256 GB each"]),
        (600, 200, ["gpu: 32 nodes", "64 cores, 512 GB, 4 GPUs each"]),
    ):
        to.box(x, 126, w, 70, lines)
    for number in range(3):
        x = (240, 460, 700)[number]
        to.line(f"M{x} 106V126", "line")
    to.text(20, 240, "partitions", "bold", "start")
    to.box(130, 218, 670, 34, ["batch: all nodes, jobs up to 24 h"], "c0 bar")
    to.box(600, 260, 200, 34, ["gpu: up to 16 nodes"], "c1 bar")
    to.text(
        430,
        328,
        "A job asks for a partition and gets nodes of its groups. Partitions may overlap.",
        "soft",
    )
    return to.svg()


def power_states() -> str:
    """Draw the power of a node over time, state by state."""
    to = Drawing(860, 260, "Power of a node as it idles, switches off, sleeps and wakes")
    floor, x = 190, 60
    for width, watts, lines, kind in (
        (150, 130, ("computing",), "c2 bar"),
        (120, 64, ("idle", "timeout"), "c5 bar"),
        (95, 90, ("switching", "off"), "c1 bar"),
        (160, 10, (), "c0 bar"),
        (115, 110, ("switching", "on"), "c1 bar"),
        (130, 130, ("computing",), "c2 bar"),
    ):
        to.box(x, floor - watts, width, watts, lines, kind)
        x += width
    to.text(505, floor - 22, "asleep", "bold")
    to.line(f"M50 40V{floor}H850", "line")
    to.text(50, 30, "power", "soft")
    to.text(845, floor + 20, "time", "soft", "end")
    for x, text in (
        (210, "job ends"),
        (330, "timeout is over"),
        (585, "node is woken"),
        (700, "job starts"),
    ):
        to.line(f"M{x} {floor}v10", "line")
        to.text(x, floor + 26, text, "soft")
    return to.svg()


DIAGRAMS = {
    "control-loop": control_loop,
    "leases": leases,
    "backfilling": backfilling,
    "policy-grammar": policy_grammar,
    "cluster": cluster,
    "power-states": power_states,
}

if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        Path(__file__).with_name(f"{name}.svg").write_text(draw())
