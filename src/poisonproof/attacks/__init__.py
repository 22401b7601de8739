"""Real attacks that try to break a certificate, with real refits."""

from poisonproof.attacks.campaign import Campaign, Scenario, Trial, standard_scenarios
from poisonproof.attacks.kinds import (
    ATTACK_KINDS,
    AttackKind,
    Backdoor,
    NearInsertions,
    PartitionAware,
    RandomFlips,
    TargetedFlips,
)
from poisonproof.attacks.poison import Poison, Target, Victim
from poisonproof.attacks.random_rows import ATTACK_THREATS, Attack, RowAttacker
from poisonproof.attacks.search import Trace, votes_to_turn
from poisonproof.attacks.study import AttackedRow, AttackStudy, KindOutcome, attack_study
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
    "Damage",
    "KindOutcome",
    "NearInsertions",
    "PartitionAware",
    "Poison",
    "RandomFlips",
    "Reference",
    "RowAttacker",
    "Scenario",
    "Target",
    "TargetedFlips",
    "Trace",
    "Trial",
    "Victim",
    "attack_study",
    "standard_scenarios",
    "votes_to_turn",
]
