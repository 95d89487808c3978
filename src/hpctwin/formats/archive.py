"""Downloads of well-known logs of the Parallel Workloads Archive.

The archive publishes no checksums. The first download is checked by its length and by gzip's own
checksum. Its SHA-256 is then kept next to it, and later calls compare the file with that. A broken
download resumes where it stopped; pooch, a library for such files, would restart it.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpctwin._version import __version__
from hpctwin.errors import ConfigError, DownloadError, UnknownNameError
from hpctwin.model import write_atomically

BASE_URL = "https://www.cs.huji.ac.il/labs/parallel/workload/"
"""The archive; the environment variable ``HPCTWIN_ARCHIVE_URL`` overrides it."""

LICENSE = """\
The logs are free for research. If you publish work based on them, the archive asks you to
acknowledge the Parallel Workloads Archive (https://www.cs.huji.ac.il/labs/parallel/workload/) and
the people who provided the log; the comment lines at the top of each log name them. hpctwin
contains none of the logs: you download them from the archive, on these terms.
"""

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Log:
    """A log of the archive.

    Args:
        name: The archive's name for it: the file name without ``.swf.gz``.
        folder: The archive's folder.
        machine: Cluster on which it was recorded.
        processors: Number of processors; above ``nodes`` if a node has several.
        nodes: Number of nodes.
    """

    name: str
    folder: str
    machine: str
    processors: int
    nodes: int

    @property
    def file_name(self) -> str:
        """Name of the file."""
        return f"{self.name}.swf.gz"


LOGS = {
    log.name: log
    for log in (
        Log("NASA-iPSC-1993-3.1-cln", "l_nasa_ipsc", "NASA Ames Intel iPSC/860", 128, 128),
        Log("LANL-CM5-1994-4.1-cln", "l_lanl_cm5", "LANL Thinking Machines CM-5", 1024, 1024),
        Log("SDSC-Par-1995-3.1-cln", "l_sdsc_par", "SDSC Intel Paragon", 416, 416),
        Log("CTC-SP2-1996-3.1-cln", "l_ctc_sp2", "Cornell IBM SP2, batch part", 338, 338),
        Log("KTH-SP2-1996-2.1-cln", "l_kth_sp2", "KTH IBM SP2", 100, 100),
        Log("SDSC-SP2-1998-4.2-cln", "l_sdsc_sp2", "SDSC IBM SP2", 128, 128),
        Log("SDSC-BLUE-2000-4.2-cln", "l_sdsc_blue", "SDSC Blue Horizon", 1152, 144),
        Log("HPC2N-2002-2.2-cln", "l_hpc2n", "HPC2N Seth, Linux cluster", 240, 120),
        Log("LLNL-Thunder-2007-1.1-cln", "l_llnl_thunder", "LLNL Thunder", 4008, 1002),
        Log("ANL-Intrepid-2009-1", "l_anl_int", "ANL Blue Gene/P Intrepid", 163840, 40960),
        Log("RICC-2010-2", "l_ricc", "RIKEN Integrated Cluster of Clusters", 8192, 1024),
        Log("CEA-Curie-2011-2.1-cln", "l_cea_curie", "CEA Curie", 93312, 5544),
        Log("METACENTRUM-2013-3", "l_metacentrum2", "Czech grid MetaCentrum", 8412, 495),
        Log("UniLu-Gaia-2014-2", "l_unilu_gaia", "University of Luxembourg Gaia", 2004, 151),
    )
}
"""Some logs of the archive by name.

Sizes are for orientation; each log's header is authoritative.
"""


def download(
    name: str,
    folder: str | Path,
    *,
    base_url: str | None = None,
    sha256: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    timeout_s: float = 30,
) -> Path:
    """Download a log, unless the folder has it already.

    An interrupted download leaves a file ``….part``; the next call resumes it.

    Args:
        name: One of `LOGS`.
        folder: Target folder; created if missing.
        base_url: The archive or a mirror with the same folders, ``http`` or ``https``; by default
            the environment's ``HPCTWIN_ARCHIVE_URL``, else `BASE_URL`.
        sha256: Expected checksum, 64 hexadecimal digits; by default that of the first download, if
            known.
        progress: Called with the number of bytes so far and in total, if known.
        timeout_s: Longest silence of the server, in seconds.

    Returns:
        The file, complete and verified.

    Raises:
        UnknownNameError: There is no such log.
        ConfigError: ``sha256`` is no such number.
        DownloadError: Network, server, checksum or file system fail; with URL and cause.
    """
    if name not in LOGS:
        raise UnknownNameError("log", name, LOGS)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ConfigError(f"sha256 is {sha256!r}, expected 64 hexadecimal digits")
    log = LOGS[name]
    base = base_url or os.environ.get("HPCTWIN_ARCHIVE_URL") or BASE_URL
    url = f"{base.rstrip('/')}/{log.folder}/{log.file_name}"
    target = Path(folder) / log.file_name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sidecar = target.with_name(f"{target.name}.sha256")
        expected = sha256.lower() if sha256 else _recorded(url, sidecar)
        if target.exists():
            found = _verify(url, target, expected)
        else:
            part = target.with_name(f"{target.name}.part")
            found = _fetch_verified(url, part, expected, progress, timeout_s)
            part.replace(target)
        if not sidecar.exists():
            with write_atomically(sidecar) as file:
                file.write(f"{found}  {target.name}\n".encode())
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(url, f"{target}: {error.strerror or error}") from error
    return target


def _fetch_verified(
    url: str,
    part: Path,
    expected: str | None,
    progress: Callable[[int, int | None], None] | None,
    timeout_s: float,
) -> str:
    """Download into ``part``, verify it, and return the SHA-256."""
    resumed = part.exists() and part.stat().st_size > 0
    while True:
        _fetch(url, part, progress, timeout_s)
        try:
            return _verify(url, part, expected)
        except DownloadError:
            part.unlink()
            if not resumed:
                raise
        # The earlier part may be of another version of the file: try once more, from scratch.
        resumed = False


def _fetch(
    url: str,
    part: Path,
    progress: Callable[[int, int | None], None] | None,
    timeout_s: float,
) -> None:
    """Download what ``part`` lacks."""
    have = part.stat().st_size if part.exists() else 0
    try:
        with _open(url, have, timeout_s) as response:
            begin, total = _extent(response, have)
            if begin not in (0, have):
                raise DownloadError(
                    url, f"the server sent data from byte {begin}, requested was {have}"
                )
            done = begin
            with part.open("ab" if begin else "wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
    except urllib.error.HTTPError as error:
        with error:
            refused = error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have > 0
            size = (error.headers.get("Content-Range") or "").rpartition("/")[2]
        if not refused:
            raise DownloadError(url, f"the server answers {error.code} {error.reason}") from error
        if size != str(have):
            part.unlink()
            _fetch(url, part, progress, timeout_s)
        return
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        if isinstance(error, DownloadError):
            raise
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise DownloadError(url, f"{cause}; run the command again to resume") from error
    if total is not None and done < total:
        raise DownloadError(
            url, f"interrupted after {done:,} of {total:,} bytes; run the command again to resume"
        )


def _open(url: str, have: int, timeout_s: float) -> http.client.HTTPResponse:
    if not url.startswith(("http://", "https://")):
        raise DownloadError(url, "expected an address that starts with http:// or https://")
    headers = {"User-Agent": f"hpctwin/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout_s)
    return response


def _extent(response: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """Return the first byte that the server sends, and the size of the whole file."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        match = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
        )
        if match:
            return int(match[1]), None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    begin = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
    return begin, begin + int(length) if length.isdecimal() else None


def _verify(url: str, path: Path, expected: str | None) -> str:
    """Return the SHA-256 of a gzip file that is complete and has the expected one."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    found = digest.hexdigest()
    if expected is not None and found != expected:
        raise DownloadError(
            url,
            f"{path.name} has the SHA-256 {found}, expected {expected}; if the log was updated, "
            "delete it and its .sha256 and run the command again",
        )
    try:
        with gzip.open(path) as content:
            while content.read(_CHUNK):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DownloadError(url, f"{path.name} is not a complete gzip file ({error})") from error
    return found


def _recorded(url: str, sidecar: Path) -> str | None:
    text = ""
    with suppress(FileNotFoundError):
        text = sidecar.read_text(encoding="ascii", errors="replace")
    if not text:
        return None
    match = re.match(r"[0-9a-f]{64}\b", text)
    if not match:
        raise DownloadError(url, f"{sidecar} holds no SHA-256; delete it and run the command again")
    return match[0]
