"""Which example every number of a forward pass belongs to, followed through PyTorch's operations (see `independence`).

Numbers that are moved (view, flip, cat) take their owners with them, numbers that are combined must have one owner in
common, and an operation that is not known here proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from sordino.plain import Json

NONE = -1  # the owner of a constant
_FAR = 1 << 14

_VIEW = set(  # share the memory of their input, and so do their owners
    "view reshape _reshape_alias t transpose permute expand squeeze unsqueeze slice select split unbind alias detach "
    "split_with_sizes unfold diagonal narrow movedim lift_fresh".split()
)
_MOVE = set(  # make new numbers, each a copy of one; indices must be constants
    "_unsafe_view clone _to_copy cat stack flip roll repeat pixel_shuffle pixel_unshuffle channel_shuffle index "
    "index_select reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d unsafe_split unsafe_chunk".split()
)
_MAKE = set(
    "empty_like zeros_like ones_like full_like rand_like randn_like zeros ones full empty arange new_zeros new_ones "
    "new_full new_empty scalar_tensor".split()
)
_OVERWRITE = set("bernoulli_ uniform_ normal_ zero_ fill_".split())  # with constants or draws
_REDUCE = set(  # along the dimensions that they name
    "sum mean amax amin max min argmax argmin var std var_mean prod linalg_vector_norm norm logsumexp all any".split()
)
_ALONG = set("_softmax _log_softmax softmax log_softmax cumsum cumprod sort logcumsumexp".split())  # keep the shape
_SAMPLE = set(  # every sample of the first dimension by itself
    "convolution max_pool2d_with_indices max_pool3d_with_indices max_pool1d max_pool2d avg_pool1d avg_pool2d avg_pool3d "
    "adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d upsample_bicubic2d "
    "native_group_norm mkldnn_max_pool2d".split()
)


class Mixes(Exception):
    """Examples are combined, or an operation is not known to keep them apart."""


class Owners(TorchDispatchMode):
    """Follows owners through every operation below it."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.of = n, WeakIdKeyDictionary()

    def give(self, t: Tensor, owners: Tensor) -> Tensor:
        """New owners, in memory of the same order as the numbers: what is a view of these is then a view of those."""
        with _disable_current_modes():
            self.of[t] = torch.empty_like(t, dtype=torch.int16).copy_(owners)
        return t

    def claim(self, t: Tensor, dim: int = 0) -> Tensor:
        """Blocks of rows along `dim` belong to the examples, in order."""
        if t.dim() <= dim or not t.shape[dim] or t.shape[dim] % self.n:
            raise Mixes("rows are not those of the examples")
        with _disable_current_modes():
            own = torch.arange(self.n, dtype=torch.int16, device=t.device).repeat_interleave(t.shape[dim] // self.n)
            return self.give(t, own.view(-1, *(1,) * (t.dim() - dim - 1)).expand(t.shape))

    def owners(self, t: Tensor) -> Tensor:
        """The owner of every number of a tensor; constants have none."""
        found = self.of.get(t)
        if found is None:
            self.give(t, torch.tensor(NONE, dtype=torch.int16, device=t.device))
        return self.of[t]

    def rows(self, x: Tensor) -> None:
        """Raise unless x holds n examples in order, as blocks of rows."""
        with _disable_current_modes():
            owners = self.owners(x)
            if not len(x) or len(x) % self.n:
                raise Mixes("rows are not those of the examples")
            owners = owners.reshape(self.n, -1)
            own = torch.arange(self.n, device=owners.device)[:, None]
            if bool(((owners != own) & (owners != NONE)).any()):
                raise Mixes("rows are not those of the examples, in order")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        with _disable_current_modes():
            self._follow(func, func._schema.name.removeprefix("aten::"), args, kwargs, out)
        return out

    def _follow(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Json, out: Any) -> None:
        if "out" in kwargs:
            raise Mixes("a result is written into a given tensor")
        if name in _MAKE:
            return
        if name in _OVERWRITE:
            if len(_tensors(args)) > 1:
                raise Mixes(name)
            self.owners(args[0]).fill_(NONE)
            return
        if name in _VIEW or name in _MOVE:
            if name == "_to_copy" or name == "clone":
                made: Any = self.owners(args[0])
            else:
                if name in ("index", "index_select"):
                    self._constants(args[1:])
                    made = func(self.owners(args[0]), *args[1:])
                else:
                    made = func(*_mapped(args, self.owners), **_mapped(kwargs, self.owners))
            for t, owners in zip(_tensors(out), _tensors(made), strict=True):
                if name in _VIEW:
                    self.of[t] = owners
                else:
                    self.give(t, owners)
            return
        if name == "constant_pad_nd":
            self.give(out, torch.constant_pad_nd(self.owners(args[0]), args[1], NONE))
        elif (
            name == "as_strided_"
        ):  # pooling names the order of memory anew: the same numbers as long as all are contiguous
            owners = self.owners(out)
            if owners.shape != out.shape or not owners.is_contiguous() or not out.is_contiguous():
                raise Mixes(name)
        elif name == "copy_":
            self.owners(args[0]).copy_(self.owners(args[1]))
        elif torch.Tag.pointwise in func.tags or name in ("where", "native_dropout", "masked_fill", "masked_fill_"):
            self._pointwise(name, args, kwargs, out)
        elif name in _REDUCE:
            self._reduce(name, args, kwargs, out)
        elif name in _ALONG:
            owners = self.owners(args[0])
            dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
            dim = -1 if isinstance(dim, bool) else dim
            for t in _tensors(out):
                self.give(t, self._common(owners, (dim,), True).expand(owners.shape))
        elif name in _SAMPLE:
            self._constants(args[1:])
            owners = self._common(self.owners(args[0]).flatten(1), (1,), False)
            for t in _tensors(out):
                if not t.numel():
                    continue
                if t.shape[0] != len(owners):
                    raise Mixes(name)
                self.give(t, owners.view(-1, *(1,) * (t.dim() - 1)).expand(t.shape))
        elif name in ("mm", "bmm"):
            self.give(out, self._product(args[0], args[1]))
        elif name in ("addmm", "baddbmm"):
            self.give(out, self._agree([self._product(args[1], args[2]), self.owners(args[0])], out.shape))
        elif name == "native_layer_norm":
            self._constants(args[2:])
            owners, last = self.owners(args[0]), tuple(range(args[0].dim() - len(args[1]), args[0].dim()))
            common = self._common(owners, last, True)
            self.give(out[0], common.expand(owners.shape))
            for t in out[1:]:
                self.give(t, common)
        elif name == "embedding":
            self._constants(args[:1])
            self.give(out, self.owners(args[1])[..., None].expand(out.shape))
        else:
            raise Mixes(f"aten::{name} is not known to keep examples apart")

    def _pointwise(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        for t in _tensors(out):
            made = self._agree([self.owners(a) for a in _tensors([*args, *kwargs.values()])], t.shape)
            if t in self.of and any(t is a for a in args[:1]):
                self.of[t].copy_(made)  # in place: views of the same memory see it
            else:
                self.give(t, made)

    def _reduce(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        if len(_tensors([*args, *kwargs.values()])) > 1:  # maximum of two tensors under another name
            return self._pointwise(name, args, kwargs, out)
        owners = self.owners(args[0])
        # norm and linalg_vector_norm name their order first
        place = 2 if name in ("linalg_vector_norm", "norm") else 1
        dims = args[place] if len(args) > place else kwargs.get("dim")
        dims = tuple(range(owners.dim())) if dims is None or dims == [] else dims
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        common = self._common(owners, dims, True)
        for t in _tensors(out):
            if t.numel() != common.numel():
                raise Mixes(name)
            self.give(t, common.reshape(t.shape))

    def _common(self, owners: Tensor, dims: tuple[int, ...], keep: bool) -> Tensor:
        """The one owner along `dims`."""
        if owners.dim() == 0:
            return owners
        high = owners.amax(dims, keepdim=keep)
        low = owners.masked_fill(owners == NONE, _FAR).amin(dims, keepdim=keep)
        if bool(((high != NONE) & (high != low)).any()):
            raise Mixes("examples are combined")
        return high

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self._common(self.owners(a), (-1,), True), self._common(self.owners(b), (-2,), True)
        return self._agree([left, right], torch.Size([*a.shape[:-1], b.shape[-1]]))

    def _agree(self, all_: list[Tensor], shape: torch.Size) -> Tensor:
        made = torch.full(shape, NONE, dtype=torch.int16, device=all_[0].device)
        for owners in all_:
            owners = owners.expand(shape)
            if bool(((made != NONE) & (owners != NONE) & (made != owners)).any()):
                raise Mixes("examples are combined")
            made = torch.where(made == NONE, owners, made)
        return made

    def _constants(self, args: object) -> None:
        for t in _tensors(args):
            if t in self.of and bool((self.of[t] != NONE).any()):
                raise Mixes("a weight depends on an example")


def _tensors(values: object) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        return _tensors(list(values.values()))
    return [t for v in values for t in _tensors(v)] if isinstance(values, (list, tuple)) else []


def _mapped(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, dict):
        return {k: _mapped(v, change) for k, v in values.items()}
    return type(values)(_mapped(v, change) for v in values) if isinstance(values, (list, tuple)) else values
