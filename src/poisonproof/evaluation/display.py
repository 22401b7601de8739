"""The certified-accuracy curve, as a scikit-learn style display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.evaluation.accuracy import Radii, radius_if_correct
from poisonproof.exceptions import GuaranteeError, needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_HELPER_COLOR = "0.45"
_DASHES = (0, (5, 3))


@dataclass(eq=False, kw_only=True)
class CertifiedAccuracyDisplay:
    """Certified accuracy against attack size.

    Made by `from_certificates`; `plot` draws it again elsewhere. Drawing
    several displays on the same axes overlays them.

    Parameters
    ----------
    sizes : ndarray of int, shape (m,)
        Attack sizes 0, 1, ..., m - 1.
    certified_accuracy : ndarray of float, shape (m,)
        Share of rows correct and certified at each size.
    threat : Threat
        The unit of the sizes.
    median_radius : int or None
        Largest size with a certified accuracy of at least one half.
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    line_, clean_line_ : Line2D
        The curve, and the dashed line of the accuracy without an attack.
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> ax = Figure().subplots()
    >>> CertifiedAccuracyDisplay.from_certificates(certificates, [0, 1], ax=ax).ax_.get_xlabel()
    'Attack size (rows inserted or deleted)'
    """

    sizes: NDArray[np.int64]
    certified_accuracy: NDArray[np.float64]
    threat: Threat
    median_radius: int | None
    name: str | None = None

    @property
    def clean_accuracy(self) -> float:
        """Accuracy without an attack."""
        return float(self.certified_accuracy[0])

    @classmethod
    def from_certificates(
        cls,
        certificates: Certificates,
        y_true: ArrayLike,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        **line_options: Any,
    ) -> CertifiedAccuracyDisplay:
        """Compute the curve of a test set and draw it.

        Parameters
        ----------
        certificates : Certificates
            Untargeted certificates of n test rows.
        y_true : array-like of shape (n,)
            True labels, in the form of ``certificates.labels``.
        name : str, optional
            Name in the legend.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.
        **line_options
            Passed to the curve, for example ``color``.
        """
        radii = Radii.of(radius_if_correct(certificates, y_true))
        # One size beyond the largest certificate, where the curve has come down to zero.
        sizes = np.arange(radii.values.max(initial=0) + 2)
        display = cls(
            sizes=sizes,
            certified_accuracy=radii.shares(sizes),
            threat=certificates.threat,
            median_radius=radii.median(),
            name=name,
        )
        return display.plot(ax, **line_options)

    def plot(self, ax: Axes | None = None, **line_options: Any) -> CertifiedAccuracyDisplay:
        """Draw the curve as steps: between two sizes nothing new is proved.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure. Curves on the same axes must count the same
            unit of attack.
        **line_options
            Passed to the curve, for example ``color``.

        Returns
        -------
        CertifiedAccuracyDisplay
            This display, with the fitted attributes set.
        """
        if ax is None:
            with needing("matplotlib", "report"):
                import matplotlib.pyplot as plt
            ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
        _dress(ax, self.threat)
        options: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 2.0}
        options |= {"label": self._label(), **line_options}
        (line,) = ax.plot(self.sizes, 100 * self.certified_accuracy, **options)
        color = line.get_color()
        self.clean_line_: Line2D = ax.axhline(
            100 * self.clean_accuracy, color=color, linestyle=_DASHES, linewidth=1.0
        )
        if self.median_radius is not None:
            height = 100 * float(self.certified_accuracy[self.median_radius])
            ax.plot(self.median_radius, height, "o", color=color, zorder=3, clip_on=False)
        ax.set_xlim(0, max(1.02 * float(self.sizes[-1]), ax.get_xlim()[1]))
        ax.legend(loc="best", frameon=False)
        self.line_: Line2D = line
        self.ax_: Axes = ax
        self.figure_: Figure | Any = ax.figure
        return self

    def _label(self) -> str:
        median = "none" if self.median_radius is None else f"{self.median_radius:,}"
        facts = f"clean {100 * self.clean_accuracy:.1f} %, median {median}"
        return facts if self.name is None else f"{self.name}: {facts}"


def _dress(ax: Axes, threat: Threat) -> None:
    """Give the axes their labels once, and refuse to mix units on them."""
    from matplotlib.ticker import MaxNLocator

    label = f"Attack size ({threat.plural})"
    if ax.lines and ax.get_xlabel() not in ("", label):
        raise GuaranteeError(
            f"These axes show {ax.get_xlabel()!r}, and curves in another unit cannot be compared "
            f"with it. Draw {label!r} on axes of its own."
        )
    if ax.get_xlabel() == label:
        return
    ax.set_xlabel(label)
    ax.set_ylabel("Certified accuracy (%)")
    ax.set_ylim(0, 102)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.axhline(50, color=_HELPER_COLOR, linestyle=":", linewidth=1.0, zorder=0)
    # Named once in the legend, however many curves are overlaid.
    ax.plot([], [], color=_HELPER_COLOR, linestyle=_DASHES, linewidth=1.0, label="without attack")
    ax.plot([], [], "o", color=_HELPER_COLOR, label="median radius")
    ax.grid(axis="y", color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
