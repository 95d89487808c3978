from __future__ import annotations

import gzip
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hpctwin.errors import ConfigError, DownloadError, UnknownNameError
from hpctwin.formats.archive import LICENSE, LOGS, download

NAME = "KTH-SP2-1996-2.1-cln"
LOG = gzip.compress(b"; MaxProcs: 100\n" + bytes(range(256)) * 2000, mtime=0)
OTHER = gzip.compress(b"; MaxProcs: 101\n" + bytes(range(255, -1, -1)) * 1500, mtime=0)


class Server(ThreadingHTTPServer):
    """Serves one file and misbehaves as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = LOG
        self.ranges = True
        self.wrong_begin = False
        self.cut_after: int | None = None
        self.chunked = False
        self.status = 200
        self.seen: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/workload"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, content = self.server, self.server.content
        asked = self.headers.get("Range")
        server.seen.append((self.path, asked))
        if server.status != 200:
            self.send_error(server.status)
            return
        begin = 0
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if match and server.ranges:
            begin = int(match[1])
            if begin >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            said = begin + 1 if server.wrong_begin else begin
            self.send_header("Content-Range", f"bytes {said}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if not server.chunked:
            self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: server.cut_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_log_is_stored_whole_next_to_its_checksum(tmp_path: Path, server: Server) -> None:
    steps: list[tuple[int, int | None]] = []
    path = download(
        NAME,
        tmp_path / "new" / "folder",
        base_url=server.url,
        progress=lambda *step: steps.append(step),
    )
    assert path.name == f"{NAME}.swf.gz"
    assert path.read_bytes() == LOG
    assert server.seen == [(f"/workload/l_kth_sp2/{NAME}.swf.gz", None)]
    assert steps[-1] == (len(LOG), len(LOG))
    digest = hashlib.sha256(LOG).hexdigest()
    assert (path.parent / f"{NAME}.swf.gz.sha256").read_text() == f"{digest}  {NAME}.swf.gz\n"
    assert len(list(path.parent.iterdir())) == 2


def test_the_environment_names_another_archive(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCTWIN_ARCHIVE_URL", server.url + "/")
    assert download(NAME, tmp_path).read_bytes() == LOG


def test_an_existing_file_is_not_downloaded_again(tmp_path: Path, server: Server) -> None:
    download(NAME, tmp_path, base_url=server.url)
    download(NAME, tmp_path, base_url=server.url)
    assert len(server.seen) == 1


def test_a_file_that_changed_since_is_found_out(tmp_path: Path, server: Server) -> None:
    path = download(NAME, tmp_path, base_url=server.url)
    path.write_bytes(OTHER)
    with pytest.raises(DownloadError, match=r"has the SHA-256 .*, expected"):
        download(NAME, tmp_path, base_url=server.url)


def test_a_renewed_log_is_found_out(tmp_path: Path, server: Server) -> None:
    download(NAME, tmp_path, base_url=server.url).unlink()
    server.content = OTHER
    with pytest.raises(DownloadError, match="if the log was updated, delete it and its"):
        download(NAME, tmp_path, base_url=server.url)


def test_a_file_put_there_by_hand_is_verified_and_recorded(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.swf.gz").write_bytes(LOG)
    download(NAME, tmp_path, base_url="http://127.0.0.1:9")
    assert (tmp_path / f"{NAME}.swf.gz.sha256").exists()
    (tmp_path / f"{NAME}.swf.gz.sha256").unlink()
    (tmp_path / f"{NAME}.swf.gz").write_bytes(LOG[:-3])
    with pytest.raises(DownloadError, match="is not a complete gzip file"):
        download(NAME, tmp_path, base_url="http://127.0.0.1:9")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_lost_connection_is_reported_and_resumed(
    tmp_path: Path, server: Server, ranges: bool
) -> None:
    server.cut_after = 1000
    with pytest.raises(DownloadError, match=r"(interrupted after|IncompleteRead|call again)"):
        download(NAME, tmp_path, base_url=server.url)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.swf.gz.part"]
    server.cut_after, server.ranges = None, ranges
    assert download(NAME, tmp_path, base_url=server.url).read_bytes() == LOG
    assert server.seen[-1][1] == "bytes=1000-"


def test_a_cut_without_known_length_is_found_by_gzip(tmp_path: Path, server: Server) -> None:
    server.cut_after, server.chunked = 1000, True
    with pytest.raises(DownloadError, match="is not a complete gzip file"):
        download(NAME, tmp_path, base_url=server.url)


def test_a_part_of_another_version_is_thrown_away(tmp_path: Path, server: Server) -> None:
    (tmp_path / f"{NAME}.swf.gz.part").write_bytes(OTHER[:500])
    assert download(NAME, tmp_path, base_url=server.url).read_bytes() == LOG
    assert [asked for _, asked in server.seen] == ["bytes=500-", None]


def test_a_part_that_is_whole_already_is_taken(tmp_path: Path, server: Server) -> None:
    (tmp_path / f"{NAME}.swf.gz.part").write_bytes(LOG)
    assert download(NAME, tmp_path, base_url=server.url).read_bytes() == LOG
    assert len(server.seen) == 1


def test_a_part_longer_than_the_file_is_thrown_away(tmp_path: Path, server: Server) -> None:
    (tmp_path / f"{NAME}.swf.gz.part").write_bytes(LOG + b"more")
    assert download(NAME, tmp_path, base_url=server.url).read_bytes() == LOG


def test_an_answer_from_another_place_than_asked_is_rejected(
    tmp_path: Path, server: Server
) -> None:
    (tmp_path / f"{NAME}.swf.gz.part").write_bytes(LOG[:500])
    server.wrong_begin = True
    with pytest.raises(
        DownloadError, match="the server sent data from byte 501, requested was 500"
    ):
        download(NAME, tmp_path, base_url=server.url)


def test_a_corrupt_file_is_not_kept(tmp_path: Path, server: Server) -> None:
    broken = bytearray(LOG)
    broken[len(LOG) // 2] ^= 255
    server.content = bytes(broken)
    with pytest.raises(DownloadError, match="is not a complete gzip file"):
        download(NAME, tmp_path, base_url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_a_web_page_instead_of_the_log_is_not_kept(tmp_path: Path, server: Server) -> None:
    server.content = b"<html>moved</html>"
    with pytest.raises(DownloadError, match="is not a complete gzip file"):
        download(NAME, tmp_path, base_url=server.url)
    assert list(tmp_path.iterdir()) == []


def test_a_checksum_given_is_held_against_the_file(tmp_path: Path, server: Server) -> None:
    with pytest.raises(DownloadError, match="expected 0000"):
        download(NAME, tmp_path, base_url=server.url, sha256="0" * 64)
    right = hashlib.sha256(LOG).hexdigest().upper()
    assert download(NAME, tmp_path, base_url=server.url, sha256=right).exists()
    with pytest.raises(ConfigError, match="expected 64 hexadecimal digits"):
        download(NAME, tmp_path, base_url=server.url, sha256="abc")


def test_a_sidecar_without_checksum_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.swf.gz.sha256").write_text("what?")
    with pytest.raises(DownloadError, match="holds no SHA-256; delete it"):
        download(NAME, tmp_path)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_refusals_contain_address_and_status(tmp_path: Path, server: Server, status: int) -> None:
    server.status = status
    with pytest.raises(DownloadError, match=rf"http://127.*swf\.gz: the server answers {status}"):
        download(NAME, tmp_path, base_url=server.url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "file:///etc", "http://", "http://[", "http://127.0.0.1:x"]
)
def test_addresses_that_do_not_answer_are_download_errors(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError):
        download(NAME, tmp_path, base_url=url, timeout_s=2)


def test_an_invalid_folder_is_a_download_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="file"):
        download(NAME, tmp_path / "file", base_url="http://127.0.0.1:1")


def test_an_unknown_log_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean '{NAME}'"):
        download("KTH-SP2-1996-2", "anywhere")


def test_the_table_of_logs_is_consistent() -> None:
    assert len(LOGS) == 14
    for log in LOGS.values():
        assert 0 < log.nodes <= log.processors
        assert log.folder.startswith("l_")
    assert "acknowledge" in LICENSE
