"""Counter-based draws: the published generator, addressed and independent."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from poisonproof.networks.augmentation import Purpose, Stream, below, philox, uniform

# Known answers of Philox-4x32-10 published with Random123.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_numbers(counter, key, expected):
    words = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert " ".join(f"{word:08x}" for word in words.tolist()) == expected


def test_a_lane_draws_the_same_wherever_it_is():
    rows = torch.arange(81)
    together = Stream(5, torch.tensor([9, 4, 7])).words(Purpose.CROP, 3, rows)
    alone = Stream(5, torch.tensor([4])).words(Purpose.CROP, 3, rows)
    assert torch.equal(together[1], alone[0])


def test_a_row_draws_the_same_whatever_the_other_rows_are():
    stream = Stream(5, torch.tensor([4]))
    assert torch.equal(
        stream.words(Purpose.CROP, 3, torch.tensor([17]))[0, 0],
        stream.words(Purpose.CROP, 3, torch.arange(40))[0, 17],
    )


def test_several_epochs_at_once_are_the_epochs_one_by_one():
    stream = Stream(2**40 + 3, torch.tensor([4, 8]))
    rows = torch.arange(10)
    block = stream.words(Purpose.SHUFFLE, torch.tensor([0, 6])[:, None, None], rows)
    assert torch.equal(block[1], stream.words(Purpose.SHUFFLE, 6, rows))


@pytest.mark.parametrize(
    "other",
    [
        (Stream(6, torch.tensor([4])), Purpose.CROP, 3),
        (Stream(5 + 2**32, torch.tensor([4])), Purpose.CROP, 3),
        (Stream(5, torch.tensor([5])), Purpose.CROP, 3),
        (Stream(5, torch.tensor([4])), Purpose.CUTOUT, 3),
        (Stream(5, torch.tensor([4])), Purpose.CROP, 4),
    ],
)
def test_seed_partition_purpose_and_epoch_all_address_other_numbers(other):
    rows = torch.arange(100)
    stream, purpose, epoch = other
    ours = Stream(5, torch.tensor([4])).words(Purpose.CROP, 3, rows)
    assert (ours != stream.words(purpose, epoch, rows)).float().mean() > 0.99


def test_bounds_are_kept_and_met():
    words = Stream(0, torch.tensor([0])).values(Purpose.INITIAL, 100_000)
    assert set(below(words, 9).unique().tolist()) == set(range(9))
    values = uniform(words)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    assert abs(values.mean().item() - 0.5) < 0.01
