"""Holders with tables of their own: columns are matched by name, and every holder reads its table by the run's schema."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hall import ANYTHING, QUICK

from sordino import Plan, train
from sordino.assembly import assemble
from sordino.data.schema import Feature, Scale, Schema
from sordino.deployment.federate import federate
from sordino.deployment.joining import own_records
from sordino.deployment.serving import Public
from sordino.engines import EngineOptions
from sordino.engines.flower.holder import Holder
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.seals import Plain
from sordino.engines.flower.transport import Direct, SecureChannel
from sordino.errors import BadInput

NAMES = ["east", "north", "west"]
SETTINGS = {
    "method": "dp-fedavg", "unit": "example", "observer": "secagg-server", "epsilon": 8.0, "rounds": 4, "batch_size": 30,
    "lr": 0.1, "server_optimizer": "adam", "model": "linear",
}  # fmt: skip
SCHEMA = Schema(
    (
        Feature("age", Scale(range=(0.0, 100.0))),
        Feature("sex", values=("f", "m")),
        Feature("bmi", Scale(mean=25.0, std=5.0)),
    ),
    ("ill",),
    classes=("no", "yes"),
)


def write(folder: Path, columns: dict[str, list[str]], separators: str = ",;\t") -> None:
    """The same kind of records at each place, in other orders of columns and other separators."""
    rng = np.random.Generator(np.random.PCG64(0))
    for name, separator in zip([*NAMES, "test"], [*separators, ","]):
        n = 60
        age, bmi, sex = rng.uniform(0, 100, n), rng.normal(25, 5, n), rng.choice(["f", "m"], n)
        cells = {
            "age": age.round(1),
            "bmi": bmi.round(1),
            "sex": sex,
            "ill": np.where(age > 50, "yes", "no"),
            "id": np.arange(n),
        }
        order = columns.get(name, ["age", "sex", "bmi", "ill"])
        lines = [separator.join(order), *(separator.join(str(cells[c][i]) for c in order) for i in range(n))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


class Place:
    def __init__(self, folder: Path, labels: dict[str, str] | None = None):
        self.holders = {
            name: Holder(
                name,
                own_records(folder / f"{name}.csv", name, (labels or {}).get(name)),
                ANYTHING,
                folder / name,
                Plain(),
            )
            for name in NAMES
        }
        self.post = SecureChannel(Direct({name: h.handle for name, h in self.holders.items()}), Plain(), NAMES)

    def train(self, plan, out, public):
        known = {"classes": public.classes, "test": public.test, "schema": public.schema}
        return federate(self.post, plan, out, patience=QUICK, simulated=True, **known)

    def close(self):
        for holder in self.holders.values():
            holder.close()


def test_other_orders_of_columns_give_the_model_of_one_machine(tmp_path):
    write(tmp_path, {"north": ["ill", "bmi", "age", "sex"], "west": ["id", "sex", "ill", "age", "bmi"]})
    (tmp_path / "schema.toml").write_text(_toml())
    plan = Plan(
        data="<holders>", clients=3, schema=str(tmp_path / "schema.toml"), test=str(tmp_path / "test.csv"), **SETTINGS
    )
    public = Public.find(plan, None, None)
    place = Place(tmp_path)
    result = place.train(plan, tmp_path / "run", public)
    place.close()
    (tmp_path / "one").mkdir()
    for name in NAMES:
        (tmp_path / f"{name}.csv").rename(tmp_path / "one" / f"{name}.csv")
    model, federation, here = assemble(plan.replace(data=str(tmp_path / "one")))
    alone = train(
        model, federation, here, out=tmp_path / "alone", options=EngineOptions("in-process", isolate_clients=True)
    )
    for a, b in zip(result.model.state_dict().values(), alone.model.state_dict().values()):
        assert np.allclose(a, b, atol=1e-6)
    assert result.accuracy == pytest.approx(alone.accuracy) and result.plan.data == "<holders>"
    told = json.loads((tmp_path / "run" / "data.json").read_text())
    assert told["features"] == ["age", "sex=f", "sex=m", "bmi"] and told["commitments"] == {}
    kept = next((tmp_path / "north" / "runs").iterdir()) / "data.json"
    assert list(json.loads(kept.read_text())["commitments"]) == ["1"]  # at the holder, and of its own records alone


def test_a_missing_column_is_named_with_its_holder_before_anyone_pays(tmp_path):
    write(tmp_path, {"west": ["sex", "ill", "age"]})
    place = Place(tmp_path)
    with pytest.raises(BadInput, match="west has no column 'bmi'"):
        place.train(Plan(clients=3, **SETTINGS), tmp_path / "run", Public(2, schema=SCHEMA))
    assert all(holder.allowance.epsilon == 0 for holder in place.holders.values())
    # a server that does not look is refused by the holder itself
    with pytest.raises(Refused, match="have no column 'bmi', which the schema of the run asks for"):
        from sordino.engines.flower.part import Facts

        place.holders["west"]._arrays(Facts("x", 2, (4,), (60, 60, 60), None, SCHEMA))
    place.close()


def test_what_is_wrong_in_a_table_stays_with_its_holder(tmp_path, caplog):
    write(tmp_path, {})
    text = (tmp_path / "east.csv").read_text().splitlines()
    text[7] = "oops," + text[7].split(",", 1)[1]
    (tmp_path / "east.csv").write_text("\n".join(text) + "\n")
    place = Place(tmp_path)
    with pytest.raises(
        Refused, match="east refuses: the records here do not fit the schema of the run; the holder's log"
    ):
        place.train(Plan(clients=3, **SETTINGS), tmp_path / "run", Public(2, schema=SCHEMA))
    assert "row 8 of" in caplog.text and "oops" not in caplog.text
    place.close()


def test_a_server_cannot_ask_by_schemas_which_labels_there_are(tmp_path):
    """Each refusal tells something of the records, so a holder gives one, and then none that depends on them."""
    from sordino.engines.flower.part import Facts

    write(tmp_path, {})
    place = Place(tmp_path)
    east = place.holders["east"]

    def asked(*classes: str) -> str:
        schema = SCHEMA.replace(classes=classes)
        try:
            east._arrays(Facts("x", len(classes), (4,), (60, 60, 60), None, schema))
        except Refused as refusal:
            return str(refusal)
        return "fits"

    assert asked("no", "yes") == "fits" and asked("no", "yes", "hiv") == "fits"
    assert "do not fit" in asked("no", "hiv")
    assert asked("no", "yes") == asked("yes", "hiv") and "must look first" in asked("yes", "hiv")
    place.close()


def test_without_a_schema_the_columns_of_the_first_decide_and_labels_may_have_other_names(tmp_path):
    write(tmp_path, {name: ["age", "bmi", "ill"] for name in [*NAMES, "test"]})
    for name in [*NAMES, "test"]:
        file = tmp_path / f"{name}.csv"
        file.write_text(file.read_text().replace("yes", "1").replace("no", "0"))
    west = tmp_path / "west.csv"
    west.write_text(west.read_text().replace("ill", "krank"))
    place = Place(tmp_path, {"west": "krank"})
    result = place.train(Plan(clients=3, label="ill", **SETTINGS), tmp_path / "run", Public(2))
    assert result.rounds == 4 and json.loads((tmp_path / "run" / "data.json").read_text())["features"] == ["age", "bmi"]
    place.close()


def _toml() -> str:
    from sordino.data.schema_file import to_toml

    return to_toml(SCHEMA)
