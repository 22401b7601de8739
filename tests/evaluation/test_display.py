"""The curve shows the numbers, and refuses to mix units."""

from __future__ import annotations

import builtins
import sys

import numpy as np
import pytest

from poisonproof.certificates import certify_votes
from poisonproof.evaluation import CertifiedAccuracyDisplay, certified_accuracy
from poisonproof.exceptions import GuaranteeError, MissingExtraError, UnknownLabelError

pytest.importorskip("matplotlib")
VOTES = np.array([[0] * 9, [0] * 6 + [1] * 3, [1] * 9, [1] * 5 + [0] * 4, [0] * 8 + [-1]])
Y = np.array([0, 0, 1, 1, 1])


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_the_curve_is_the_certified_accuracy_in_steps_down_to_zero(ax):
    certificates = certify_votes(VOTES, 2)
    display = CertifiedAccuracyDisplay.from_certificates(certificates, Y, name="trees", ax=ax)
    sizes, heights = display.line_.get_data()
    assert sizes.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(heights, 100 * certified_accuracy(certificates, Y, range(6)))
    assert heights[-1] == 0
    assert display.line_.get_drawstyle() == "steps-post"
    assert display.clean_line_.get_ydata()[0] == pytest.approx(80)
    assert display.clean_line_.is_dashed()
    assert ax.get_xlabel() == "Attack size (rows inserted or deleted)"
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "trees: clean 80.0 %, median 1" in texts
    assert display.ax_ is ax
    assert display.figure_ is ax.figure


def test_several_curves_share_axes_that_are_wide_enough_for_all(ax):
    for k in (3, 41, 9):
        certificates = certify_votes(np.zeros((2, k), int), 2)
        CertifiedAccuracyDisplay.from_certificates(certificates, [0, 0], name=f"{k}", ax=ax)
    assert ax.get_xlim()[1] >= 21
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sum("median radius" in text for text in texts) == 1
    assert [text.split(":")[0] for text in texts if ":" in text] == ["3", "41", "9"]
    colors = {line.get_color() for line in ax.lines if line.get_drawstyle() == "steps-post"}
    assert len(colors) == 3


def test_curves_in_different_units_do_not_share_axes(ax):
    by_row = certify_votes(VOTES, 2)
    by_group = certify_votes(VOTES, 2, "replace/group")
    CertifiedAccuracyDisplay.from_certificates(by_row, Y, ax=ax)
    with pytest.raises(GuaranteeError, match="contributors changed in any way"):
        CertifiedAccuracyDisplay.from_certificates(by_group, Y, ax=ax)


def test_a_model_that_is_always_wrong_can_be_drawn(ax):
    display = CertifiedAccuracyDisplay.from_certificates(
        certify_votes(np.zeros((3, 9), int), 2), [1, 1, 1], ax=ax
    )
    assert display.median_radius is None
    assert display.clean_accuracy == 0.0


def test_options_reach_the_line_and_a_display_is_drawn_again_elsewhere(ax):
    display = CertifiedAccuracyDisplay.from_certificates(certify_votes(VOTES, 2), Y, color="k")
    assert display.line_.get_color() == "k"
    assert display.plot(ax, color="r") is display
    assert display.line_.get_color() == "r"
    assert display.ax_ is ax


def test_the_picture_can_be_saved(tmp_path):
    display = CertifiedAccuracyDisplay.from_certificates(certify_votes(VOTES, 2), Y)
    display.figure_.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_labels_that_do_not_fit_are_refused_before_anything_is_drawn(ax):
    with pytest.raises(UnknownLabelError):
        CertifiedAccuracyDisplay.from_certificates(certify_votes(VOTES, 2), [0, 0, 0, 0, 5], ax=ax)
    assert not ax.lines


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    real_import = builtins.__import__

    def bare(name, *args, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", bare)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    with pytest.raises(MissingExtraError, match=r"poisonproof\[report\]"):
        CertifiedAccuracyDisplay.from_certificates(certify_votes(VOTES, 2), Y)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
