"""What a site's files lack, or have too much of, is told: cut lines, other clusters, missing columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctwin.errors import ConfigError
from hpctwin.rms.site import NOT_MODELED
from hpctwin.rms.site_folder import Imported, import_site

CONF = (
    "ClusterName=Demo\nSelectType=select/linear\nAccountingStorageEnforce=limits\nNodeName=n[1-4] CPUs=8\n"
    "PartitionName=p Nodes=ALL\n"
)
ASSOC = (
    "Cluster|Account|ParentName|User|Share|GrpTRES\n"
    "demo|root|||1|\ndemo|physics|root||3|cpu=8\ndemo|physics||ann|2|\ndemo|optics|physics||1|\n"
)
SHOWN = "Account|User|RawShares\nroot||\n physics||3\n  physics|ann|2\n  optics||1\n"


def imported(tmp_path: Path, **texts: str) -> Imported:
    for name, text in {"slurm_conf": CONF, **texts}.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return import_site("slurm", tmp_path)


def told(made: Imported) -> str:
    """Notes, and what was not taken over, a line each."""
    settings = [f"{s.where} {s.name}: {s.why}" for s in made.site.settings]
    assert len(settings) == len(made.site.settings)
    left = [
        line
        for line, s in zip(settings, made.site.settings, strict=True)
        if s.became == NOT_MODELED
    ]
    return "\n".join([*made.site.notes, *left])


def tree(made: Imported) -> dict[str, tuple[str, object, dict[str, object]]]:
    return {a.name: (a.parent, a.share, dict(a.users)) for a in made.site.cluster.accounts}


RIGHT = {"physics": ("root", 3, {"ann": 2}), "optics": ("physics", 1, {})}


def test_nothing_is_reported_for_files_without_errors(tmp_path: Path) -> None:
    made = imported(tmp_path, assoc_txt=ASSOC)
    assert (tree(made), told(made)) == (RIGHT, "")


@pytest.mark.parametrize("name", ["assoc_txt", "share_txt"])
def test_columns_may_stand_in_any_order(tmp_path: Path, name: str) -> None:
    def turned(line: str) -> str:
        return "|".join(reversed(line.split("|")))

    text = "\n".join(map(turned, (ASSOC if name == "assoc_txt" else SHOWN).splitlines()))
    made = imported(tmp_path, **{name: text + "\n"})
    assert (tree(made), told(made)) == (RIGHT, "")


@pytest.mark.parametrize(
    ("name", "text", "line", "columns"),
    [
        ("assoc_txt", ASSOC + "demo|chem|root\n", 6, 6),
        ("share_txt", SHOWN + "  chem|\n", 6, 3),
        ("qos_txt", "Name|Priority|MaxJobsPU\nhigh|10|\nlow", 3, 3),
    ],
)
def test_truncated_lines_are_skipped_and_reported(
    tmp_path: Path, name: str, text: str, line: int, columns: int
) -> None:
    made = imported(tmp_path, **{name: text})
    said = (
        f"{name.replace('_', '.')}:{line}: the line has fewer columns than the header ({columns})"
    )
    assert said in told(made)
    assert "1 such line is omitted" in told(made)
    assert not {"chem", "low"} & {*tree(made), *made.site.cluster.qos}


def test_associations_of_other_clusters_in_the_same_database_are_skipped(
    tmp_path: Path,
) -> None:
    other = "huge|root|||1|\nhuge|physics|root||9|cpu=1\nhuge|geology|root||5|\n"
    made = imported(tmp_path, assoc_txt=ASSOC + other)
    assert tree(made) == RIGHT
    assert [limit.cores for limit in made.site.cluster.limits] == [8]
    assert told(made) == (
        "3 of 7 associations are omitted: they belong to other clusters than Demo (ClusterName)"
    )
    dump = "Cluster - 'huge':Fairshare=1\nParent - 'root'\nAccount - 'geology':Fairshare=5\n"
    (tmp_path / "dump").mkdir()
    made = imported(tmp_path / "dump", dump_cfg=dump)
    assert made.site.cluster.accounts == ()
    assert "2 of 2 associations" in told(made)


def test_associations_of_several_clusters_need_the_name_of_this_one(tmp_path: Path) -> None:
    conf = CONF.replace("ClusterName=Demo\n", "")
    with pytest.raises(ConfigError, match=r"assoc.txt contains clusters demo, huge; .*ClusterName"):
        imported(tmp_path, slurm_conf=conf, assoc_txt=ASSOC + "huge|root|||1|\n")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("assoc_txt", "Account|Share\nphysics|3\nphysics|2\n", "is ignored: column User is missing"),
        ("assoc_txt", "   Account   Share\n---------- -------\n   physics       3\n", "print it with -P"),
        ("share_txt", "Account    User  RawShares\n------- ------- ---------\nroot\n", "print it with -P"),
        ("qos_txt", "      Name   Priority\n---------- ----------\n      high     10\n", "print it with -P"),
    ],
)  # fmt: skip
def test_tables_without_enough_information_are_not_read_and_the_remedy_is_named(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    made = imported(tmp_path, **{name: text})
    assert made.files[name.replace("_", ".")] == ""
    assert says in told(made)
    assert made.site.cluster.accounts == ()
    assert made.site.cluster.qos == {}


def test_a_table_of_limits_alone_is_read(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        assoc_txt="Account|User|GrpTRES\nphysics||cpu=8\n",
        qos_txt="MaxJobsPU|Name\n5|high\n",
    )
    assert [limit.model_dump(exclude_unset=True) for limit in made.site.cluster.limits] == [
        {"qos": "high", "per": "user", "jobs": 5},
        {"account": "physics", "cores": 8},
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Account|User|Share\nphysics||3\noptics||1\n", "the account hierarchy is unknown"),
        ("Account|ParentName|User|Share\noptics|physics||1\n", "optics is placed below the root: its parent"),
        ("Account|ParentName|User|Share\noptics|optics||1\n", "or is the account itself"),
        ("Account|ParentName|User|Share\noptics|root||-3\n", "assoc.txt:2 Association account optics: share: "
         "expected a number, 0 or more, or parent"),
        ("Account|ParentName|User|GrpTRES\noptics|root||cpu=many\n", ":2 Association account optics"),
    ],
)  # fmt: skip
def test_assumptions_about_accounts_are_reported(tmp_path: Path, text: str, says: str) -> None:
    assert says in told(imported(tmp_path, assoc_txt=text))
