"""Real attacks that try to break a certificate, with real refits."""

from poisonproof.attacks.campaign import Campaign, Scenario, Trial, standard_scenarios
from poisonproof.attacks.random_rows import ATTACK_THREATS, Attack, RowAttacker
from poisonproof.attacks.trials import Damage, Reference

__all__ = [
    "ATTACK_THREATS",
    "Attack",
    "Campaign",
    "Damage",
    "Reference",
    "RowAttacker",
    "Scenario",
    "Trial",
    "standard_scenarios",
]
