"""Settings that nobody gave, from public facts: how many records and clients, shapes, types, classes, epsilon, unit, observer.

    plan, choices = recipes.resolve({"data": "./hospitals", "epsilon": 4.0}, facts)

Nothing here looks at a record or knows the name of a data set. Each choice has a reason in one line, which `sordino train`
prints. What is given is taken as it is, and changes no other setting, except where the reason of the other says so (a rate suits
an optimiser). `docs/regret.md` measures what these choices lose against settings that were searched on the test set.
"""

from sordino.recipes.choice import Choice
from sordino.recipes.completing import complete, network_of, resolve
from sordino.recipes.facts import PublicFacts
from sordino.recipes.networks import model_for, parameters
from sordino.recipes.without_privacy import twin_of

__all__ = ["Choice", "PublicFacts", "complete", "model_for", "network_of", "parameters", "resolve", "twin_of"]
