"""A model that takes a dictionary or a tuple, as a model that takes rows of one array (`data.layout`)."""

from __future__ import annotations

from torch import Tensor, nn

from sordino.data.layout import Layout
from sordino.errors import BadInput


class Packed(nn.Module):
    """Takes rows apart, calls the model, and keeps its scores: the tensor that it gives, or what it calls `logits`."""

    def __init__(self, model: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, rows: Tensor) -> Tensor:
        parts, at = {}, 0
        for field in self.layout.fields:
            part = rows[:, at : at + field.size].reshape(-1, *field.shape)
            whole = field.whole and rows.dtype.is_floating_point
            parts[field.name] = part.round().long().clamp(min=0) if whole else part
            at += field.size
        return scores(self.model(**parts) if self.layout.named else self.model(*parts.values()))


def scores(out: object) -> Tensor:
    """The scores in what a model gives back."""
    if isinstance(out, Tensor):
        return out
    if isinstance(out, dict) and isinstance(out.get("logits"), Tensor):
        return out["logits"]
    found = getattr(out, "logits", None)  # Hugging Face's outputs
    if isinstance(found, Tensor):
        return found
    if isinstance(out, tuple) and out and isinstance(out[0], Tensor):
        return out[0]
    raise BadInput(
        f"the model gives a {type(out).__name__}: it must give a tensor of scores, or something with logits."
    )


def packed(model: nn.Module, layout: Layout | None) -> nn.Module:
    """A model that takes rows of numbers, if its examples are of several arrays; else the model as it is."""
    return model if layout is None else Packed(model, layout)


def unpacked(model: nn.Module) -> nn.Module:
    """The user's own module."""
    return model.model if isinstance(model, Packed) else model
