"""What a proof takes for granted: the sentences that a statement lists."""

from __future__ import annotations

from sordino.privacy import phrases
from sordino.privacy.in_numbers import rounded_up
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit


def assumptions(
    unit: Unit,
    relation: Relation,
    observer: Observer,
    sampling: Sampling,
    noise: Noise,
    simulated: bool,
    secure: bool,
    survivors: int | None = None,
    sizes_public: bool = True,
    test_public: bool = True,
    delta: float = 0.0,
    population: int | None = None,
    held_out: bool = False,
) -> tuple[str, ...]:
    """What the proof takes for granted, as sentences.

    `survivors`: the fewest honest clients whose shares reach the sum.
    `sizes_public`: how much each client holds enters rates or weights. `test_public`: accuracy is measured and shown.
    `population`: how many units there are; a `delta` of one in that many would let one of them be shown outright.
    `held_out`: the model is tested on private records too.
    """
    unit, relation, observer, sampling, noise = (
        Unit(unit), Relation(relation), Observer(observer), Sampling(sampling), Noise(noise)
    )  # fmt: skip
    noun = phrases.NOUN[unit]
    said = []
    if population is not None and delta * population >= 1:
        said.append(
            f"A delta of {rounded_up(delta)} is accepted, though it is not below 1 in {population:,} {noun}s: such a delta alone "
            f"allows a mechanism that shows one {noun} in full."
        )
    if unit is Unit.CLIENT:
        said.append("All data of one person is at one client; a person at several clients is protected less.")
    else:
        said.append("One person is one record; a person with k records has k times the epsilon and a larger delta.")
    if relation is not Relation.ADD_REMOVE:
        said.append(f"The number of {noun}s is public.")
    if sizes_public:
        said.append("The number of clients, and the number of records that each client holds, are public.")
    if sampling is not Sampling.NONE:
        draw = "by independent coins" if sampling is Sampling.POISSON else "uniformly, without replacement"
        said.append(f"The {noun}s of a round are drawn honestly, {draw}, at the stated rate.")
        said.append(f"The draw stays secret: no observer and no other client learns which {noun}s take part.")
    if noise is Noise.CENTRAL:
        said.append("The server is trusted with the clipped contributions, adds the noise, and releases nothing else.")
    elif noise is Noise.SHARES:
        least = f"at least {survivors} clients" if survivors else "all clients of a cohort"
        said.append("Secure aggregation keeps its promise: the server sees sums only.")
        said.append(f"In each round {least} add their share of the noise, collude with no one, and do not drop out.")
    else:
        unmasked = "; nothing is assumed of secure aggregation" if observer is Observer.SECAGG_SERVER else ""
        said.append(f"Each client adds its own noise before anything leaves it{unmasked}.")
    said.append("Every client runs the stated software: it clips as the plan says and releases no raw value.")
    if not secure:
        said.append("Noise and draws come from a seeded generator: they hide nothing from a person who knows the seed.")
    said.append("The first model and every setting were chosen without the protected data; earlier trials add up.")
    if held_out:
        said.append(
            "Each held-out record passes the model by itself, and the model's own code keeps no record outside its attributes."
        )
    if test_public:
        other = "Apart from held-out records, whose figures carry noise, the" if held_out else "The"
        said.append(f"{other} data that accuracy is measured on is public, or its figures are not released.")
    said.append("Which clients fail, drop out or are slow does not depend on protected data; timing is not covered.")
    if simulated and observer is not Observer.PUBLIC:
        said.append("The observer's view was simulated: no real server was kept from seeing more.")
    return tuple(said)
