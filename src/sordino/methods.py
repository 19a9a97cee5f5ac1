"""The table of methods: a published name, and what stands behind it.

A method (`sordino.method_spec.Method`) is a rule, a mechanism and defaults under the name of its paper. To add one, write one rule
file and add one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sordino import own_code
from sordino.errors import BadInput
from sordino.method_spec import GAUSSIAN, Method, RuleContext
from sordino.privacy.vocabulary import Observer, Unit
from sordino.rules import (
    adaclip,
    adact,
    automatic,
    banded,
    claims,
    dp_fedacn,
    dp_fedagnc,
    dp_fedamvc,
    dp_fedddc,
    dp_fedggc,
    fed_dpa,
    fixed,
    geyer,
    noise_gamma,
    quantile,
)
from sordino.schemes import epochs, gradient_sum, turns
from sordino.schemes.fed_dpa import FedDpa
from sordino.schemes.fedmap import rule as fedmap
from sordino.schemes.fedmap.scheme import FedMapScheme

__all__ = ["METHODS", "TABLE", "Method", "RuleContext", "adopt", "method"]

# The server adds the mean as it is.
PLAIN_STEPS: dict[str, tuple[object, ...]] = {
    "server_optimizer": ("sgd",),
    "server_lr": (1.0,),
    "lr_schedule": ("constant",),
    "steps": ("mean",),
    "average": ("none",),
}
# How the papers train. In DP-FedACN's experiments, and AdaCT's, each client clips its whole update and adds its own noise to it.
AT_CLIENTS: MappingProxyType[str, tuple[object, ...]] = MappingProxyType(
    {"unit": ("client",), "observer": ("server",), "sampling": ("fixed",), "weights": ("uniform",)} | PLAIN_STEPS
)
AT_SERVER: MappingProxyType[str, tuple[object, ...]] = MappingProxyType({"unit": ("client",), "observer": ("public",)})
DP_SGD: MappingProxyType[str, tuple[object, ...]] = MappingProxyType(
    {"unit": ("example",), "observer": ("public",), "sampling": ("poisson",)} | PLAIN_STEPS
)
EITHER = ("gaussian", "laplace")


TABLE = (
    Method(
        "fedavg",
        "McMahan et al. 2017, Communication-efficient learning of deep networks from decentralized data",
        fixed.certified,
        units=(Unit.CLIENT,),
        reasons=("Updates are averaged without clipping or noise.",),
        defaults={"unit": "client", "observer": "public", "sampling": "fixed", "weights": "size"},
        paper_setting={"sampling": ("fixed",), "weights": ("size",), "optimizer": ("sgd",)} | PLAIN_STEPS,
        private=False,
    ),
    Method(
        "dp-fedavg",
        "McMahan et al. 2018, Learning differentially private recurrent language models",
        fixed.certified,
        mechanisms=EITHER,
        paper_setting=AT_SERVER
        | {"sampling": ("poisson",), "optimizer": ("sgd",), "mechanism": GAUSSIAN}
        | PLAIN_STEPS,
        differs=fixed.differs,
    ),
    Method(
        "adact",
        "AdaCT-DPFL 2026, Differentially private federated learning with adaptive clipping thresholds",
        adact.certified,
        adact.published,
        reasons=adact.REASONS,
        claim=claims.rdp,
        reasons_of=adact.reasons_of,
        paper_setting=AT_CLIENTS | {"local_epochs": (4, 5)},
        differs=adact.differs,
    ),
    Method(
        "dp-fedacn",
        "Zhang et al., Exploring the privacy-accuracy trade-off using adaptive gradient clipping in federated learning",
        dp_fedacn.certified,
        dp_fedacn.published,
        reasons=dp_fedacn.REASONS,
        claim=claims.label,
        reasons_of=dp_fedacn.reasons_of,
        sigma=dp_fedacn.sigma,
        paper_setting=AT_CLIENTS,
        own_scheme=gradient_sum.as_published,
    ),
    Method(
        "dp-fedagnc",
        "After van der Veen et al. 2018, Three tools for practical differential privacy",
        dp_fedagnc.certified,
        dp_fedagnc.published,
        reasons=dp_fedagnc.REASONS,
        claim=claims.rdp,
        reasons_of=dp_fedagnc.reasons_of,
        guess=dp_fedagnc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS,
    ),
    Method(
        "dp-fedamvc",
        "After Yu et al. 2018, as described by Zhang et al. (DP-FedACN): linear decay",
        dp_fedamvc.certified,
        mechanisms=EITHER,
        guess=dp_fedamvc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS | {"mechanism": GAUSSIAN},
    ),
    Method(
        "dp-fedddc",
        "Du et al. 2021, Dynamic differential-privacy preserving SGD",
        dp_fedddc.certified,
        reasons=dp_fedddc.REASONS,
        schedule=dp_fedddc.schedule,
        claim=dp_fedddc.claim,
        provable_as_published=lambda plan: True,
        paper_setting=DP_SGD,
    ),
    Method(
        "dp-fedggc",
        "After Liu et al. 2022, Differentially private learning with grouped gradient clipping",
        dp_fedggc.certified,
        dp_fedggc.published,
        guess=dp_fedggc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS,
    ),
    Method(
        "noise-gamma",
        "Sartaj et al., Federated learning with differential privacy: decreasing noise mechanism",
        noise_gamma.certified,
        noise_gamma.published,
        reasons=noise_gamma.REASONS,
        claim=noise_gamma.claim,
        provable_as_published=lambda plan: plan.mechanism == "gaussian",
        mechanisms=EITHER,
        reasons_of=noise_gamma.reasons_of,
        paper_setting=AT_CLIENTS | {"bound": (0.1,)},
        own_scheme=epochs.own_scheme,
    ),
    Method(
        "quantile",
        "Andrew et al. 2021, Differentially private learning with adaptive clipping",
        quantile.certified,
        quantile.published,
        # Algorithm 1 is DP-FedAvg-M: with momentum at the server. Without it the bound moves alike.
        paper_setting=AT_SERVER
        | {
            "sampling": ("poisson",),
            "weights": ("uniform",),
            "lr_schedule": ("constant",),
            "steps": ("mean",),
            "average": ("none",),
        }
        | {"server_optimizer": ("momentum", "sgd")},
        differs=quantile.differs,
    ),
    Method(
        "geyer",
        "Geyer et al. 2017, Differentially private federated learning: a client level perspective",
        geyer.certified,
        geyer.published,
        reasons=geyer.REASONS,
        claim=claims.moments,
        reasons_of=geyer.reasons_of,
        paper_setting=AT_SERVER | {"sampling": ("fixed",), "weights": ("uniform",)} | PLAIN_STEPS,
        differs=geyer.differs,
    ),
    Method(
        "adaclip",
        "Pichapati et al. 2019, AdaCliP: adaptive clipping for private SGD",
        adaclip.certified,
        adaclip.published,
        paper_setting=DP_SGD,
    ),
    Method(
        "automatic",
        "Bu et al. 2023, Automatic clipping: differentially private deep learning made easier and stronger",
        automatic.certified,
        paper_setting=DP_SGD | {"server_optimizer": ("sgd", "adam")},
    ),
    Method(
        "dp-bandmf",
        "Choquette-Choo et al. 2023, (Amplified) banded matrix factorization: a unified approach to private training",
        banded.certified,
        units=(Unit.CLIENT,),
        observers=(Observer.PUBLIC,),
        defaults={
            "unit": "client",
            "observer": "public",
            "sampling": "poisson",
            "server_optimizer": "momentum",
            "lr_schedule": "constant",
            "average": "none",
        },  # fmt: skip
        paper_setting=AT_SERVER | {"sampling": ("poisson",), "steps": ("mean",), "average": ("none",)},
        differs=banded.differs,
        own_scheme=turns.own_scheme,
    ),
    Method(
        "fed-dpa",
        "Yang, Huang and Ye 2023, Dynamic personalized federated learning with adaptive differential privacy",
        fed_dpa.certified,
        units=(Unit.CLIENT,),
        published_observers=(Observer.PUBLIC, Observer.SECAGG_SERVER),
        reasons=fed_dpa.REASONS,
        reasons_of=fed_dpa.reasons_of,
        defaults={"unit": "client", **{name: values[0] for name, values in fed_dpa.PUBLIC_CODE.items()}},
        source="the public code",
        paper_setting=fed_dpa.PUBLIC_CODE | PLAIN_STEPS,
        differs=fed_dpa.differs,
        schedule=fed_dpa.schedule,
        claim=claims.rdp,
        provable_as_published=lambda plan: True,
        own_scheme=lambda plan: FedDpa,
    ),
    Method(
        "fedmap",
        "FedMAP, Federated meta-driven adaptive privacy (under review, ICLR 2026)",
        fedmap.certified,
        fedmap.published,
        units=(Unit.EXAMPLE,),
        observers=(Observer.SERVER, Observer.SECAGG_SERVER),
        published_observers=(Observer.SERVER,),
        reasons=fedmap.REASONS,
        defaults={"unit": "example", "observer": "server"},
        reasons_of=fedmap.reasons_of,
        paper_setting={
            "unit": ("example",),
            "observer": ("server",),
            "sampling": ("fixed",),
            "weights": ("size", "uniform"),  # equation 20 weighs by size, whatever a plan says
            "local_epochs": (3, 8, 5),
            "batch_size": (64, 4),
            "lr": (0.01, 0.001, 0.1),
            "optimizer": ("sgd",),
        }
        | PLAIN_STEPS,
        differs=fedmap.differs,
        scheme=FedMapScheme,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({m.name: m for m in TABLE})
_OWN: dict[str, Method] = {}  # methods that a program gave to a plan as objects


def method(name: str) -> Method:
    """Look a method up by its published name, or load one of your own by ``module:object``."""
    if name in METHODS:
        return METHODS[name]
    if name in _OWN:
        return _OWN[name]
    if own_code.is_reference(name):
        found = own_code.load(name, "method")
        if not isinstance(found, Method):
            raise BadInput(f"method {name!r} is a {type(found).__name__}; it must be a sordino.Method.")
        return found
    raise BadInput(
        f"method {name!r} is not known; choose one of {', '.join(METHODS)}, or name your own as module:object."
    )


def adopt(given: Method) -> str:
    """Make a method of one's own known to this process; its name, for a plan."""
    if given.name in METHODS and METHODS[given.name] is not given:
        raise BadInput(f"there is a method {given.name!r} already; give yours another name.")
    if given.name not in METHODS:
        _OWN[given.name] = given
    return given.name
