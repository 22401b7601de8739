"""Addresses and digests of the published files, and their download with pooch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def download_files(files: Sequence[RemoteFile], folder: Path, progress: Progress) -> None:
    """Fetch the files that `folder` does not hold yet.

    A file appears whole and with its published MD5, or not at all.
    """
    try:
        with (
            OpenFolder(folder, owned=True),  # refuses a folder that others can change
            reporting(progress, len(files), "downloading"),
        ):
            for file in files:
                _fetch(file, folder)
                progress.advance()
    except OSError as error:
        raise InvalidInputError(f"cannot write to {folder}: {error.strerror or error}.") from error


def _fetch(file: RemoteFile, folder: Path) -> None:
    """Try the addresses in turn; pooch keeps no file with another digest."""
    import pooch  # type: ignore[import-untyped]
    import requests

    pooch.get_logger().setLevel("WARNING")
    problems = []
    for base in file.bases:
        try:
            pooch.retrieve(base + file.name, f"md5:{file.md5}", fname=file.name, path=folder)
            return
        except (requests.RequestException, ValueError) as error:
            problems.append(f"{base + file.name}: {error}")
    raise InvalidInputError(
        f"cannot download {file.name} ({'; '.join(problems)}). Run the command again to try once "
        "more, or get the file by hand and use --from."
    )
