"""The parts of refinement: losses, strong views, neighbours, heads, steps of Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from patterns import CLUSTERS, FEATURES, make_patterns

from poisonproof.networks.augmentation import Stream
from poisonproof.networks.graphs import FlatModule
from poisonproof_research.networks.refine_stages import (
    STRONG,
    PretrainAdam,
    agreement,
    fit_head,
    neighbour_table,
    self_labels,
    strong_views,
)


def test_agreement_is_the_chance_of_the_same_cluster_less_the_entropy_of_sizes():
    torch.manual_seed(0)
    first, second = torch.randn(6, 3), torch.randn(6, 3)
    p, q = torch.softmax(first, 1), torch.softmax(second, 1)
    same = -torch.log((p * q).sum(1)).mean()
    sizes = p.mean(0)
    entropy = -(sizes * sizes.log()).sum()
    loss, share = agreement(first, second, 5.0)
    assert loss.item() == pytest.approx((same - 5 * entropy).item(), abs=1e-5)
    assert share.item() == (first.argmax(1) == second.argmax(1)).float().mean().item()


def test_only_sure_images_teach_and_every_cluster_counts_alike():
    weak = torch.tensor([[9.0, 0, 0], [9, 0, 0], [9, 0, 0], [0, 9, 0], [0.5, 0, 0]])
    strong = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    wrong = -torch.log_softmax(strong, 1)
    expected = (wrong[:3, 0].mean() + wrong[3, 1]) / 2
    loss, share = self_labels(weak, strong, 0.9, 0.0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert share.item() == pytest.approx(0.8)


def test_a_cluster_that_is_sure_of_nothing_is_taught_by_its_surer_images():
    weak = torch.tensor([[9.0, 0], [9, 0], [0, 0.2], [0, 1.0]])
    strong = torch.zeros(4, 2, requires_grad=True)
    loss, share = self_labels(weak, strong, 0.9, 0.0)
    (gradient,) = torch.autograd.grad(loss, strong)
    assert gradient[:, 1].tolist() == pytest.approx([0.125, 0.125, 0.0, -0.25])
    assert share.item() == 0.75


def test_strong_views_are_pixels_differ_and_are_mirrored_only_if_allowed():
    images = torch.from_numpy(make_patterns(64)[0])
    stream = Stream(0, torch.zeros(1, dtype=torch.int64))
    draw = tuple(stream.words(p, 0, torch.arange(64))[0] for p in STRONG[0])
    views = strong_views(images, False, draw)
    assert views.shape == images.shape
    assert 0 <= views.min() <= views.max() <= 1
    assert (views != images / 255.0).flatten(1).any(dim=1).all()
    mirrored = (strong_views(images, True, draw) != views).flatten(1).any(dim=1)
    assert 16 < int(mirrored.sum()) < 48
    gray = strong_views(images[:, :1], False, draw)
    assert gray.shape == (64, 1, 8, 8)


def test_without_a_draw_a_strong_view_is_the_image_with_a_hole():
    images = torch.from_numpy(make_patterns(4)[0])
    most = torch.full((4, 4), (1 << 32) - 1, dtype=torch.int64)  # no change is chosen
    views = strong_views(images, True, (most,) * 4)
    same = torch.isclose(views, images / 255.0, atol=1e-5).all(dim=1)
    assert same[:, :5, :5].all()
    assert (views[:, :, 7, 7] == 0.5).all()


def test_an_image_is_not_its_own_neighbour():
    X = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    X[50:60] = X[10]  # repeats crowd each other out of their own lists
    table = neighbour_table(X, 5, "cpu")
    assert table.shape == (300, 5)
    assert (table != np.arange(300)[:, None]).all()


def test_the_spectral_start_wins_on_clear_clusters_and_heads_are_not_steep():
    rng = np.random.default_rng(0)
    kinds = np.arange(200) % 4
    X = (3.0 * np.eye(8)[kinds] + rng.normal(0, 0.2, (200, 8))).astype(np.float32)
    head = fit_head(X, neighbour_table(X, 8, "cpu"), CLUSTERS, FEATURES)
    logits = X @ head.weight.T + head.bias
    assert len(set(zip(kinds.tolist(), logits.argmax(1).tolist(), strict=True))) == 4
    assert head.losses[head.chosen] == min(head.losses)
    centred = logits - logits.mean(axis=1, keepdims=True)
    assert np.sqrt((centred**2).mean()) <= 2.0 + 1e-3


def test_steps_of_adam_are_those_of_torch():
    stage = CLUSTERS.stage(FEATURES, "agreement")
    ours, theirs = (torch.nn.Linear(3, 2) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    flat = FlatModule(ours, alignment=1)
    rule = PretrainAdam(stage, flat.parameters)
    reference = torch.optim.AdamW(
        theirs.parameters(), stage.learning_rate, (0.9, 0.999), weight_decay=stage.weight_decay
    )
    x = torch.randn(5, 3)
    for step in range(4):
        flat.collect((ours(x) ** 2).sum())
        size = rule.step_size(stage.learning_rate, step)
        # Decay follows the rate itself; Adam's corrections differ from it in the first steps only.
        with torch.no_grad():
            rule.step(flat.parameters, flat.gradients, torch.tensor(size))
        reference.zero_grad()
        (theirs(x) ** 2).sum().backward()
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-4)
