"""A finished model as ONNX, for any program that runs it. It takes what the schema (or the data's own scale) makes of records."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path

from sordino.errors import BadInput
from sordino.files import write_atomically
from sordino.inference.loading import Trained
from sordino.models.packed import packed


def to_onnx(trained: Trained, out: str | Path) -> Path:
    """Write `out`; the names of inputs and classes lie beside it, in the file's metadata."""
    try:
        import onnx
        import torch
        from torch import onnx as exporter
    except ImportError as error:
        raise BadInput(f"writing ONNX needs {error.name}: pip install 'sordino[onnx]'.") from None
    import numpy as np

    blank = trained.inputs(
        np.zeros((2, *trained.shape), np.float32 if trained.facts.get("features") else _kind(trained))
    )
    example = torch.from_numpy(np.array(blank))
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as place:
            warnings.simplefilter("ignore")
            draft = Path(place) / "model.onnx"
            # ONNX knows this function, and the exporter does not say so; networks for tables begin with it.
            exporter.register_custom_op_symbolic("aten::asinh", lambda graph, x: graph.op("Asinh", x), 9)
            exporter.export(
                packed(trained.module, trained.layout), (example,), str(draft), input_names=["x"], output_names=["scores"],
                dynamic_axes={"x": {0: "examples"}, "scores": {0: "examples"}}, dynamo=False,
            )  # fmt: skip
            made = onnx.load(str(draft))
    except Exception as error:
        raise BadInput(
            f"this model cannot be written as ONNX ({type(error).__name__}); use model.safetensors."
        ) from error
    told = {
        "classes": json.dumps(list(trained.outputs), ensure_ascii=False),
        "task": trained.task,
        "fields": json.dumps(trained.facts.get("layout"), ensure_ascii=False),
        "features": json.dumps(trained.facts.get("features"), ensure_ascii=False),
        "epsilon": str(trained.statement.get("epsilon")),
        "delta": str(trained.statement.get("delta")),
    }
    onnx.helper.set_model_props(made, told)
    write_atomically(Path(out), made.SerializeToString())
    return Path(out)


def _kind(trained: Trained) -> type:
    import numpy as np

    normalise = trained.facts.get("normalise") or {}
    return np.int64 if normalise.get("tokens") else np.float32
