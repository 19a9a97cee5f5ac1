"""A proof that no example of a batch touches another: which example every number of a forward pass belongs to.

A model that was traced with `torch.fx` is a fixed list of calls of PyTorch's own functions and layers: no code of the user
runs any more, no control flow depends on data, nothing is remembered from call to call. `prove` runs this list once, on
synthetic input of the fixed shape of every later batch, and gives each number an *owner*: the example that it was computed
from, or none. Numbers that are moved (view, flip, cat) take their owners with them, numbers that are combined must have
one owner in common, and an operation that is not known here proves nothing. What the input holds makes no difference,
since only operations and shapes decide.

A layer with weights of its own must get rows of examples, in order: book-keeping (`ghost_modules`) cuts there.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
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
_ROWS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.Embedding, nn.GroupNorm,
    nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


class Mixes(Exception):
    """Examples are combined, or an operation is not known to keep them apart."""


def static(model: fx.GraphModule) -> None:
    """Raise `Mixes` unless the graph calls PyTorch's own functions and layers only, and no hook runs in between."""
    layers = dict(model.named_modules())
    if _hooked(model):
        raise Mixes("a hook is installed")
    for node in model.graph.nodes:
        if node.op == "call_function" and not _known(node.target):
            raise Mixes(f"{node.target} is not a function of PyTorch")
        if node.op == "call_module":
            layer = layers[str(node.target)]
            for part in layer.modules():
                if getattr(nn, type(part).__name__, None) is not type(part) or "forward" in vars(part):
                    raise Mixes(f"{type(part).__name__} is not a layer of PyTorch")
                if _hooked(part):
                    raise Mixes("a hook is installed")


def _hooked(module: nn.Module) -> bool:
    return any(
        vars(module).get(kind)
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )


def _known(target: object) -> bool:
    rooms = (torch, F, operator, math, builtins, torch.Tensor, torch.special, torch.linalg, torch._C._nn, torch.nn.init)
    name = getattr(target, "__name__", "")
    if any(getattr(room, name, None) is target for room in rooms):
        return target not in (eval, exec, setattr, delattr, open, print, input)
    return any(target is found for found in _WRAPPED)


_WRAPPED = [f for f in vars(F).values() if callable(f) and getattr(f, "__module__", "").startswith("torch")]


def prove(model: fx.GraphModule, x: Tensor) -> None:
    """Raise `Mixes` unless row i of ``model(x)`` is a function of x[i] and constants alone, for every input of this shape."""
    static(model)
    with torch.no_grad(), _Owners(len(x)) as mode:
        mode.claim(x)
        out = _Walk(model, mode).run(x)
    if not isinstance(out, Tensor) or out.dim() < 1 or len(out) != len(x):
        raise Mixes("the output has no row for each example")
    mode.rows(out)


class _Walk(fx.Interpreter):
    """Runs a traced model; layers with weights are taken as wholes."""

    def __init__(self, model: fx.GraphModule, mode: _Owners) -> None:
        super().__init__(model)
        self.mode = mode

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: Json) -> Any:
        layer = self.fetch_attr(target)
        if type(layer) is nn.LSTM:
            return self._lstm(layer, *args, **kwargs)
        if type(layer) not in _ROWS or kwargs or len(args) != 1:
            return super().call_module(target, args, kwargs)
        (x,) = args
        if not _batched(layer, x):
            raise Mixes(f"{type(layer).__name__} gets an input without a batch")
        self.mode.rows(x)
        with _disable_current_modes():
            out = layer(x)
        return self.mode.claim(out)

    def _lstm(self, layer: nn.LSTM, x: Tensor, hx: Any = None) -> Any:
        at, n = 0 if layer.batch_first else 1, self.mode.n
        if x.dim() != 3 or hx is not None or x.shape[at] != n:
            raise Mixes("an LSTM whose batch is not that of the examples")
        self.mode.rows(x.transpose(0, at))
        with _disable_current_modes():
            out, (h, c) = layer(x)
        self.mode.claim(out, at)
        return out, (self.mode.claim(h, 1), self.mode.claim(c, 1))


def _batched(layer: nn.Module, x: Tensor) -> bool:
    """Whether the layer takes the first dimension for samples."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return x.dim() == layer.weight.dim()
    if isinstance(layer, nn.LayerNorm):
        return x.dim() > len(layer.normalized_shape)
    norms: dict[type[nn.Module], int] = {nn.InstanceNorm1d: 3, nn.InstanceNorm2d: 4, nn.InstanceNorm3d: 5}
    exact = norms.get(type(layer))
    return x.dim() == exact if exact else x.dim() >= (1 if isinstance(layer, nn.Embedding) else 2)


class _Owners(TorchDispatchMode):
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
