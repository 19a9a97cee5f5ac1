"""The population: what a client holds, how it is built, and every refusal in one sentence."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from sordino.data.dataset import Dataset, Normalise
from sordino.errors import BadInput
from sordino.federation.population import Federation


def two_clients() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([0, 1])), (np.array([[4.0, 5.0]]), np.array([2]))]


def test_a_client_is_a_slice_of_the_pooled_arrays_without_a_copy():
    federation = Federation.from_arrays(two_clients(), test=(np.zeros((3, 2)), [0, 1, 2]))
    assert (federation.clients, federation.classes, federation.examples, len(federation)) == (2, 3, 3, 2)
    assert federation.sizes.tolist() == [2, 1] and federation.offsets.tolist() == [0, 2, 3]
    assert federation.input_shape == (2,)
    x, y = federation[1]
    assert x.dtype == np.float32 and y.dtype == np.int64
    assert x.tolist() == [[4, 5]] and y.tolist() == [2]
    assert np.shares_memory(federation.raw(0)[0], federation.x) and np.shares_memory(x, federation.x)
    assert federation.test[0].shape == (3, 2) and federation.local_test(0) is None
    assert [len(y) for _, y in federation] == [2, 1]


def test_nobody_can_write_and_the_caller_keeps_the_right_to():
    x, y = np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 0, 1])
    federation = Federation.from_dataset(Dataset("mine", x, y, None, None, classes=2), "iid", clients=1)
    for array in (federation.x, federation.y, federation.offsets, federation.sizes, federation[0][0]):
        with pytest.raises(ValueError):
            array[0] = 1
    x[0] = 7


def test_torch_tensors_are_taken_too():
    torch = pytest.importorskip("torch")
    clients = [(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 1])), (torch.zeros(1, 3), torch.tensor([1]))]
    federation = Federation.from_arrays(clients)
    assert federation.sizes.tolist() == [2, 1] and federation.x.dtype == np.float32


def test_bytes_are_pixels_and_integers_are_tokens():
    pixels = Federation.from_arrays([(np.array([[0], [255]], dtype=np.uint8), [0, 1])])
    assert pixels.raw(0)[0].dtype == np.uint8
    assert pixels[0][0].dtype == np.float32 and pixels[0][0].ravel().tolist() == [0, 1]
    tokens = Federation.from_arrays([(np.array([[3], [9]], dtype=np.int32), [0, 1])], test=(np.array([[9]]), [0]))
    assert tokens[0][0].dtype == np.int64 and tokens.test[0].ravel().tolist() == [9]
    own = Federation.from_arrays(
        [(np.array([[[4]], [[8]]], dtype=np.uint8), [0, 1])], normalise=Normalise(1, (4,), (2,))
    )
    assert own[0][0].ravel().tolist() == [0, 2]


def test_a_natural_federation_keeps_ids_and_local_tests():
    data = Dataset(
        name="natural",
        x=np.arange(6, dtype=np.float32).reshape(6, 1),
        y=np.array([0, 1, 0, 1, 0, 1]),
        test_x=np.array([[10.0], [11.0], [12.0]], dtype=np.float32),
        test_y=np.array([0, 1, 0]),
        classes=2,
        groups=np.array([1, 0, 1, 0, 2, 2]),
        group_names=("ann", "bob", "cid"),
        test_groups=np.array([2, 0, 0]),
    )
    federation = Federation.from_dataset(data, "natural")
    assert federation.ids == ("ann", "bob", "cid") and federation.name_of(1) == "client 1 (bob)"
    assert [x.ravel().tolist() for x, _ in federation] == [[1, 3], [0, 2], [4, 5]]
    assert federation.has_local_tests and federation.local_test(0)[0].ravel().tolist() == [11, 12]
    assert federation.local_test(2)[1].tolist() == [0] and len(federation.local_test(1)[1]) == 0
    some = Federation.from_dataset(data, "natural", clients=2, seed=3)
    assert some.clients == 2 and set(some.ids) < {"ann", "bob", "cid"}


def test_data_in_client_order_is_not_copied():
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    data = Dataset("ordered", x, np.array([0, 1, 0, 1]), None, None, classes=2, groups=np.array([0, 0, 1, 1]))
    assert np.shares_memory(Federation.from_dataset(data, "natural").x, x)


def test_labels_of_a_data_set_are_wide_whatever_its_file_holds():
    data = Dataset("small", np.zeros((4, 1), np.float32), np.array([0, 1, 0, 1], np.uint8), None, None, classes=2)
    assert Federation.from_dataset(data, "iid", clients=2).y.dtype == np.int64


def test_every_row_of_a_partitioned_set_is_somewhere():
    y = np.repeat(np.arange(5), 20)
    data = Dataset("set", np.arange(100, dtype=np.float32)[:, None], y, None, None, classes=5)
    federation = Federation.from_dataset(data, "dirichlet", clients=7, alpha=0.3, seed=5)
    assert sorted(federation.x.ravel().tolist()) == list(range(100))
    assert (federation.x.ravel().astype(int) // 20 == federation.y).all()  # labels travelled with their rows


def test_the_fingerprint_knows_a_population_again():
    first = Federation.from_arrays(two_clients())
    assert first.fingerprint() == Federation.from_arrays(two_clients()).fingerprint()
    assert len(first.fingerprint()) == 64
    swapped = Federation.from_arrays(two_clients()[::-1])
    others = [
        swapped,
        Federation.from_arrays(two_clients(), name="b"),
        Federation.from_arrays(two_clients(), classes=9),
    ]
    assert first.fingerprint() not in {other.fingerprint() for other in others}


# ---- a million clients ---------------------------------------------------------------------------------------------


def made(k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((4, 50), k, dtype=np.float32), np.arange(4) % 2


def test_a_million_clients_on_demand_take_flat_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    federation = Federation.on_demand(1_000_000, made, 4, classes=2)
    assert federation.sizes is None and federation.x is None and federation.offsets is None
    assert federation.examples == 4_000_000 and federation.size(999_999) == 4
    for k in range(0, 1_000_000, 1000):
        x, y = federation[k]
        assert x[0, 0] == k and len(y) == 4
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in kB
    assert grown < 20_000
    assert federation.fingerprint() != Federation.on_demand(999_999, made, 4, classes=2).fingerprint()


def test_sizes_on_demand_may_be_a_function_or_found_out():
    by_function = Federation.on_demand(3, lambda k: (np.zeros((k + 1, 2)), np.zeros(k + 1)), lambda k: k + 1, classes=2)
    assert [by_function.size(k) for k in range(3)] == [1, 2, 3] and by_function.examples == 6
    unknown = Federation.on_demand(3, lambda k: (np.zeros((k + 1, 2)), np.zeros(k + 1)), None, classes=2)
    assert unknown.size(2) == 3 and unknown.examples == 6


def test_what_is_made_on_demand_is_checked_when_it_is_made():
    federation = Federation.on_demand(9, lambda k: (np.zeros((2, 2)), [0, 5 if k == 4 else 1]), 2, classes=2)
    federation[3]
    with pytest.raises(BadInput, match="client 4 has the label 5, out of range for 2 classes"):
        federation[4]


# ---- refusals ------------------------------------------------------------------------------------------------------


def ok() -> tuple[np.ndarray, list[int]]:
    return np.zeros((2, 3)), [0, 1]


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ([], "there are no clients"),
        ([ok(), (np.zeros((0, 3)), [])], "client 1 has no examples: leave it out"),
        ([ok(), (np.zeros((2, 3)), [0])], "client 1 has 2 examples but 1 labels"),
        ([ok(), (np.zeros((2, 3)), [0, -1])], "client 1 has the label -1: labels must be numbered from 0"),
        ([ok(), (np.zeros((2, 3)), [0, 7])], "client 1 has the label 7, out of range for 5 classes"),
        ([ok(), (np.zeros((2, 3)), [0, 0.5])], "client 1 has labels that are not whole numbers"),
        ([ok(), (np.zeros((2, 3)), ["a", "b"])], "client 1 has labels that are not whole numbers"),
        ([ok(), (np.zeros((2, 3)), [[0, 1], [1, 0]])], "the labels of client 1 have shape"),
        ([ok(), (np.array([[0, np.nan, 0], [1, 1, 1]]), [0, 1])], "client 1 has values that are NaN or infinite"),
        ([ok(), (np.array([[0, np.inf, 0], [1, 1, 1]]), [0, 1])], "client 1 has values that are NaN or infinite"),
        ([ok(), (np.zeros((2, 4)), [0, 1])], "client 1 has examples of shape (4,) but client 0 of (3,)"),
        ([ok(), (np.array([["a"], ["b"]]), [0, 1])], "the examples of client 1 are of type"),
        ([(np.zeros((2, 3)), [1, 1])], "every training label is 1"),
    ],
)
def test_refusals_are_one_sentence(clients, sentence):
    with pytest.raises(BadInput) as refused:
        Federation.from_arrays(clients, classes=5)
    text = str(refused.value)
    assert sentence in text
    assert "\n" not in text and text.endswith(".") and text.count(". ") == 0


def test_refusals_name_the_natural_id():
    with pytest.raises(BadInput, match=r"client 1 \(bob\) has no examples"):
        Federation.from_arrays([ok(), (np.zeros((0, 3)), [])], ids=["ann", "bob"])


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Federation.from_arrays([ok()], test=(np.zeros((1, 4)), [0])), "test examples have shape"),
        (lambda: Federation.from_arrays([ok()], test=(np.zeros((1, 3), np.uint8), [0])), "give both in the same type"),
        (
            lambda: Federation.from_arrays([ok()], test=(np.zeros((1, 3)), [9]), classes=2),
            "the test set has the label 9",
        ),
        (lambda: Federation.from_arrays([ok()], ids=["a", "b"]), "give one id per client"),
        (lambda: Federation.from_arrays([ok()], local_tests=[ok(), ok()]), "give one per client"),
        (lambda: Federation.from_dataset("no-such-data", "iid", 3), "'no-such-data' is not a data set"),
        (lambda: Federation.on_demand(0, made, 4, classes=2), "clients must be a whole number"),
        (lambda: Federation.on_demand(5, made, 0, classes=2), "size must be a whole number"),
        (lambda: Federation.on_demand(5, made, 4, classes=1), "classes must be a whole number of at least 2"),
    ],
)
def test_other_refusals(build, sentence):
    with pytest.raises(BadInput, match=sentence):
        build()


def test_there_is_no_client_beyond_the_last():
    with pytest.raises(IndexError):
        Federation.from_arrays(two_clients())[2]


# ---- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_of_mixed_files_is_a_federation(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    np.savez(tmp_path / "client2.npz", x=np.array([[1.0, 2.0]]), y=np.array([1]))
    (tmp_path / "client10.csv").write_text("a,label,b\n3,0,4\n5,1,6\n")
    table = pyarrow.table({"a": [7.0], "b": [8.0], "label": [1]})
    parquet.write_table(table, tmp_path / "client11.parquet")
    (tmp_path / "test.csv").write_text("9,10,0\n")
    (tmp_path / "notes.txt").write_text("not data")
    federation = Federation.from_folder(tmp_path)
    assert federation.ids == ("client2", "client10", "client11")
    assert federation.sizes.tolist() == [1, 2, 1]
    assert federation[1][0].tolist() == [[3, 4], [5, 6]] and federation[1][1].tolist() == [0, 1]
    assert federation[2][0].tolist() == [[7, 8]]
    assert federation.test[0].tolist() == [[9, 10]] and federation.test[1].tolist() == [0]
    assert federation.name == tmp_path.name


def test_the_label_column_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_text("kind,v\n0,5\n1,6\n")
    assert Federation.from_folder(tmp_path, label="kind")[0][0].tolist() == [[5], [6]]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "has no client files"),
        ({"test.csv": "1,0\n"}, "has no client files"),
        ({"a.csv": ""}, "is empty"),
        ({"a.csv": "x,label\n"}, "has a heading but no examples"),
        ({"a.csv": "x,label\n1,0\n2\n"}, "row 3 of .* has 1 fields instead of 2"),
        ({"a.csv": "x,label\n1,0\nred,1\n"}, "row 3 of .*a.csv, column 'x', holds text, not a number"),
        (
            {"a.csv": "x,label\n1,0\n2,1\n", "b.csv": "x,z,label\n1,1,0\n"},
            "b.csv has a column 'z' and .*a.csv has none",
        ),
        ({"a.csv": "x,label\n1,0\nnan,1\n"}, "row 3 of .*a.csv, column 'x', is empty"),
        ({"a.csv": "1\n2\n"}, "has 1 columns"),
        ({"a.npz": "nonsense"}, "cannot be read as .npz"),
        ({"a.csv": "1,0\n2,1\n", "a.npz": "x"}, "two files for the client a"),
        ({"a.csv": "1,0\n2,1\n", "test.csv": "1,0\n", "test.npz": ""}, "has 2 test files"),
    ],
)
def test_folders_that_are_refused(tmp_path, files, sentence):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=sentence):
        Federation.from_folder(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="is not a folder"):
        Federation.from_folder(tmp_path / "nowhere")
    (tmp_path / "a.csv").write_text("1,0\n2,1\n")
    with pytest.raises(BadInput, match="has no column 'kind'"):
        Federation.from_folder(tmp_path, label="kind")


def test_an_npz_with_pickled_objects_is_not_opened(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"run": "me"}], dtype=object), y=np.array([0]))
    with pytest.raises(BadInput, match="cannot be read as .npz"):
        Federation.from_folder(tmp_path)
