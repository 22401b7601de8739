"""Where each dataset is published, and the digests of the published files."""

from __future__ import annotations

import hashlib
import http
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from poisonproof.exceptions import InvalidInputError
from poisonproof.files import OpenFolder
from poisonproof.progress import Progress, reporting


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    Attributes
    ----------
    name : str
        Its name.
    md5 : str
        Its published MD5. It finds damage and mix-ups; what was imported is checked on its own.
    bases : tuple of str
        Addresses of folders that hold it, in the order in which they are tried.
    """

    name: str
    md5: str
    bases: tuple[str, ...]


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/",)
_GTSRB = ("https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/",)

ADDRESSES: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": (
        RemoteFile("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", _MNIST),
        RemoteFile("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", _MNIST),
        RemoteFile("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", _MNIST),
        RemoteFile("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", _MNIST),
    ),
    "fashion-mnist": (
        RemoteFile("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", _FASHION),
        RemoteFile("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", _FASHION),
        RemoteFile("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", _FASHION),
        RemoteFile("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", _FASHION),
    ),
    "cifar10": (RemoteFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", _CIFAR),),
    "gtsrb": (
        RemoteFile("GTSRB_Final_Training_Images.zip", "f33fd80ac59bff73c82d25ab499e03a3", _GTSRB),
        RemoteFile("GTSRB_Final_Test_Images.zip", "c7e4e6327067d32654124b0fe9e82185", _GTSRB),
        RemoteFile("GTSRB_Final_Test_GT.zip", "fe31e9c9270bbcd7b84b7f21a9d9d9e5", _GTSRB),
    ),
}


# Fetching published files: resumed where it stopped, and kept only with the published digest.

TIMEOUT_SECONDS = 30
LARGEST_FILE = 2**30  # the largest published file has 0.26 GiB
CHUNK = 2**16


class _CutOffError(Exception):
    """The connection ended before the file did."""


_NETWORK = (
    ConnectionError,
    TimeoutError,
    http.client.HTTPException,
    ssl.SSLError,
    urllib.error.URLError,
    _CutOffError,
)


def download_files(files: Sequence[RemoteFile], folder: Path, progress: Progress) -> None:
    """Fetch the files that `folder` does not hold yet.

    A file grows as ``<name>.part``; a later call goes on where an earlier one stopped, if the
    server can, and begins again if not. With the published MD5 it gets its name, with another it
    is removed.
    """
    try:
        with OpenFolder(folder, owned=True) as opened:
            for file in files:
                if file.name not in opened.names():
                    _fetch(file, opened, progress)
    except OSError as error:
        raise InvalidInputError(f"cannot write to {folder}: {error.strerror or error}.") from error


def _fetch(file: RemoteFile, folder: OpenFolder, progress: Progress) -> None:
    """Try the addresses in turn; the first that delivers decides."""
    part, problems = f"{file.name}.part", []
    for base in file.bases:
        try:
            _receive(base + file.name, folder, part, progress)
            break
        except _NETWORK as error:
            problems.append(f"{base + file.name}: {getattr(error, 'reason', None) or error}")
    else:
        raise InvalidInputError(
            f"cannot download {file.name} ({'; '.join(problems)}). Run the command again to go on, "
            "or get the file by hand and use --from."
        )
    with os.fdopen(folder.open(part), "rb") as whole:
        digest = hashlib.file_digest(whole, lambda: hashlib.md5(usedforsecurity=False))
    found = digest.hexdigest()
    if found != file.md5:
        folder.remove(part)
        raise InvalidInputError(
            f"{base + file.name} has MD5 {found}, published is {file.md5}; it was thrown away."
        )
    folder.rename(part, file.name)


def _receive(url: str, folder: OpenFolder, part: str, progress: Progress) -> None:
    have = folder.stat(part).st_size if part in folder.names() else 0
    request = urllib.request.Request(url)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # there was nothing left to fetch; the digest decides
        raise
    with answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT and answer.headers.get(
            "Content-Range", ""
        ).startswith(f"bytes {have}-")
        have = have if resumed else 0
        promised = answer.headers.get("Content-Length")
        total = have + int(promised) if promised and promised.isdecimal() else None
        with reporting(progress, total or 0, part.removesuffix(".part")):
            progress.advance(have)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(folder.open(part, flags), "ab") as target:
                target.truncate(have)
                size = _copy(answer, target, have, progress)
                target.flush()
                os.fsync(target.fileno())
    if total is not None and size < total:
        raise _CutOffError(f"the connection ended after {size:,} of {total:,} bytes")


def _copy(
    source: http.client.HTTPResponse, target: BufferedWriter, size: int, progress: Progress
) -> int:
    while chunk := source.read(CHUNK):
        size += len(chunk)
        if size > LARGEST_FILE:
            raise InvalidInputError(f"{target.name} would pass {LARGEST_FILE:,} bytes.")
        target.write(chunk)
        progress.advance(len(chunk))
    return size
