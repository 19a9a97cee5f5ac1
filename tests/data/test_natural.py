"""Natural federations that travel as pickles: read without trusting them."""

from __future__ import annotations

import io
import lzma
import pickle
import sys
import types

import numpy as np
import pytest

from sordino.data import natural
from sordino.data.unpickle import table
from sordino.errors import BadInput
from sordino.federation.population import Federation


def test_watch_windows_by_subject():
    recordings = [np.full((1300, 6), i, dtype=np.float64) for i in range(4)]
    fields = {"X": recordings, "y": np.array([0, 6, 0, 6]), "subject": np.array([5, 5, 2, 2]), "y_labels": ["a", "b"]}
    file = io.BytesIO()
    np.save(file, np.array(fields, dtype=object), allow_pickle=True)
    federation = Federation.from_dataset(natural.watch(file.getvalue()), "natural")
    assert (
        federation.ids == ("subject 2", "subject 5") and federation.input_shape == (6, 128) and federation.classes == 7
    )
    # 1,300 samples hold ten windows, of which the last two are held out.
    assert federation.sizes.tolist() == [16, 16] and federation.test[0].shape == (8, 1 * 6, 128)
    assert set(federation[0][0][:, 0, 0]) == {2, 3} and federation.local_test(1)[1].tolist() == [0, 0, 6, 6]


@pytest.fixture
def pickled(monkeypatch):
    """Pickles a table as pandas does, without pandas: classes of its names that say the same of themselves."""

    def module(name: str, **members) -> None:
        made = types.ModuleType(name)
        for key, member in members.items():
            member.__module__, member.__qualname__ = name, key
            setattr(made, key, member)
        monkeypatch.setitem(sys.modules, name, made)

    def new_index(kind, fields): ...

    def unpickle_block(values, placement, ndim): ...

    class Index: ...

    class RangeIndex: ...

    class Manager:
        def __init__(self, blocks, axes):
            self.blocks, self.axes = blocks, axes

        def __reduce__(self):
            return Manager, (self.blocks, self.axes)

    class Frame: ...

    class Call:
        def __init__(self, function, *arguments):
            self.call = function, arguments

        def __reduce__(self):
            return self.call

    for parent in ("pandas", "pandas.core", "pandas.core.internals", "pandas.core.indexes", "pandas._libs"):
        module(parent)
    module("pandas.core.frame", DataFrame=Frame)
    module("pandas.core.internals.managers", BlockManager=Manager)
    module("pandas.core.indexes.base", Index=Index, _new_Index=new_index)
    module("pandas.core.indexes.range", RangeIndex=RangeIndex)
    module("pandas._libs.internals", _unpickle_block=unpickle_block)

    def dump(columns: dict[str, np.ndarray]) -> bytes:
        whole = [name for name, values in columns.items() if values.dtype.kind == "i"]
        names = list(columns)
        blocks = [
            Call(unpickle_block, np.stack([columns[n] for n in whole]), np.array([names.index(n) for n in whole]), 2)
        ]
        for name in names:
            if name not in whole:
                at = names.index(name)
                blocks.append(Call(unpickle_block, columns[name][None], slice(at, at + 1, 1), 2))
        heading = Call(new_index, Index, {"data": np.array(names, dtype=object), "name": None})
        rows = Call(new_index, RangeIndex, {"name": None, "start": 0, "stop": 9, "step": 1})
        frame = Frame()
        frame.__dict__ = {"_mgr": Manager(tuple(blocks), [heading, rows]), "_typ": "dataframe", "attrs": {}}
        return pickle.dumps(frame, protocol=5)

    return dump


def chemistry() -> dict[str, np.ndarray]:
    return {
        "school": np.array([7, 3, 7, 7, 7, 7, 3]),
        "score": np.array([0, 2, 4, 6, 8, 10, 10]),
        "gender": np.array(["F", "M", "F", "F", "M", "M", "F"], dtype=object),
        "age": np.array([6, 0, 0, -6, 0, 0, 3]),
        "gcsescore": np.array([6.0, 7.0, 5.0, 6.0, 8.0, 6.5, 6.0]),
    }


def test_a_table_comes_out_as_it_went_in(pickled):
    columns = table(pickled(chemistry()), "here")
    assert list(columns) == list(chemistry())
    assert all((columns[name] == values).all() for name, values in chemistry().items())


def test_chem97_by_school(pickled):
    federation = Federation.from_dataset(natural.chem97(lzma.compress(pickled(chemistry()))), "natural")
    assert federation.ids == ("school 3", "school 7") and federation.classes == 6
    assert federation.sizes.tolist() == [2, 4]  # the last of five pupils is held out, of two none
    assert federation[0][1].tolist() == [1, 5] and federation[0][0][0].tolist() == [0, 0, 1, 1]
    assert federation.local_test(1)[1].tolist() == [5] and len(federation.local_test(0)[1]) == 0


def test_a_table_that_asks_for_more_is_refused():
    class Malice:
        def __reduce__(self):
            return print, ("run",)

    for content in (pickle.dumps(Malice()), pickle.dumps({"a": 1}), b"nonsense"):
        with pytest.raises(BadInput, match="is not a plain table"):
            table(content, "here")
