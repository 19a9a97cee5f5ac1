"""The attacks by name: where each comes from and what it knows. Nothing heavy is imported until an attack is built."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sordino.errors import BadInput
from sordino.plain import Plain

if TYPE_CHECKING:
    pass

ADACT = "AdaCT-DPFL 2026, Differentially private federated learning with adaptive clipping thresholds"
SONG = "Song and Mittal 2021, Systematic evaluation of privacy risks of machine learning models"
YEOM = "Yeom et al. 2018, Privacy risk in machine learning: analyzing the connection to overfitting"
WATSON = "Watson et al. 2022, On the importance of difficulty calibration in membership inference attacks"
GU = "Gu et al. 2022, CS-MIA: membership inference attack based on prediction confidence series in federated learning"
SALEM = "Salem et al. 2019, ML-Leaks: model and data independent membership inference attacks and defenses"
NASR = (
    "Nasr et al. 2019, Comprehensive privacy analysis of deep learning: passive and active white-box inference attacks"
)
SHOKRI = "Shokri et al. 2017, Membership inference attacks against machine learning models"
BERTRAN = "Bertran et al. 2023, Scalable membership inference attacks via quantile regression"
THAKER = "Thaker et al. 2025, Membership inference attacks for unseen classes"
CARLINI = "Carlini et al. 2022, Membership inference attacks from first principles"
ZHU = "Zhu, Liu and Han 2019, Deep leakage from gradients"
GEIPING = "Geiping et al. 2020, Inverting gradients: how easy is it to break privacy in federated learning?"
YIN = "Yin et al. 2021, See through gradients: image batch recovery via GradInversion"
CHEN = "Chen et al. 2021, Knowledge-enriched distributional model inversion attacks"
ZARIFZADEH = "Zarifzadeh et al. 2024, Low-cost high-power membership inference attacks"

FINAL = "the final model's probabilities, and the membership of some records of the target"
OWN = "the membership of some records"
PLAN = "the final model's probabilities, the plan, and data like the target's to train models on"

MESSAGE = (
    "one message as its observer sees it, the model that it was made on, and the public settings (bound, noise, steps)"
)
KINDS = ("membership", "inversion")


@dataclass(frozen=True)
class Entry:
    """One attack. `view` and `active` decide whether a proof towards an observer covers it."""

    name: str
    paper: str
    knows: str
    home: str  # module and class, in the package of its kind
    options: Plain = field(default_factory=lambda: MappingProxyType({}))
    kind: str = "membership"
    view: str = "client"  # client: released models only; server: what single clients send
    active: bool = False
    models: str = ""  # what the attacker trains: reference, shadow, or nothing
    every_task: bool = False  # looks at losses, which regression and several labels have too

    def build(self, **changes: Any) -> Any:
        """The attack itself, with these settings in the place of its own."""
        module, name = self.home.split(":")
        kind = getattr(importlib.import_module(f"sordino.attacks.{self.kind}.{module}"), name)
        return kind(**{**self.options, **changes})

    def to_json(self) -> dict[str, str]:
        """The row that `sordino attacks --json` prints."""
        return {"name": self.name, "kind": self.kind, "paper": self.paper, "knows": self.knows}


def _trees() -> list[Entry]:
    words = {
        "full": FINAL,
        "sorted": f"{FINAL}; the vector is sorted, so that classes cannot be told apart",
        "label": f"{FINAL}, and true labels (confidence, loss, entropy)",
    }
    return [
        Entry(
            kind if vector == "full" else f"{kind}-{vector}",
            ADACT,
            knows,
            "probabilities:Trees",
            {"kind": kind, "vector": vector},
        )
        for vector, knows in words.items()
        for kind in ("rf", "gb", "dt")
    ]


def _white_boxes() -> list[Entry]:
    sees = {"client": "the weights of several released models", "server": "each client's own model in several rounds"}
    found = []
    for active in (False, True):
        for view, what in sees.items():
            name = "white-box" + ("-active" if active else "") + ("-server" if view == "server" else "")
            does = "; it climbs the loss on the attacked records while training goes on" if active else ""
            options = {"server": view == "server", "active": active}
            knows = f"{what}, and {OWN}{does}"
            found.append(Entry(name, NASR, knows, "white_box:WhiteBox", options, view=view, active=active))
    return found


TABLE: tuple[Entry, ...] = (
    *_trees(),
    Entry("basic", SONG, f"{FINAL}, and true labels; one threshold per class", "basic:Threshold"),
    Entry(
        "basic-confidence", SONG, f"{FINAL}, and true labels; one threshold per class", "basic:Threshold",
        {"number": "confidence"},
    ),
    Entry(
        "basic-common", SONG, f"{FINAL}, and true labels; one threshold for all", "basic:Threshold",
        {"per_class": False},
    ),
    Entry("loss", YEOM, f"the final model's loss on each record, and {OWN}", "loss:Loss", every_task=True),
    Entry(
        "loss-calibrated", WATSON, f"{PLAN}, without the attacked record; and {OWN}", "loss:Loss", {"models": 4},
        models="reference", every_task=True,
    ),
    Entry("cs", GU, f"the answers of the released models over many rounds, and {OWN}", "cs:ConfidenceSeries"),
    Entry(
        "cs-server", GU, f"the answers of each client's own models over many rounds, and {OWN}", "cs:ConfidenceSeries",
        {"server": True}, view="server",
    ),
    Entry("ml-leaks", SALEM, PLAN, "ml_leaks:Leaks", models="shadow"),
    *_white_boxes(),
    Entry("shadow-lr", SHOKRI, PLAN, "shadow_lr:ShadowLR", models="shadow"),
    Entry(
        "shadow-lr-unseen", SHOKRI, f"{PLAN}; its classifier learns from no record of the classes that are attacked",
        "shadow_lr:ShadowLR", {"unseen": 0.2}, models="shadow",
    ),
    Entry("quantile", BERTRAN, "the final model's probabilities, and records in no model", "quantile:Quantile"),
    Entry(
        "quantile-unseen", THAKER, "the same, but no records of the classes that are attacked", "quantile:Quantile",
        {"unseen": 0.2},
    ),
    Entry("lira", CARLINI, f"{PLAN}, with and without each attacked record", "lira:Lira", models="reference"),
    Entry(
        "lira-offline", CARLINI, f"{PLAN}, without the attacked record", "lira:Lira", {"online": False},
        models="reference",
    ),
    Entry("rmia", ZARIFZADEH, f"{PLAN}, without the attacked record", "rmia:Rmia", models="reference"),
    Entry("dlg", ZHU, MESSAGE, "dlg:DLG", kind="inversion", view="server"),
    Entry("ig", GEIPING, f"{MESSAGE}; pictures are smooth", "ig:IG", kind="inversion", view="server"),
    Entry(
        "gi", YIN, f"{MESSAGE}; pictures are smooth, and public images to compare features with", "gi:GI", kind="inversion",
        view="server",
    ),
    Entry(
        "ked-mi", CHEN, "the final model, and public images of classes that no client holds", "ked_mi:KedMI",
        kind="inversion",
    ),
)  # fmt: skip

ATTACKS: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in TABLE})
EVERY_TASK = tuple(entry.name for entry in TABLE if entry.every_task)
USUAL = ("rf", "gb", "dt", "basic", "rmia")


def entry(name: str) -> Entry:
    """The attack of this name, or a refusal that lists the names."""
    try:
        return ATTACKS[name]
    except KeyError:
        raise BadInput(f"attack {name!r} is not known; choose among {', '.join(ATTACKS)}.") from None


def entries(names: str) -> list[Entry]:
    """The attacks in a list with commas; `all` for every one of them, `membership` or `inversion` for those of a kind."""
    words = [word.strip() for word in names.split(",") if word.strip()]
    if words == ["all"]:
        return list(TABLE)
    if len(words) == 1 and words[0] in KINDS:
        return [one for one in TABLE if one.kind == words[0]]
    if not words:
        raise BadInput(f"no attack was named; choose among {', '.join(ATTACKS)}.")
    return [entry(word) for word in dict.fromkeys(words)]
