"""A packed dataset is the dataset, or it is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from builders import write_gtsrb

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import import_images
from poisonproof_research.reproduction import data_from_cache, data_from_pack, write_pack
from poisonproof_research.reproduction.row_data import decode_pixels, encode_pixels


@pytest.mark.parametrize("shape", [(4, 9, 7), (4, 3, 8, 5), (0, 3, 8, 5)])
def test_pixels_survive_their_coding(shape):
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(decode_pixels(encode_pixels(images)), images)


def test_a_pack_holds_the_same_data_in_chunks_below_the_limit(tmp_path, data):
    paths = write_pack(data, tmp_path, largest=3000)
    assert len(paths) > 3
    assert max(path.stat().st_size for path in paths[:-1]) < 3000 + 2000
    back = data_from_pack(tmp_path)
    for field in dataclasses.fields(data):
        assert np.array_equal(getattr(back, field.name), getattr(data, field.name))
    assert back.digest == data.digest


def test_a_dataset_from_the_cache_packs_to_the_same_digest(cli, tmp_path):
    source = write_gtsrb(tmp_path / "files")
    import_images("gtsrb", source, cache=tmp_path / "cache", published=False)
    packed = cli("data", "gtsrb", "--cache", tmp_path / "cache", "--pack", tmp_path / "pack")
    assert packed.code == 0
    cached = data_from_cache("gtsrb", tmp_path / "cache")
    back = data_from_pack(tmp_path / "pack")
    assert back.digest == cached.digest
    assert np.array_equal(back.ranks, cached.ranks)


def _remove(folder):
    (folder / "shapes-001.npz").unlink()


def _cut(folder):
    path = folder / "shapes-001.npz"
    path.write_bytes(path.read_bytes()[:-20])


def _flip(folder):
    path = folder / "shapes-001.npz"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def _swap(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    first, second = manifest["chunks"][:2]
    for key in ("start", "stop"):
        first[key], second[key] = second[key], first[key]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _empty(folder):
    (folder / "manifest.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_remove, "lacks the chunks shapes-001.npz"),
        (_cut, "shapes-001.npz is damaged"),
        (_flip, "shapes-001.npz is damaged"),
        (_swap, "is not what was packed"),
        (_empty, "is not a poisonproof data pack"),
    ],
)
def test_a_damaged_pack_is_refused_by_name(pack, damage, words):
    damage(pack)
    with pytest.raises(InvalidInputError, match=words):
        data_from_pack(pack)
