"""Real attacks that try to break a certificate, with real refits."""

from poisonproof.attacks.campaign import Campaign, Scenario, Trial, standard_scenarios
from poisonproof.attacks.cells import CellRows
from poisonproof.attacks.kinds import (
    ATTACK_KINDS,
    AttackKind,
    Backdoor,
    NearInsertions,
    PartitionAware,
    RandomFlips,
    TargetedFlips,
)
from poisonproof.attacks.materials import Material, NumberRows
from poisonproof.attacks.outcomes import AttackedRow, AttackStudy, KindOutcome
from poisonproof.attacks.poison import Poison, Target, Victim
from poisonproof.attacks.random_rows import ATTACK_THREATS, Attack, RowAttacker
from poisonproof.attacks.search import Trace, votes_to_turn
from poisonproof.attacks.study import attack_study
from poisonproof.attacks.texts import TextRows
from poisonproof.attacks.trials import Damage, Reference

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
