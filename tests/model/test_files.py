"""Files and folders are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from hpctwin.errors import OutputError
from hpctwin.model import check_file, check_folder, write_atomically, write_folder


@pytest.fixture
def umask() -> object:
    """A umask that is told from the private mode of temporary files."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_nothing_is_left_of_a_write_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("old")
    with pytest.raises(RuntimeError), write_atomically(path) as file:  # noqa: PT012
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_a_write_that_was_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), write_atomically(tmp_path / "new") as file:  # noqa: PT012
        file.write(b"half")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), write_folder(tmp_path / "run") as folder:  # noqa: PT012
        (folder / "one").write_text("1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_new_files_have_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    with write_atomically(tmp_path / "file") as file:
        file.write(b"x")
    with write_folder(tmp_path / "run") as folder, write_atomically(folder / "file") as file:
        file.write(b"x")
    for path, mode in (("file", 0o666), ("run", 0o777), ("run/file", 0o666)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode & ~umask


def test_a_rewritten_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.touch(0o600)
    with write_atomically(path) as file:
        file.write(b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    with write_atomically(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "new"


def test_a_pipe_is_written_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with write_atomically(pipe) as file:
        file.write(b"through")
    reader.join(180)
    assert got == [b"through"]
    assert pipe.is_fifo()


def test_a_full_device_is_reported_with_its_name() -> None:
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left"):  # noqa: SIM117
        with write_atomically("/dev/full") as file:
            file.write(b"x" * 100_000)
    assert Path("/dev/full").is_char_device()


def test_nothing_holds_on_to_what_could_not_be_written() -> None:
    with pytest.raises(OutputError) as refused:  # noqa: SIM117
        with write_atomically("/dev/full") as file:
            file.write(b"x" * 100_000)
    # A view of it in the fault's frames would forbid this; collected with them, it ended Python 3.12.1.
    file.close()
    assert refused.value.__traceback__ is not None


def test_files_of_a_folder_appear_together_next_to_existing_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "kept").write_text("kept")
    (run / "one").write_text("old")
    with write_folder(run) as folder:
        (folder / "one").write_text("new")
        (folder / "sub").mkdir()
        (folder / "sub" / "two").write_text("2")
        assert (run / "one").read_text() == "old"
    found = {str(p.relative_to(run)): p.read_text() for p in run.rglob("*") if p.is_file()}
    assert found == {"kept": "kept", "one": "new", "sub/two": "2"}


def test_a_folder_that_another_process_wrote_meanwhile_is_reported_and_kept(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    with pytest.raises(OutputError, match="another process has written it meanwhile; use another"):  # noqa: PT012, SIM117
        with write_folder(run) as folder:
            (folder / "one").write_text("mine")
            run.mkdir()
            (run / "one").write_text("another's")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "one"]
    assert (run / "one").read_text() == "another's"


def test_files_are_moved_into_a_folder_while_no_other_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def replace_alone(path: Path, target: Path) -> Path:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return replace(path, target)

    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with write_folder(tmp_path) as folder:
            (folder / "one").write_text("1")
            monkeypatch.setattr(Path, "replace", replace_alone)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_no_folder_is_left_where_a_file_of_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"deep/run/two: cannot be written: No space"):  # noqa: PT012, SIM117
        with write_folder(tmp_path / "deep" / "run") as folder:
            (folder / "one").write_text("1")
            (folder / "two").symlink_to("/dev/full")
            with write_atomically(folder / "two") as file:
                file.write(b"x" * 100_000)
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_folder_is_reported_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OutputError, match=r"is a file|Not a directory"), write_folder(path):
            pass
        with pytest.raises(OutputError, match="is a file, but a folder is needed"):
            check_folder(path)
    assert (tmp_path / "file").read_text() == "mine"


def test_checks_before_the_work_say_what_would_fail_after_it(tmp_path: Path) -> None:
    check_file(tmp_path / "new")
    check_folder(tmp_path / "some" / "new")
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "nowhere" / "x", "nowhere is not there"),
        (Path("/proc/x"), r"."),
        (tmp_path / ("x" * 300), "name too long"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(OutputError, match=f"(?i){reason}"):  # noqa: PT012
            check_file(path)
            with write_atomically(path):
                pass
    assert list(tmp_path.iterdir()) == []
