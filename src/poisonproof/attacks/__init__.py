"""Real attacks that try to break a certificate, with real refits."""

from __future__ import annotations

from poisonproof.attacks.campaign import (
    ATTACK_THREATS,
    Attack,
    Campaign,
    Damage,
    Reference,
    RowAttacker,
    Scenario,
    Trial,
    standard_scenarios,
)
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
from poisonproof.attacks.materials import CellRows, Material, NumberRows, TextRows
from poisonproof.attacks.retraining import Trace, votes_to_turn
from poisonproof.attacks.study import AttackedRow, AttackStudy, KindOutcome, attack_study

__all__ = [
    "ATTACK_KINDS",
    "ATTACK_THREATS",
    "Attack",
    "AttackKind",
    "AttackStudy",
    "AttackedRow",
    "Backdoor",
    "Campaign",
    "CellRows",
    "Damage",
    "KindOutcome",
    "Material",
    "NearInsertions",
    "NumberRows",
    "PartitionAware",
    "Poison",
    "RandomFlips",
    "Reference",
    "RowAttacker",
    "Scenario",
    "Target",
    "TargetedFlips",
    "TextRows",
    "Trace",
    "Trial",
    "Victim",
    "attack_study",
    "standard_scenarios",
    "votes_to_turn",
]
