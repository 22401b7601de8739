"""Threat models: what an attacker may do, and in which unit a radius counts it.

A radius without a unit means nothing. A `Threat` says what one unit of attack is (a row inserted
or deleted, a sample relabelled, a group changed in any way), how many partitions such a unit can
reach, and what else is taken for granted. It travels with every certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from poisonproof.exceptions import GuaranteeError, InvalidInputError

OBSERVED_LABELS = "the attacker uses only these labels and removes none entirely"
"""Holds back a certificate whose classes were read from y instead of being declared."""

OBSERVED_TYPES = "the attacker has no say in the column types of the training frame"
"""Holds back a certificate whose columns were read by the types of a frame, not by a schema."""

TRUSTED_SAMPLES = "every sample is trusted and only labels are attacked"
"""The assumption of SS-DPA: its features and its partitions are made from all samples."""

UNTOUCHED_MAP = "the features of the members were learned from samples out of the attacker's reach"
"""Holds back a certificate against inserted rows whose members begin with a learned map."""

DECLARED_CATEGORIES = "the categories of the columns were declared and not taken from the rows"
"""Holds back a certificate whose members see categories that the dtypes of a frame declare."""

UNFORGEABLE_GROUPS = "nobody can contribute under an identity that is not theirs"
"""Makes the group, and not the row, the unit of an attack."""

_ACTIONS = {
    "insert_delete": "inserted or deleted",
    "label_flip": "relabelled",
    "replace": "changed in any way",
}
_RECEIVED = ("the time of a row was set by whoever received it, not by its author",)
_UNITS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "row": ("row", "rows", ()),
    "sample": ("sample", "samples", ()),
    "group": ("contributor", "contributors", (UNFORGEABLE_GROUPS,)),
    "entity": (
        "entity",
        "entities",
        (UNFORGEABLE_GROUPS, "whose the accounts are was declared, not found in training rows"),
    ),
    "source": (
        "source",
        "sources",
        ("the sources were declared, and every row came from the source that it names",),
    ),
    "day": ("day", "days", _RECEIVED),
    "block": ("time block", "time blocks", _RECEIVED),
}
"""What units are called, and what is assumed where one of them may be any number of rows."""

THREAT_NAMES = tuple(_ACTIONS)
UNITS = tuple(_UNITS)


def unit_noun(unit: str, size: int = 2) -> str:
    """Return what `size` units are called: ``unit_noun("entity")`` is ``"entities"``."""
    one, many, _ = _UNITS[unit]
    return one if size == 1 else many


@dataclass(frozen=True)
class Threat:
    """One threat model with its unit.

    Parameters
    ----------
    name : {"insert_delete", "label_flip", "replace"}
        What the attacker does to one unit.
    unit : {"row", "sample", "group", "entity", "source", "day", "block"}
        What is counted. A *sample* is a distinct sample with all rows that repeat it; a *group*
        is everything that one contributor handed in, an *entity* what all its accounts did, a
        *source* what came from it, a *day* or *block* what came in during that time.
    touches : int
        Largest number of partitions that one unit of attack can change. Changing a row moves it
        from one partition to another, so a row replaced touches two; a group always stays in its
        partition, so a group replaced touches one.
    assumptions : tuple of str
        Plain sentences that must hold for the certificate to hold.

    Examples
    --------
    >>> threat = make_threat("replace")
    >>> threat.touches, threat.count(1), threat.count(12)
    (2, '1 row changed in any way', '12 rows changed in any way')
    >>> Threat.from_dict(threat.to_dict()) == threat
    True
    """

    name: str
    unit: str = "row"
    touches: int = 1
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, value, allowed in (
            ("threat", self.name, THREAT_NAMES),
            ("unit of a threat", self.unit, UNITS),
        ):
            if value not in allowed:
                raise InvalidInputError(
                    f"The {what} is one of {', '.join(allowed)}. Got {value!r}."
                )
        if isinstance(self.touches, bool) or not isinstance(self.touches, int) or self.touches < 1:
            raise InvalidInputError(
                "touches counts the partitions that one unit of attack changes: an integer, "
                f"at least 1. Got {self.touches!r}."
            )
        if not all(isinstance(sentence, str) for sentence in self.assumptions):
            raise InvalidInputError(f"Assumptions are sentences. Got {self.assumptions!r}.")
        object.__setattr__(self, "assumptions", tuple(self.assumptions))

    @property
    def action(self) -> str:
        """The verb of the attack: what happens to its units."""
        return _ACTIONS[self.name]

    @property
    def by_group(self) -> bool:
        """Whether a unit may be any number of rows: those of a contributor, a source, a day."""
        return bool(_UNITS[self.unit][2])

    def noun(self, size: int = 2) -> str:
        """Return what `size` units are called."""
        return unit_noun(self.unit, size)

    @property
    def singular(self) -> str:
        """One unit of attack in words."""
        return f"{self.noun(1)} {self.action}"

    @property
    def plural(self) -> str:
        """Several units of attack in words."""
        return f"{self.noun()} {self.action}"

    @property
    def code(self) -> str:
        """The short form that `parse_threat` reads: ``"replace"`` or ``"replace/group"``."""
        return self.name if self.unit == "row" else f"{self.name}/{self.unit}"

    def count(self, size: int) -> str:
        """Return an attack of `size` units as a noun: ``"3 rows relabelled"``."""
        return f"{size:,} {self.singular if size == 1 else self.plural}"

    def clause(self, size: int) -> str:
        """Return an attack of `size` units as a clause: ``"3 rows are relabelled"``."""
        return f"{size:,} {self.noun(size)} {'is' if size == 1 else 'are'} {self.action}"

    def assuming(self, *sentences: str) -> Threat:
        """Return this threat with further assumptions, each kept once."""
        return replace(self, assumptions=tuple(dict.fromkeys(self.assumptions + sentences)))

    def __str__(self) -> str:
        words = self.plural
        if self.assumptions:
            words += f", assuming that {'; that '.join(self.assumptions)}"
        return words

    def to_dict(self) -> dict[str, Any]:
        """Return the threat as JSON values."""
        return asdict(self) | {"assumptions": list(self.assumptions)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Threat:
        """Rebuild a threat from `to_dict`; anything missing or unknown raises."""
        expected = {"name", "unit", "touches", "assumptions"}
        if not isinstance(values, Mapping) or set(values) != expected:
            raise InvalidInputError(f"A threat has the keys {sorted(expected)}. Got {values!r}.")
        if not isinstance(values["assumptions"], list | tuple):
            raise InvalidInputError(
                f"Assumptions are a list of sentences. Got {values['assumptions']!r}."
            )
        return cls(values["name"], values["unit"], values["touches"], tuple(values["assumptions"]))


def make_threat(
    name: str, unit: str = "row", touches: int | None = None, assumptions: Iterable[str] = ()
) -> Threat:
    """Build a threat, filling in what follows from its name and unit.

    Parameters
    ----------
    name, unit : str
        See `Threat`.
    touches : int, optional
        Partitions that one unit changes. By default 2 for a row or sample replaced (it leaves one
        partition and enters another) and 1 for everything else.
    assumptions : iterable of str
        Further assumptions, each said once. Groups always carry their own, such as
        `UNFORGEABLE_GROUPS`.

    Examples
    --------
    >>> print(make_threat("replace", unit="group"))
    contributors changed in any way, assuming that nobody can contribute under an identity ...
    """
    if touches is None:
        touches = 2 if name == "replace" and unit in ("row", "sample") else 1
    return Threat(name, unit, touches, tuple(dict.fromkeys(assumptions))).assuming(*_UNITS[unit][2])


def parse_threat(threat: str | Threat) -> Threat:
    """Return a threat from its code; a `Threat` passes unchanged.

    Examples
    --------
    >>> parse_threat("label_flip").plural
    'rows relabelled'
    >>> parse_threat("replace/group").touches
    1
    """
    if isinstance(threat, Threat):
        return threat
    if not isinstance(threat, str):
        raise InvalidInputError(
            f"A threat is one of {', '.join(THREAT_NAMES)} (or a Threat). Got {threat!r}."
        )
    name, slash, unit = threat.partition("/")
    return make_threat(name, unit if slash else "row")


def resolve_threat(
    requested: str | Threat | None, partitioner: Any, assumptions: Iterable[str] = ()
) -> Threat:
    """Return the threat that `partitioner` certifies when `requested` is what the caller wants.

    Parameters
    ----------
    requested : str, Threat or None
        A name such as ``"replace"`` counts in the partitioner's own unit; a code such as
        ``"replace/group"`` or a `Threat` must match that unit. None is the partitioner's default.
    partitioner : Partitioner
        Declares what it certifies, in which unit, and hints for the rest.
    assumptions : iterable of str
        Assumptions that the caller adds.

    Raises
    ------
    GuaranteeError
        If the partitioner does not certify that threat in that unit.
    """
    scheme, certifies, unit = type(partitioner).__name__, partitioner.certifies, partitioner.unit
    if requested is None:
        requested = next(iter(certifies))
    wanted = parse_threat(requested)
    if wanted.name not in certifies:
        raise uncertified(scheme, certifies, wanted.name, partitioner.hint)
    named_unit = isinstance(requested, Threat) or "/" in requested
    if named_unit and wanted.unit != unit:
        raise GuaranteeError(
            f"{scheme} counts its certificates in {unit_noun(unit)}, but {wanted.plural} were "
            f"requested. Use threat={wanted.name!r} to count {unit_noun(unit)}, or use a "
            f"partitioner that counts {wanted.noun()}."
        )
    given = wanted.assumptions if isinstance(requested, Threat) else ()
    return make_threat(wanted.name, unit, certifies[wanted.name], (*given, *assumptions))


def uncertified(
    scheme: str, certifies: Iterable[str], requested: str, hint: Mapping[str, str]
) -> GuaranteeError:
    """Return the error that says what `scheme` certifies and what to use instead."""
    advice = hint.get(requested, "a partitioner that certifies it")
    advice = advice if advice.endswith(".") else f"Use {advice}."
    known = " and ".join(certifies) or "no threat"
    return GuaranteeError(
        f"{scheme} certifies {known} only; threat={requested!r} is not proved. {advice}"
    )
