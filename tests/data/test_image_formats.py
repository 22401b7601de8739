"""Images as they are found on the web: which files are read, and what is said of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from poisonproof.data import ImageColumn, Schema, freeze_schema, read_table
from poisonproof.data.image_files import channels_first, decode_image
from poisonproof.data.proposing import ProposalOptions, propose_images
from poisonproof.data.rows import list_kinds, problem_kind
from poisonproof.exceptions import InvalidInputError

PIXELS = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.webp"])
def test_formats_without_loss_give_the_same_pixels(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    Image.fromarray(PIXELS).save(file, **({"lossless": True} if name == "a.webp" else {}))
    decoded = channels_first(decode_image(file.read_bytes(), name, "L"))
    np.testing.assert_array_equal(decoded, PIXELS)


def test_of_an_animation_the_first_image_is_read(tmp_path: Path) -> None:
    first, second = Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)
    first.save(tmp_path / "a.webp", save_all=True, append_images=[second], lossless=True)
    decoded = decode_image((tmp_path / "a.webp").read_bytes(), "a.webp", "L")
    np.testing.assert_array_equal(channels_first(decoded), PIXELS)


def scraped(folder: Path) -> Path:
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(PIXELS + np.uint8(number)).save(folder / label / f"{number}.png")
        for number in range(2):
            deep = PIXELS.astype(np.uint16) * 257
            Image.fromarray(deep).save(folder / label / f"deep{number}.png")
    whole = (folder / "cat" / "0.png").read_bytes()
    (folder / "dog" / "cut.png").write_bytes(whole[:-20])
    (folder / "dog" / "page.png").write_text("<html>not found</html>")
    return folder


def test_the_reasons_for_leaving_files_out_are_counted(tmp_path: Path) -> None:
    column = ImageColumn(name="image", height=8, width=8, gray=True)
    schema = Schema(kind="images", columns=(column,), label="folder", classes=("cat", "dog"))
    rows = read_table(scraped(tmp_path / "found"), freeze_schema(schema))
    assert (len(rows), len(rows.problems)) == (6, 6)
    kinds = Counter(problem_kind(problem.reason) for problem in rows.problems)
    assert list_kinds(dict(kinds.most_common())).startswith("4 x has pixels of more than 8 bits")
    assert "1 x cannot be decoded" in list_kinds(kinds)


def test_a_proposal_says_how_many_images_it_could_not_read(tmp_path: Path) -> None:
    proposal = propose_images(
        scraped(tmp_path / "found"), ProposalOptions(label="folder"), None, "pixels"
    )
    assert (proposal.n_rows, proposal.n_looked_at) == (12, 12)
    assert proposal.notes["image"] == "8 x 8 gray (6 files)"
    assert sum(proposal.refused.values()) == 6


def test_a_folder_without_any_image_says_why(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(InvalidInputError, match=r"None of the 2 files .* mostly: is not a PNG"):
        propose_images(tmp_path, ProposalOptions(label="folder"), None, "pixels")
