"""Tables as people write them, read by the names of their columns."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.data.csv_file import read_csv
from sordino.data.ingest import Source, ingest
from sordino.data.schema import Feature, Scale, Schema, vocabulary
from sordino.data.schema_file import draft, load_schema, to_toml
from sordino.errors import BadInput
from sordino.federation.population import Federation


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("größe,farbe\n1.5,rot\n2,blau\n", "utf-8"),
        ("größe;farbe\n1,5;rot\n2;blau\n", "latin-1"),
        ('"größe"\t"farbe"\n"1.5"\t"rot"\n"2"\t"blau"\n', "utf-8-sig"),
        ("größe|farbe\r\n1.5|rot\r\n\r\n2|blau\r\n", "utf-16"),
        ("größe, farbe\n1.5, rot\n2, blau\n", "cp1252"),
    ],
)
def test_separators_encodings_quotes_and_decimal_commas(text, encoding, tmp_path):
    table = read_csv(write(tmp_path / "t.csv", text, encoding))
    assert table.names == ("größe", "farbe")
    assert table["größe"].tolist() == [1.5, 2.0] and table["farbe"].tolist() == ["rot", "blau"]


def test_a_table_without_a_heading_keeps_its_first_row(tmp_path):
    table = read_csv(write(tmp_path / "iris.data", "5.1,3.5,Iris-setosa\n6.0,2.2,Iris-virginica\n"))
    assert not table.named and len(table) == 2 and table.is_text("2")
    table = read_csv(write(tmp_path / "years.csv", "2019,2020,up\n1,2,0\n3,4,1\n"))
    assert table.named and table.names == ("2019", "2020", "up")


def test_missing_cells_are_named_or_filled_as_the_schema_says(tmp_path):
    table = read_csv(write(tmp_path / "t.csv", "a,b,label\n1,NA,0\n3,?,1\n5,4,1\n"))
    assert np.isnan(table["b"]).tolist() == [True, True, False]
    features = (Feature("a"), Feature("b", Scale(range=(0.0, 8.0)), missing="flag"))
    x, y = Schema(features, ("label",), classes=("0", "1")).read(table)
    assert x.tolist() == [[1, 0, 1], [3, 0, 1], [5, 0, 0]] and y.tolist() == [0, 1, 1]  # 4 is the middle of 0 to 8
    with pytest.raises(BadInput, match="row 2 of .*t.csv, column 'b', is empty"):
        Schema((Feature("b"),), ("label",), classes=("0", "1")).read(table)


def test_columns_are_matched_by_name(tmp_path):
    write(tmp_path / "a.csv", "x,z,label\n1,10,0\n2,20,1\n")
    write(tmp_path / "b.csv", "label;z;x\n1;30;3\n")
    write(tmp_path / "test.csv", "z,label,x\n40,0,4\n50,1,5\n")
    federation = Federation.from_folder(tmp_path)
    by_name = dict(zip(federation.schema.inputs, federation[1][0][0].tolist()))
    assert by_name == {"x": 3, "z": 30}
    assert federation[0][0][:, federation.schema.inputs.index("x")].tolist() == [1, 2]
    assert federation.test[0][:, federation.schema.inputs.index("z")].tolist() == [40, 50]


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ("label,z\n1,30\n", "b.csv has no column 'x': add it"),
        ("label,z,X\n1,30,3\n", r"b.csv has no column 'x' \(it has 'X'\)"),
        ("label,z,x,w\n1,30,3,9\n", "b.csv has a column 'w' and .*a.csv has none"),
        ("label,z,x\n1,30,inf\n", "row 2 of .*b.csv, column 'x', is infinite"),
        ("label,z,x\n,30,3\n", "row 2 of .*b.csv, column 'label', is empty"),
        ("label,x,x\n1,3,3\n", "two columns called 'x'"),
        (",label,z,x\n0,1,30,3\n", "column 1 of .*b.csv has no name"),
        ("label,z,x\n1,30\n", "row 2 of .*b.csv has 2 fields instead of 3"),
    ],
)
def test_what_is_wrong_is_named_and_never_shown(second, sentence, tmp_path):
    write(tmp_path / "a.csv", "x,z,label\n1,10,0\n2,20,1\n")
    write(tmp_path / "b.csv", second)
    with pytest.raises(BadInput, match=sentence) as caught:
        Federation.from_folder(tmp_path)
    assert "30" not in str(caught.value).replace(str(tmp_path), "")  # no cell of anybody's row


def test_one_table_with_a_client_column_and_words_for_labels(tmp_path):
    write(tmp_path / "t.csv", "user,a,kind\nzoe,1,yes\nann,2,no\nzoe,3,no\n")
    federation = Federation.from_file(tmp_path / "t.csv", client="user", label="kind")
    assert federation.ids == ("ann", "zoe") and federation.class_names == ("no", "yes")
    assert federation[1][0].tolist() == [[1], [3]] and federation[1][1].tolist() == [1, 0]
    assert "read from the training labels" in federation.notes[0]
    write(tmp_path / "test.csv", "a,kind\n1,yes\n2,no\n")
    assert not Federation.from_file(tmp_path / "t.csv", "user", "kind", test=tmp_path / "test.csv").notes
    write(tmp_path / "test.csv", "a,kind\n1,yes\n2,yes\n")  # the test set does not tell of "no"
    assert Federation.from_file(tmp_path / "t.csv", "user", "kind", test=tmp_path / "test.csv").notes


def test_words_become_inputs_only_if_their_values_are_public(tmp_path):
    write(tmp_path / "t.csv", "user,sex,label\nzoe,f,1\nann,m,0\nann,x,0\n")
    with pytest.raises(BadInput, match="row 3 of .*t.csv, column 'sex', holds text"):
        Federation.from_file(tmp_path / "t.csv", client="user")
    write(tmp_path / "test.csv", "sex,label\nf,1\nm,0\n")
    federation = Federation.from_file(tmp_path / "t.csv", client="user", test=tmp_path / "test.csv")
    assert federation.schema.inputs == ("sex=f", "sex=m")
    assert federation[0][0].tolist() == [[0, 1], [0, 0]]  # a value that the test set does not know is none of them


def test_a_data_frame_is_a_federation():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "who": ["a", "b", "b"],
            "v": [1, None, 3.5],
            "w": pandas.Categorical(["x", "y", "x"]),
            "ok": [True, False, True],
        }
    )
    with pytest.raises(BadInput, match="row 1 of the data frame, column 'w', holds text"):
        Federation.from_dataframe(frame, client="who", label="ok")
    with pytest.raises(BadInput, match="row 2 of the data frame, column 'v', is empty"):
        Federation.from_dataframe(frame.drop(columns="w"), client="who", label="ok")
    federation = Federation.from_dataframe(frame.drop(columns="w").fillna(2.0), client="who", label="ok")
    assert federation.sizes.tolist() == [1, 2] and federation[1][0].tolist() == [[2], [3.5]]
    assert federation.class_names == ("False", "True")
    dates = pandas.DataFrame({"who": ["a"], "d": pandas.to_datetime(["2024-01-01"]), "label": [1]})
    with pytest.raises(BadInput, match="column 'd' of the data frame holds dates"):
        Federation.from_dataframe(dates, client="who", label="label")


def test_data_sets_of_other_libraries(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1]))
    like_hugging_face = [{"pixels": [1, 2], "label": 0}, {"pixels": [3, 4], "label": 1}]
    federation = Federation.from_datasets([tensors, [(torch.ones(2), 1)]], classes=2)
    assert federation.sizes.tolist() == [3, 1] and federation[0][0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert Federation.from_datasets([like_hugging_face]).x.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(BadInput, match="have no 'kind': name one of pixels, label"):
        Federation.from_datasets([like_hugging_face], label="kind")


def test_a_schema_survives_its_file(tmp_path):
    features = (
        Feature("ä b", Scale(range=(0.0, 4.0)), missing="fill"),
        Feature("c", Scale(mean=1.0, std=2.0)),
        Feature("d", values=("x", "y")),
        Feature("e"),
    )
    schema = Schema(features, ("kind",), classes=("no", "yes"), client="who")
    (tmp_path / "schema.toml").write_text(to_toml(schema), encoding="utf-8")
    assert load_schema(tmp_path / "schema.toml") == schema
    assert Schema.from_json(schema.to_json()) == schema


def test_a_draft_says_what_is_to_be_declared_and_holds_no_value(tmp_path):
    table = read_csv(write(tmp_path / "t.csv", "user,age,sex,label\nzoe,77,f,1\nann,66,m,0\n"))
    text = draft(table, None, "user", "classification")
    assert not any(secret in text for secret in ("77", "66", "zoe", '"f"'))
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(BadInput, match="does not say the range of 'age' yet"):
        load_schema(tmp_path / "schema.toml")


def test_labels_that_are_numbers_but_no_classes(tmp_path):
    rows = "".join(f"{k},{k + 0.25}\n" for k in range(5))
    with pytest.raises(BadInput, match="column 'y' are not whole numbers: use task regression"):
        ingest(Source(str(write(tmp_path / "t.csv", "x,y\n" + rows)), label="y"))
    read = ingest(Source(str(tmp_path / "t.csv"), label="y", task="regression"))
    assert read.clients[0][1].tolist() == [[0.25], [1.25], [2.25], [3.25], [4.25]]


def test_classes_are_declared_or_numbered_through():
    assert vocabulary(["3", "0"]) == ("0", "1", "2", "3") and vocabulary(["10", "9"]) == ("9", "10")


def test_without_headings_places_are_names_wherever_the_label_stands(tmp_path):
    write(tmp_path / "t.csv", "y,u1,1,10\nn,u2,2,20\ny,u1,3,30\n")
    federation = Federation.from_file(tmp_path / "t.csv", client="1", label="0")
    assert federation[0][0].tolist() == [[1, 10], [3, 30]] and federation[0][1].tolist() == [1, 1]
    assert federation.schema.x(read_csv(write(tmp_path / "new.csv", "5,50\n6,60\n"))).tolist() == [[5, 50], [6, 60]]


def test_true_and_false_are_numbers_to_a_model_and_words_as_labels(tmp_path):
    write(tmp_path / "a.csv", "smokes,old,ill\nTrue,1,FALSE\nfalse,2,TRUE\n,3,TRUE\n".replace("\n,3", "\ntrue,3"))
    federation = Federation.from_folder(tmp_path)
    assert federation[0][0].tolist() == [[1, 1], [0, 2], [1, 3]] and federation.class_names == ("FALSE", "TRUE")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"who": ["a", "a"], "smokes": [True, False], "ill": [False, True]})
    made = Federation.from_dataframe(frame, client="who", label="ill")
    assert made[0][0].tolist() == [[1], [0]] and made.class_names == ("False", "True")
    frame.columns = ["who", "ill", "ill"]
    with pytest.raises(BadInput, match="has two columns called 'ill'"):
        Federation.from_dataframe(frame, client="who", label="ill")


def test_a_very_wide_table_is_read(tmp_path):
    names = [f"gene {k}" for k in range(20_000)]
    rows = [",".join(["0.5"] * 20_000 + [str(k % 2)]) for k in range(4)]
    write(tmp_path / "wide.csv", "\n".join([",".join([*names, "label"]), *rows]) + "\n")
    assert Federation.from_folder(tmp_path).input_shape == (20_000,)


def test_columns_are_left_out_by_name_and_dates_are_called_so(tmp_path):
    text = "day,name,a,label\n2024-01-01,x,1,0\n2024-01-02,y,2,1\n"
    write(tmp_path / "t.csv", text)
    with pytest.raises(
        BadInput, match=r"column 'day', holds a date, not a number: leave the column out \(--ignore day\)"
    ):
        Federation.from_file(tmp_path / "t.csv", clients=1)
    federation = Federation.from_file(tmp_path / "t.csv", clients=1, ignore=["day", "name"])
    assert federation.schema.inputs == ("a",) and federation.origin.settings()["ignore"] == "day,name"
    for wrong, sentence in (("id", "no column 'id' to ignore"), ("label", "is the label or the client")):
        with pytest.raises(BadInput, match=sentence):
            Federation.from_file(tmp_path / "t.csv", label="label", clients=1, ignore=["day", wrong])
    write(tmp_path / "mixed.csv", "a,label\n1,1.5\n2,two\n")
    with pytest.raises(BadInput, match="mix words and numbers that are not whole"):
        Federation.from_file(tmp_path / "mixed.csv", clients=1)


def test_a_regression_without_owners_is_dealt_out_alike(tmp_path):
    from sordino.assembly import prepare

    write(tmp_path / "t.csv", "a,price\n" + "".join(f"{k},{k / 2}\n" for k in range(40)))
    _, federation, plan, _ = prepare(
        {"data": str(tmp_path / "t.csv"), "task": "regression", "clients": 4, "test": "none"}
    )
    assert plan.partition == "iid" and federation.sizes.tolist() == [10] * 4
