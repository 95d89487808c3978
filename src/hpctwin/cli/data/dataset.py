"""``hpctwin dataset``: list, describe and check data sets, and write samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App

from hpctwin.cli.option_values import AT_LEAST_1

if TYPE_CHECKING:
    from hpctwin.formats.datasets import DataSet, File
    from hpctwin.model import Workload

__all__ = ["dataset_app"]

dataset_app = App(name="dataset", help="List published data sets and check their files.")


@dataset_app.command(name="list")
def list_datasets(*, json: bool = False) -> int:
    """List the supported data sets; their files and folders are valid traces.

    Args:
        json: Print the list as JSON.
    """
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.formats.datasets import DATASETS

    if json:
        print_json([_about(one) for one in DATASETS.values()])
        return 0
    rows = [(one.name, one.system or "", one.title) for one in DATASETS.values()]
    screen().print(plain_table(("data set", "machine", "what it is"), rows))
    return 0


@dataset_app.command
def describe(name: str, /, *, json: bool = False) -> int:
    """Show a data set's source, license, columns and rules for missing values.

    Args:
        name: Name of the data set, from `hpctwin dataset list`.
        json: Print the description as JSON.
    """
    from hpctwin.cli.output import plain_table, print_json, screen
    from hpctwin.formats.datasets import dataset

    found = dataset(name)
    if json:
        print_json(_about(found))
        return 0
    console = screen(highlight=False)
    console.print(f"[bold]{found.name}[/]  {found.title}", markup=True)
    for head in ("source", "license", "citation", "system", "zone"):
        value = getattr(found, head)
        if value is not None:
            console.print(f"{head}: {value}", markup=False)
    for rule in found.rules:
        console.print(f"- {rule}", markup=False)
    for file in found.files:
        console.print(f"\n{file.name}{'' if file.needed else ' (optional)'}", markup=False)
        rows = [(c.name, c.kind, "yes" if c.needed else "", c.meaning) for c in file.columns]
        console.print(plain_table(("column", "read as", "needed", "meaning"), rows))
    return 0


@dataset_app.command
def check(
    path: Path,
    /,
    *,
    name: str | None = None,
    timezone: str | None = None,
    json: bool = False,
) -> int:
    """Detect the data set of a file or folder, show its columns, and test reading it.

    Args:
        path: First file of the data set, or its folder.
        name: Name of the data set; detected by its columns if omitted.
        timezone: Zone of dates without one, such as Europe/Berlin; by default the data set's.
        json: Print the result as JSON.
    """
    from hpctwin.cli.output import note_reading, print_json
    from hpctwin.errors import TraceError
    from hpctwin.formats.datasets import DATASETS, dataset, files_of, read_dataset, told_by
    from hpctwin.model.text import count_text

    if not path.exists():
        raise TraceError(path, "file or folder does not exist")
    found = told_by(path) if name is None else dataset(name)
    if found is None:
        raise TraceError(
            path,
            f"columns match no known data set: {', '.join(DATASETS)}; give --name",
        )
    files = [
        _columns(one, there[0]) for one in found.files if (there := files_of(found, path)[one.name])
    ]
    fault, workload = None, None
    try:
        workload = read_dataset(path, found, timezone=timezone)
    except TraceError as error:
        fault = str(error)
    if json:
        print_json(_outcome(found, files, workload, fault))
        return 0 if fault is None else 2
    print(f"{path}: data set {found.name}")
    for file in files:
        print(f"{file['path']}: {file['found']} of {file['declared']} columns")
        for what in ("missing", "more"):
            if file[what]:
                print(f"  {what}: {', '.join(file[what])}")
    if workload is None:
        print(f"file cannot be read: {fault}")
        return 2
    note_reading(workload)
    print(
        f"{count_text(len(workload), 'job')}; recorded use: {', '.join(workload.usage) or 'nothing'}"
    )
    return 0


@dataset_app.command
def sample(
    name: str,
    /,
    *,
    out: Path,
    jobs: Annotated[int, AT_LEAST_1] = 100,
    seed: int = 0,
) -> int:
    """Write small sample files of generated jobs in a data set's exact schema.

    Args:
        name: Name of the data set, from `hpctwin dataset list`.
        out: Output folder; created if it does not exist.
        jobs: Number of jobs.
        seed: Seed of the random numbers.
    """
    from hpctwin.formats.datasets import dataset, write_sample

    for path in write_sample(dataset(name), out, jobs=jobs, seed=seed):
        print(path)
    return 0


def _about(found: DataSet) -> dict[str, Any]:
    heads = ("name", "title", "source", "license", "citation", "system", "zone", "rules")
    columns = ("name", "kind", "needed", "meaning")
    return {head: getattr(found, head) for head in heads} | {
        "files": [
            {
                "name": file.name,
                "needed": file.needed,
                "columns": [
                    {key: getattr(column, key) for key in columns} for column in file.columns
                ],
            }
            for file in found.files
        ]
    }


def _columns(file: File, path: Path) -> dict[str, Any]:
    from hpctwin.formats.datasets import columns_in

    there, declared = columns_in(path, file), [column.name for column in file.columns]
    return {
        "path": str(path),
        "declared": len(declared),
        "found": sum(name in there for name in declared),
        "missing": [name for name in declared if name not in there],
        "more": [name for name in there if name not in declared],
    }


def _outcome(
    found: DataSet, files: list[dict[str, Any]], workload: Workload | None, fault: str | None
) -> dict[str, Any]:
    outcome: dict[str, Any] = {"name": found.name, "files": files, "fault": fault}
    if workload is not None:
        outcome |= {
            "jobs": len(workload),
            "use": list(workload.usage),
            "counts": dict(workload.notes.counts),
            "remarks": list(workload.notes.remarks),
        }
    return outcome
