"""Real attacks that try to break a certificate, with real refits."""

from __future__ import annotations

from poisonproof.attacks.kinds import (
    ATTACK_KINDS,
    AttackKind,
    Backdoor,
    NearInsertions,
    PartitionAware,
    Poison,
    RandomFlips,
    Target,
    TargetedFlips,
    Victim,
)
from poisonproof.attacks.materials import CellMaterial, Material, NumberMaterial, TextMaterial
from poisonproof.attacks.retraining import Trace
from poisonproof.attacks.study import AttackedRow, AttackStudy, KindOutcome, attack_study

__all__ = [
    "ATTACK_KINDS",
    "AttackKind",
    "AttackStudy",
    "AttackedRow",
    "Backdoor",
    "CellMaterial",
    "KindOutcome",
    "Material",
    "NearInsertions",
    "NumberMaterial",
    "PartitionAware",
    "Poison",
    "RandomFlips",
    "Target",
    "TargetedFlips",
    "TextMaterial",
    "Trace",
    "Victim",
    "attack_study",
]
