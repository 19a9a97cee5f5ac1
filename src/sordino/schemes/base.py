"""A scheme is one row of the table in docs/guarantees.md: what one unit is exposed to, and what a round of it does.

The simulation, the planner, the Flower server and the Flower holder ask the same object, so that the rate that draws is
the rate that is charged, and the noise that is asked for is the noise that is accounted. `scheme_for(plan)` is the only
place that decides between schemes.

A scheme is made from a plan alone. Public sizes come in as an argument; private data never does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sordino.errors import BadInput
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events
from sordino.privacy.filter import Filter
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling
from sordino.schemes import calibrate
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.plan import Plan
    from sordino.rules.base import Rule
    from sordino.schemes.request import Request, Work
    from sordino.schemes.round import Context, Round

RECORD_CANARIES = ("mislabelled", "random")
Exposure = Callable[[float], events.Event]  # multiplier of a round -> what it exposes the most exposed unit to


class Scheme(ABC):
    """How one unit is protected, from the plan's settings to the work of clients."""

    name: ClassVar[str]  # also names the defaults that suit it
    noise: Noise = Noise.CENTRAL  # where the noise is drawn
    secret_cohort: bool = False  # amplification rests on the observer not knowing who takes part
    min_cohort: int = 0  # a cohort smaller than this is not called together
    record_canaries: bool = False  # canaries may be records, and not only directions
    scaled_steps: bool = True  # steps may go along mean / bound
    laplace_by_clients: bool = False  # clients draw Laplace noise themselves, each its own in full
    whole_updates: bool = False  # what a client sends is one update that a heuristic defence may change
    keeps_personal: bool = False  # clients keep a model, or layers, of their own that never leave
    uses_sizes: bool = True  # rates, weights or denominators are functions of the clients' sizes

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @classmethod
    def as_published(cls) -> type[Scheme]:
        """The scheme of the published variant, where that is another one."""
        return cls

    # ---- which plans it covers -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a plan that no proof covers, rather than warn about it."""
        plan = self.plan
        if plan.sampling == Sampling.NONE and plan.cohort_size != plan.clients:
            raise BadInput(
                f"sampling none means that all {plan.clients} clients take part, so cohort {plan.cohort_size} does not fit; "
                "leave cohort out, or use poisson."
            )
        if plan.survivors is not None and plan.observer != Observer.SECAGG_SERVER:
            raise BadInput(
                f"survivors {plan.survivors} is among how many clients the noise is divided, and for observer {plan.observer} "
                "it is not; leave it out, or use observer secagg-server."
            )
        if plan.survivors is not None and plan.survivors > plan.cohort_size:
            raise BadInput(
                f"survivors {plan.survivors} is more than the {plan.cohort_size} clients of a cohort; "
                f"ask for at most {plan.cohort_size}."
            )
        if plan.canaries and plan.canary in RECORD_CANARIES and not self.record_canaries:
            raise BadInput(f"canaries of kind {plan.canary} are records, for the example unit pooled; use turning.")
        if plan.steps == "scaled" and not self.scaled_steps:
            raise BadInput(
                f"steps of method {plan.method} follow no bound of the plan, so steps scaled has no use; use mean."
            )
        if plan.mechanism == "laplace" and self.noise != Noise.CENTRAL and not self.laplace_by_clients:
            raise BadInput(
                f"Laplace noise is drawn by the server, on the sum, which does not convince observer {plan.observer}; "
                "use observer public, or mechanism gaussian."
            )
        if plan.defence is not None and not self.whole_updates:
            raise BadInput(
                f"defence {plan.defence} changes the whole update of a client, and here every record's gradient is clipped by "
                "itself; use unit client, or method fedavg."
            )
        if plan.personal is not None and not self.whole_updates:
            raise BadInput(
                f"personal {plan.personal!r} keeps layers out of a client's update, and here every record's gradient is clipped by "
                "itself; use unit client, or method fedavg."
            )
        self._check_metanet()
        self._check_relation()

    def check_prelude(self) -> None:
        """Refuse a preparation whose statistics no proof covers together with the rounds."""
        if self.plan.mechanism != "gaussian":
            raise BadInput(
                f"a preparation releases statistics with Gaussian noise, and mechanism {self.plan.mechanism} cannot be composed "
                "with it here; use mechanism gaussian."
            )

    def check_held_out(self) -> None:
        """Refuse a held-out share whose figures no proof covers together with the rounds."""
        plan = self.plan
        if plan.mechanism != "gaussian":
            raise BadInput(
                f"figures of a held-out share are released with Gaussian noise, and mechanism {plan.mechanism} cannot be "
                "composed with it here; use mechanism gaussian, or a public test file."
            )
        if self.keeps_personal:
            raise BadInput(
                f"test {plan.test} tests the shared model, and here each client uses a model of its own; give a public test file."
            )

    def _check_metanet(self) -> None:
        if self.plan.metanet is not None:
            raise BadInput(
                f"method {self.plan.method} has no controllers that metanet {self.plan.metanet!r} could be for; leave it out."
            )

    def _check_relation(self) -> None:
        """The numbers of clients and of records enter rates and denominators: they are public, and add-remove hides them."""
        plan = self.plan
        if plan.relation == Relation.ADD_REMOVE:
            seen = f"observer {plan.observer} sees who takes part and " if plan.observer != Observer.PUBLIC else ""
            raise BadInput(
                f"{seen}the number of {plan.unit}s is public (rates and denominators use it), while relation add-remove "
                "would hide it; leave relation out (zero-out), or use replace-one."
            )

    # ---- who may take part -------------------------------------------------------------------------------------------------

    @property
    def separation(self) -> int:
        """A client takes part in one of so many consecutive rounds at most."""
        return 1

    def turn(self, t: int) -> np.ndarray | None:
        """The clients that may take part in this round, in increasing order; None: all."""
        return None

    @property
    def turn_rate(self) -> float:
        """The coin of a client in its turn, where clients take turns."""
        return self.plan.cohort_size / self.plan.clients

    # ---- what one unit is exposed to ---------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """The relation that is proven."""
        return self.plan.relation if self.plan.relation is not None else Relation.ZERO_OUT

    @abstractmethod
    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        """What a round exposes the most exposed unit to, as a function of its multiplier.

        `multipliers` are those of all the rounds that this unit takes part in: the whole run is composed, and the unit
        that is charged most over the whole run is taken.
        """

    def exposures(self, rounds: int) -> int:
        """In how many of the rounds the most exposed unit takes part."""
        return rounds

    @abstractmethod
    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        """The sampling that the proof uses, and its rate; none where the observer sees who takes part."""

    def claim_inputs(self, sizes: PublicSizes) -> tuple[float | None, int | None]:
        """The sampling rate and the number of releases that a paper's accountant is given; None: those of its clients."""
        return None, None

    def steps(self, sizes: PublicSizes) -> int:
        """Releases that are charged in each round."""
        return 1

    @property
    def round_epochs(self) -> int:
        """Local epochs that a round counts for in a schedule; a round without local training counts as one."""
        return 1

    def settle(self, sizes: PublicSizes) -> Terms:
        """Find the multiplier that the budget asks for, or the rounds that it allows."""
        return calibrate.settle(self.plan, sizes)

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def units(self, sizes: PublicSizes) -> float:
        """Units expected in a round; sums of answers are divided by it."""

    def contributions(self, sizes: PublicSizes) -> float:
        """How many contributions share the noise of one release: the noise on their mean is z sqrt(d) over this, in bounds."""
        return self.units(sizes)

    @abstractmethod
    def denominator(self, sizes: PublicSizes, cohort: np.ndarray) -> float:
        """What a sum of contributions is divided by: public, and never the realised cohort where privacy is claimed."""

    @property
    def survivors(self) -> int:
        """Among how many clients the noise is divided."""
        return 1

    @property
    def divides_noise(self) -> bool:
        """Whether clients add a share of the noise each."""
        return self.noise == Noise.SHARES and self.plan.private

    def capacity(self, sizes: PublicSizes) -> int:
        """The most units whose contributions one sum may hold."""
        return max(2, self.plan.clients)

    @property
    def noise_room(self) -> float:
        """How much larger than noise of the multiplier the numbers are that a round works with."""
        return 1.0

    def noise_surplus(self, cohort: int) -> float:
        """How much larger than needed the noise on the sum is, where each client adds its own."""
        return 1.0 if self.noise == Noise.CENTRAL else float(np.sqrt(max(cohort, 1) / self.survivors))

    @property
    def server_lr(self) -> float:
        """The server's step along the released mean."""
        return self.plan.server_lr

    @property
    def cohort_seen(self) -> bool:
        """Whether the observer sees who takes part, so that nothing is gained from sampling clients."""
        return False

    def release_rate(self, terms: Terms) -> float:
        """The probability with which the most exposed unit takes part in a release, as far as the observer knows."""
        return self.proof_sampling(terms.public)[1] or 1.0

    @property
    def cohort_visible(self) -> bool:
        """Whether the size of a cohort may be told."""
        return not self.secret_cohort or self.plan.sampling != Sampling.POISSON

    @property
    def messages_visible(self) -> bool:
        """Whether there are messages of single clients that a server could read."""
        return self.plan.observer != Observer.SECAGG_SERVER

    def units_held(self, examples: int) -> int:
        """How many units a client of that many examples contributes at most."""
        return 1

    report_length: int = 0  # numbers that a client adds to a secure sum besides its contribution

    def filter_of(self, terms: Terms, client: int) -> Filter:
        """The filter of one client's own ledger: what it is in for, and no more."""
        return terms.budget_filter()

    gradient_sign: int = 1  # of what is sent: -1 where clients send gradients, and the model goes down

    # ---- what clients do, and how a round steps ----------------------------------------------------------------------------

    @abstractmethod
    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        """What clients do."""

    @abstractmethod
    def rounds(self, context: Context) -> Round:
        """How rounds are run."""

    @abstractmethod
    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        """What a data holder will do for this request: its own copy of it, or `NotPrivate` (see `schemes.expected`)."""
