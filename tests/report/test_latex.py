"""Tables as LaTeX: booktabs, one unit and one number of decimals per column, escaped texts."""

from __future__ import annotations

import re

import pytest
from rich.table import Table
from rich.text import Text

from hpctwin import compare, generate
from hpctwin.cli.app import main
from hpctwin.report.columns import format_alike
from hpctwin.report.latex import as_latex, escaped


def rows(latex: str) -> list[list[str]]:
    """The cells of a table, of the heading first."""
    lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
    return [[cell.strip() for cell in line.removesuffix(r"\\").split(" & ")] for line in lines]


def test_a_comparison_has_units_in_its_heading_and_aligned_numbers() -> None:
    results = compare(
        generate("lublin", jobs=500, nodes=64, seed=1), 64, ["fcfs+easy", "sjf+easy", "fcfs+none"]
    )
    latex = results.to_latex()
    assert latex.count(r"\toprule") == latex.count(r"\midrule") == latex.count(r"\bottomrule") == 1
    head, *body = rows(latex)
    assert head[0] == "policy"
    assert head[1] == "mean wait (h)"
    assert r"util. (\%)" in head
    assert [row[0] for row in body] == list(results)
    for column in range(1, len(head)):
        numbers = [re.sub(r"\\textbf{(.*)}", r"\1", row[column]) for row in body]
        decimals = {len(number.partition(".")[2]) for number in numbers}
        assert len(decimals) == 1, (head[column], numbers)
        assert all(re.fullmatch(r"[\d,.]+", number) for number in numbers)
    waits = [float(re.sub(r"[^\d.]", "", row[1])) for row in body]
    assert waits == [round(one.summary()["mean_wait_s"] / 3600, 2) for one in results.values()]
    best = body[waits.index(min(waits))][1]
    assert best == rf"\textbf{{{min(waits):.2f}}}"


def test_special_characters_are_escaped() -> None:
    assert escaped("a_b & 5 % #1 {x} ~y^2 $") == (
        r"a\_b \& 5 \% \#1 \{x\} \textasciitilde{}y\textasciicircum{}2 \$"
    )
    assert escaped("\\") == r"\textbackslash{}"
    assert escaped("−3 … 4") == r"$-$3 \dots{} 4"


@pytest.mark.parametrize(
    ("key", "values", "shown"),
    [
        ("mean_wait_s", [24_715.0, 1_200.0, None], ["6.87 h", "0.33 h", "–"]),
        ("mean_wait_s", [0.0, 0.0], ["0 s", "0 s"]),
        ("mean_wait_s", [59.0, 3.25], ["59.00 s", "3.25 s"]),
        ("makespan_s", [53.04 * 86400, 54.7 * 86400], ["53.0 d", "54.7 d"]),
        ("mean_bounded_slowdown", [277.25, 44.41], ["277.2", "44.4"]),
        ("mean_bounded_slowdown", [1e6, 1.5], ["1,000,000.00", "1.50"]),
        ("utilization", [0.7764, 1.0], ["77.6 %", "100.0 %"]),
        ("max_queue_length", [1200, 7], ["1,200", "7"]),
        ("total_energy_j", [3.66e10, 2.93e10], ["10.17 MWh", "8.14 MWh"]),
        ("policy", ["a", "b"], ["a", "b"]),
        ("mean_wait_s", [None], ["–"]),
        ("mean_bounded_slowdown", [float("inf"), 2.0], ["inf", "2.00"]),
    ],
)
def test_values_of_a_metric_have_one_unit_and_one_number_of_decimals(
    key: str, values: list[float | None], shown: list[str]
) -> None:
    assert format_alike(key, values) == shown


def test_a_mark_of_significance_takes_no_room_and_units_that_differ_stay() -> None:
    table = Table(title="A\n& B")
    table.add_column("name")
    table.add_column("change", justify="right")
    table.add_column("wait", justify="right")
    table.add_row("x_y", Text("−91.2 %*", "green"), "2 h")
    table.add_row("[bold]z[/]", "same", "3 min")
    assert as_latex(table) == (
        "% A\n% & B\n\\begin{tabular}{lrr}\n\\toprule\nname & change (\\%) & wait \\\\\n\\midrule\n"
        "x\\_y & $-$91.2\\rlap{$^*$} & 2 h \\\\\nz & same & 3 min \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def test_a_cell_of_several_lines_has_several_rows() -> None:
    table = Table("policy")
    table.add_column("wait", justify="right")
    table.add_row("sjf+easy", "5.8 h\n[3.9 h, 7.7 h]")
    table.add_row("fcfs\n+easy", "7 h")
    assert rows(as_latex(table)) == [
        ["policy", "wait"], ["sjf+easy", "5.8 h"], ["", "[3.9 h, 7.7 h]"], ["fcfs", "7 h"], ["+easy", ""],
    ]  # fmt: skip


def test_a_comment_has_a_sign_in_each_line() -> None:
    assert as_latex("540 simulations\nin [bold]out[/]") == "% 540 simulations\n% in out\n"


def test_commands_print_their_tables_as_latex(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = f"{tmp_path}/jobs_1.swf"
    for command in (
        ["workload", "generate", "poisson", trace, "jobs=60", "nodes=16", "seed=1"],
        ["compare", trace, "-n", "16", "-p", "fcfs+easy", "-p", "sjf+easy", "--by", "size", "--latex"],
        ["simulate", trace, "-n", "16", "--latex"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        if "--latex" in command:
            assert printed.count(r"\begin{tabular}") == printed.count(r"\end{tabular}") > 0
            code = "\n".join(line for line in printed.splitlines() if not line.startswith("%"))
            assert not re.search(r"(?<!\\)[_#%]", code)
            assert "jobs\\_1" in printed or command[0] == "compare"
