"""The real libraries of Hugging Face, where they are installed: `datasets` for the records, a tiny `transformers` model."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sordino  # noqa: E402
from sordino import BadInput, EngineOptions, Federation, Plan, train  # noqa: E402

HERE = EngineOptions("in-process")
PLAN = {"method": "dp-fedavg", "epsilon": 50.0, "rounds": 10, "batch_size": 60, "lr": 0.05, "server_optimizer": "adam"}


def sentences(n, seed):
    """Token ids of length 8; the first decides the class."""
    rng = np.random.Generator(np.random.PCG64(seed))
    ids = rng.integers(3, 20, size=(n, 8))
    mask = np.ones_like(ids)
    mask[:, 6:] = 0
    return {"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "label": (ids[:, 0] % 2).tolist()}


@pytest.fixture(scope="module")
def texts():
    datasets = pytest.importorskip("datasets", reason="pip install datasets to run this test")
    features = datasets.Features(
        input_ids=datasets.Sequence(datasets.Value("int32")), attention_mask=datasets.Sequence(datasets.Value("int8")),
        label=datasets.ClassLabel(names=["even", "odd"]),
    )  # fmt: skip
    made = [datasets.Dataset.from_dict(sentences(n, n), features=features) for n in (60, 70, 100)]
    return made[:2], made[2]


def test_fields_of_a_data_set_reach_a_model_by_name(texts):
    clients, public = texts
    federation = Federation.from_datasets(clients, test=public)
    assert federation.classes == 2 and not federation.classes_from_labels  # ClassLabel declares them
    assert [field.name for field in federation.layout.fields] == ["input_ids", "attention_mask"]
    torch_format = [one.with_format("torch") for one in clients]
    assert np.array_equal(Federation.from_datasets(torch_format, test=public).x, federation.x)


def test_columns_of_numbers_are_a_table_and_words_are_refused():
    datasets = pytest.importorskip("datasets", reason="pip install datasets to run this test")
    table = datasets.Dataset.from_dict({"age": [30, 40], "height": [1.7, 1.8], "label": [0, 1]})
    federation = Federation.from_datasets([table])
    assert federation.layout is None and federation.x.tolist() == pytest.approx(np.array([[30, 1.7], [40, 1.8]]))
    words = table.add_column("name", ["a", "b"])
    with pytest.raises(BadInput, match="the field 'name' of data set 0 is no number"):
        Federation.from_datasets([words])
    with pytest.raises(BadInput, match=r"a dictionary of data sets \(train\)"):
        Federation.from_datasets([datasets.DatasetDict(train=table)])


@pytest.mark.parametrize("unit", ["example", "client"])
def test_a_tiny_transformer_is_trained_saved_loaded_and_asked(unit, texts, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install transformers to run this test")
    clients, public = texts
    federation = Federation.from_datasets(clients, test=public)

    def network():
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=8, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        return transformers.BertForSequenceClassification(config)

    settings = {"unit": unit, "sampling": "none"} if unit == "client" else {"unit": unit}
    result = train(network(), federation, Plan(**PLAN | settings), out=tmp_path / "run", options=HERE)
    assert result.epsilon <= 50.0
    if unit == "example":
        assert result.accuracy > 0.6
    trained = sordino.load(tmp_path / "run", network())
    fresh = sentences(20, 5)
    found = trained.predict({name: np.array(fresh[name]) for name in ("input_ids", "attention_mask")})
    with torch.no_grad():
        ids, mask = (torch.tensor(fresh[name]) for name in ("input_ids", "attention_mask"))
        want = result.model.eval()(input_ids=ids, attention_mask=mask).logits.softmax(1).numpy()
    assert np.allclose(found.scores, want, atol=1e-5)
