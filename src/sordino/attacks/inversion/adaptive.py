"""Distances over what a message tells. A tensor that is zero throughout was not sent (layers that clients keep for themselves): nobody
compares with it. The rest is for an attacker that knows which heuristic defence the clients use; the plan is public, so it does know.

Soteria sets columns of one dense layer to zero. The attacker leaves columns that are zero throughout out of the comparison.

CENSOR sends, for every tensor, a random direction at a right angle to the gradient, as long as the gradient. Averaged over those draws the
message says two things about a tensor: the gradient is at a right angle to it, and as long as it. The attacker asks for just these.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sordino.attacks.inversion.gradient import Distance, Matcher, Slope
from sordino.gradients.flat import Flat


def adapted(matcher: Matcher, plain: Callable[[Tensor], Distance], adaptive: bool) -> Distance:
    """The distance of gradients from the message; if `adaptive`, under the defence that it says was used."""
    defence = matcher.message.defence if adaptive else ""
    if defence == "censor":
        return right_angles(matcher.flat, matcher.target)
    mask = told(matcher.flat, matcher.target, columns=defence == "soteria")
    return plain(matcher.target) if bool(mask.all()) else within(plain, matcher.target, mask)


def told(flat: Flat, target: Tensor, columns: bool) -> Tensor:
    """1 for entries that the message tells about, 0 for tensors (with `columns` also columns of a matrix) that are zero throughout."""
    mask = torch.ones_like(target)
    for slot in flat.slots:
        part = slot.view(target)
        if not bool(part.any()):
            slot.view(mask).zero_()
        elif columns and part.dim() == 2:
            slot.view(mask)[:, (part == 0).all(0)] = 0.0
    return mask if bool(mask.any()) else torch.ones_like(target)  # a message of nothing but zeros is compared as it is


def within(plain: Callable[[Tensor], Distance], target: Tensor, mask: Tensor) -> Distance:
    """The distance over those entries whose `mask` is 1."""
    inner = plain(target * mask)
    return lambda g: inner(g * mask)  # both distances have a slope of zero where gradient and target are zero


def right_angles(flat: Flat, target: Tensor) -> Distance:
    """Mean over the tensors of cos(g, g*)^2 + (|g| / |g*| - 1)^2."""
    places = [slice(slot.offset, slot.offset + slot.size) for slot in flat.slots]
    places = [place for place in places if float(target[place].norm()) > 0]

    def distance(g: Tensor) -> Slope:
        value, slope = g.new_zeros(len(g)), torch.zeros_like(g)
        for place in places:
            part, wanted = g[:, place], target[place]
            long = wanted.norm()
            norm = part.norm(dim=1, keepdim=True).clamp_min(1e-30)
            cos = (part @ wanted)[:, None] / (norm * long)
            ratio = norm / long - 1
            value += (cos.square() + ratio.square())[:, 0]
            by_cos = 2 * cos * (wanted / (norm * long) - cos * part / norm.square())
            slope[:, place] = by_cos + 2 * ratio * part / (norm * long)
        count = max(len(places), 1)
        return value / count, slope, torch.full_like(value, 1 / count)

    return distance
