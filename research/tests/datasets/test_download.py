"""Downloads, against a server on this machine."""

from __future__ import annotations

import hashlib
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
    """Serves `files`, and cuts answers off after `cut` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.asked: list[str] = []

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path[1:]
        self.server.asked.append(name)
        data = self.server.files.get(name)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.cut])

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
    assert counter.tasks[0] == [4, 4]
    assert not (tmp_path / "cache" / library.DOWNLOADS / "mnist").exists()


def test_the_command_reports(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "mnist", "--download", "--cache", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr().out
    assert "mnist: 30 training and 12 test images" in shown
    assert "The digests are the published ones." in shown


def test_a_file_that_was_cut_off_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    with pytest.raises(InvalidInputError, match=r"cannot download t.*-images-idx3-ubyte.gz"):
        download_images("mnist", cache=tmp_path / "cache")
    kept = tmp_path / "cache" / library.DOWNLOADS / "mnist"
    assert [path for path in kept.iterdir() if path.read_bytes() != server.files[path.name]] == []
    complete = {path.name for path in kept.iterdir()}
    server.cut = None
    server.asked.clear()
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")
    assert set(server.asked) == set(server.files) - complete


def test_a_wrong_digest_is_refused_and_fetched_anew(server: Server, tmp_path: Path) -> None:
    name = "t10k-labels-idx1-ubyte.gz"
    good = server.files[name]
    server.files[name] = good[:-1] + b"!"
    with pytest.raises(InvalidInputError, match=rf"cannot download {name}.*hash of downloaded"):
        download_images("mnist", cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / "mnist").exists()
    assert not (tmp_path / "cache" / library.DOWNLOADS / "mnist" / name).exists()
    server.files[name] = good
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")


def test_a_damaged_file_of_an_earlier_call_is_fetched_again(server: Server, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / library.DOWNLOADS / "mnist"
    kept.mkdir(parents=True)
    (kept / "train-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    download_images("mnist", cache=tmp_path / "cache")
    check_loaded(tmp_path / "cache")


def test_an_address_with_another_file_is_passed_over(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files |= {f"bad/{name}": b"something else" for name in [*server.files]}
    remote = tuple(
        RemoteFile(file.name, file.md5, (f"{server.base}bad/", server.base))
        for file in ADDRESSES["mnist"]
    )
    monkeypatch.setitem(ADDRESSES, "mnist", remote)
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
