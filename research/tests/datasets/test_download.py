"""Downloads, against a server on this machine."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from builders import mnist_arrays, write_idx

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.cli import run
from poisonproof_research.datasets import CATALOG, download_images, library, load_images
from poisonproof_research.datasets.download import ADDRESSES, RemoteFile
from poisonproof_research.datasets.entries import only_writer
from poisonproof_research.datasets.library import KnownDataset


class Server(ThreadingHTTPServer):
    """Serves `files`, cuts answers off after `cut` bytes, and knows ranges if `ranges`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name, asked = self.path[1:], self.headers.get("Range")
        self.server.asked.append((name, asked))
        data = self.server.files.get(name)
        if data is None:
            self.send_error(404)
            return
        start = 0
        if asked and self.server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][: self.server.cut])

    def log_message(self, *arguments: object) -> None:
        pass


class Counter:
    """A listener that remembers totals and steps."""

    def __init__(self) -> None:
        self.tasks: list[list[int]] = []

    def start(self, total: int, description: str) -> None:
        self.tasks.append([total, 0])

    def advance(self, amount: int = 1) -> None:
        self.tasks[-1][1] += amount

    def stop(self) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    served = Server()
    for path in write_idx(tmp_path / "published", packed=True).iterdir():
        served.files[path.name] = path.read_bytes()
    remote = tuple(
        RemoteFile(name, hashlib.md5(data).hexdigest(), (served.base,))
        for name, data in sorted(served.files.items())
    )
    monkeypatch.setitem(ADDRESSES, "mnist", remote)
    known = CATALOG["mnist"]
    anything = KnownDataset(known.title, known.class_names, known.read, lambda arrays: None)
    monkeypatch.setitem(CATALOG, "mnist", anything)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def check_loaded(cache: Path) -> None:
    dataset = load_images("mnist", cache)
    assert dataset.y_test.tolist() == mnist_arrays()["y_test"].tolist()
    assert dataset.published


def test_files_are_fetched_checked_imported_and_removed(server: Server, tmp_path: Path) -> None:
    counter = Counter()
    download_images("mnist", cache=tmp_path / "cache", progress=counter)
    check_loaded(tmp_path / "cache")
    sizes = [len(data) for _, data in sorted(server.files.items())]
    assert counter.tasks[:4] == [[size, size] for size in sizes]
    assert not (tmp_path / "cache" / library.DOWNLOADS / "mnist").exists()


def test_the_command_reports(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "mnist", "--download", "--cache", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr().out
    assert "mnist: 30 training and 12 test images" in shown
    assert "The digests are the published ones." in shown


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(ranges: bool, server: Server, tmp_path: Path) -> None:
    server.cut, server.ranges = 1000, ranges
    with pytest.raises(InvalidInputError, match="the connection ended after 1,000 of"):
        download_images("mnist", cache=tmp_path / "cache")
    server.cut = None
    server.asked.clear()
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")
    # The labels fit below the cut: they were complete and are not fetched again.
    assert [asked for _, asked in server.asked].count("bytes=1000-") == 1


def test_a_wrong_digest_is_refused_and_fetched_anew(server: Server, tmp_path: Path) -> None:
    name = "t10k-labels-idx1-ubyte.gz"
    good = server.files[name]
    server.files[name] = good[:-1] + b"!"
    with pytest.raises(InvalidInputError, match=r"has MD5 .* published is .* thrown away"):
        download_images("mnist", cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / "mnist").exists()
    server.files[name] = good
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")


def test_a_second_download_at_once_is_refused(server: Server, tmp_path: Path) -> None:
    fetched = tmp_path / "cache" / library.DOWNLOADS / "mnist"
    refused = pytest.raises(InvalidInputError, match="another process is writing mnist")
    with only_writer(fetched), refused:
        download_images("mnist", cache=tmp_path / "cache")
    assert not fetched.exists()


def test_a_missing_file_is_named(server: Server, tmp_path: Path) -> None:
    server.files.pop("train-labels-idx1-ubyte.gz")
    with pytest.raises(InvalidInputError, match=r"cannot download train-labels.*Not Found.*--from"):
        download_images("mnist", cache=tmp_path / "cache")


def test_the_next_address_is_tried(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = "http://127.0.0.1:9/"
    remote = tuple(
        RemoteFile(file.name, file.md5, (dead, server.base)) for file in ADDRESSES["mnist"]
    )
    monkeypatch.setitem(ADDRESSES, "mnist", remote)
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")
