from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.report.figures.gantt import pack


def attempts(*rows: tuple[float, float, int]) -> pl.DataFrame:
    schema = {"start_s": pl.Float64, "end_s": pl.Float64, "nodes": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row").with_row_index("job_id")


def pieces(packed: pl.DataFrame) -> list[tuple[int, int, int]]:
    return packed.select("job_id", "first_node", "count").rows()


def test_jobs_at_the_same_time_are_stacked() -> None:
    assert pieces(pack(attempts((0, 10, 2), (0, 10, 3)))) == [(0, 0, 2), (1, 2, 3)]


def test_rows_are_used_again_after_an_end() -> None:
    assert pieces(pack(attempts((0, 10, 2), (10, 20, 2)))) == [(0, 0, 2), (1, 0, 2)]


def test_a_job_fills_gaps_in_pieces() -> None:
    packed = pack(attempts((0, 5, 2), (0, 20, 1), (6, 9, 4)))
    assert pieces(packed) == [(0, 0, 2), (1, 2, 1), (2, 0, 2), (2, 3, 2)]


def test_neighbouring_rows_become_one_piece_again() -> None:
    packed = pack(attempts((0, 5, 1), (0, 4, 1), (0, 3, 1), (6, 9, 3)))
    assert pieces(packed)[-1] == (3, 0, 3)


def test_a_job_wider_than_the_highest_gap_is_one_piece() -> None:
    assert pieces(pack(attempts((0, 5, 2), (6, 9, 4)))) == [(0, 0, 2), (1, 0, 4)]


def test_no_attempts_give_no_pieces() -> None:
    assert pack(attempts()).columns == ["job_id", "start_s", "end_s", "first_node", "count"]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 15), st.integers(1, 6)),
        min_size=1,
        max_size=25,
    )
)
def test_pieces_never_overlap_and_add_up_to_the_nodes(rows: list[tuple[int, int, int]]) -> None:
    given_jobs = attempts(*((start, start + run, nodes) for start, run, nodes in rows))
    packed = pack(given_jobs)
    counts = packed.group_by("job_id").agg(pl.col("count").sum()).sort("job_id")
    assert counts["count"].to_list() == given_jobs["nodes"].to_list()
    taken = set()
    for _, start, end, first, count in packed.rows():
        for instant in range(int(start), int(end)):
            for node in range(first, first + count):
                assert (instant, node) not in taken
                taken.add((instant, node))
    used = [sum(n for s, r, n in rows if s <= t < s + r) for t in range(46)]
    at_once = max(used)
    momentary = sum(n for _, r, n in rows if r == 0)
    assert (packed["first_node"] + packed["count"]).max() <= at_once + momentary  # type: ignore[operator]
