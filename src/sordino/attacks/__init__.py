"""Attacks on what was trained. `membership` asks whether a record was used, `inversion` what it looks like; one file per attack.

    table       names, papers and what each attack knows; imports nothing heavy
    protocol    who is attacked and who judges: balanced, disjoint, by example
    target      what is attacked: a model with its plan and data
    game        what an attacker may reach, and nothing else
    metrics     scores to AUC, true positives at few false ones, success rate, with intervals
    ceilings    what a proven (epsilon, delta) allows any attack
    runs        a run folder in, a table out

`shadows` trains the attacker's own models and `replay` puts the attacker into the run, both by the run's own plan.
"""
