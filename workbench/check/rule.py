"""The rule of agreement, in numbers: how far a result may be from a float64 run, row by row. Pure functions.

A row is the last dimension, or as many trailing ones as hold `ROW` elements: the largest error of fewer is luck.
That no row is too far off implies that the whole is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROW = 32
# What is allowed beside the reference's own error, in eps of the dtype times the largest magnitude in the row. Float32:
# a sequential sum of 8,192 elements stays below. Half types: one more rounding than the reference made stays below.
FLOORS = {torch.float64: 32.0, torch.float32: 32.0, torch.float16: 1.0, torch.bfloat16: 1.0}
# A row of a gradient may vanish where its terms do not (that of the first query of causal attention is exactly zero):
# its floor is that of so many times its terms, at most this share of the whole gradient's, which it is where nothing is
# known of them. FlashAttention's backward in each dtype stays below.
TERMS = 4.0
SHARE_OF_THE_WHOLE = 0.5
CANCELS = 4.0  # times the whole: terms this large are that of a gradient which is a small difference everywhere
FLIPS = 1e5  # times the whole: so large they seem where shaking has only made a comparison come out otherwise
VANISHES = 1e-12  # of the whole, or of the terms: zero but for the rounding of float64


@dataclass(frozen=True)
class Verdict:
    """Which elements differ (bool, of the output's shape), and the largest error as a share of the allowed one."""

    wrong: Tensor
    share: float


def floor(dtype: torch.dtype) -> float:
    """The share of a row's largest magnitude that may be off in any case.

    >>> floor(torch.float32)
    3.814697265625e-06
    """
    return FLOORS.get(dtype, 1.0) * torch.finfo(dtype).eps


def agrees(
    got: Tensor,
    reference: Tensor,
    true: Tensor,
    dtype: torch.dtype,
    *,
    error: float = 2.0,
    slack: float = 1.0,
    own: Tensor | None = None,
    cancels: bool = False,
    terms: Tensor | None = None,
) -> Verdict:
    """Floating results against the reference's own, and both against a float64 run of it.

    `got`, `reference` and `true` have one shape and are float64; `dtype` is what the first two were computed in.
    `error` is how many times the reference's own error is allowed, `slack` multiplies the floor. `own` is that error
    where it is known from more inputs than this one, float64 of the same shape. `cancels` is for gradients, in which
    a row can be far smaller than what it is a difference of: its `terms`, float64 of the same shape. Two steps between
    denormals are always allowed: there rounding has no relative size.
    """
    misplaced = _misplaced(got, reference, true, dtype)
    target = torch.where(true.isfinite(), true, reference)
    off = _rows(_error(got, target))
    made = _error(reference, target)
    allowed = error * _most(_rows(made if own is None else torch.maximum(made, own)))
    largest = _most(_rows(torch.where(target.isfinite(), target, 0).abs()))
    if cancels and largest.numel():
        largest = torch.maximum(largest, _of_terms(largest, terms))
    allowed = allowed + slack * floor(dtype) * largest
    allowed = allowed + 2 * torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    wrong = (off > allowed).reshape(got.shape) | misplaced
    shares = off / allowed
    shares = torch.where(off == 0, 0, shares)
    share = shares.max().item() if shares.numel() else 0.0
    return Verdict(wrong, float("inf") if misplaced.any() else share)


def _of_terms(largest: Tensor, terms: Tensor | None) -> Tensor:
    """What counts as the magnitude of each row by what it is a difference of; `largest` are the rows' own."""
    whole = largest.max()
    most = SHARE_OF_THE_WHOLE * whole
    if terms is None:
        return most.expand_as(largest)
    of = _most(_rows(torch.where(terms.isfinite(), terms, most)))
    cancel = ((of > CANCELS * whole) & (of < FLIPS * whole)) | (whole <= VANISHES * of)
    capped = torch.where(largest <= VANISHES * whole, most, (TERMS * of).clamp(max=most))
    return torch.where(cancel, of, capped)


def close(got: Tensor, reference: Tensor, true: Tensor, dtype: torch.dtype, atol: float, rtol: float) -> Verdict:
    """The plain rule of `torch.allclose` against the float64 run, for a case that gives its own tolerances."""
    misplaced = _misplaced(got, reference, true, dtype)
    target = torch.where(true.isfinite(), true, reference)
    off = _error(got, target)
    allowed = atol + rtol * torch.where(target.isfinite(), target, 0).abs()
    shares = torch.where(off == 0, 0, off / allowed)
    share = shares.max().item() if shares.numel() else 0.0
    return Verdict((off > allowed) | misplaced, float("inf") if misplaced.any() else share)


def same(got: Tensor, reference: Tensor) -> Verdict:
    """Integers and booleans: equal, every one."""
    wrong = got != reference
    return Verdict(wrong, float("inf") if wrong.any() else 0.0)


def _misplaced(got: Tensor, reference: Tensor, true: Tensor, dtype: torch.dtype) -> Tensor:
    """Where a NaN or an infinity is missing, or stands where neither the reference nor the rounded truth has one."""
    rounded = true.to(dtype)
    if all(bool(x.isfinite().all()) for x in (got, reference, rounded)):  # as nearly always, and much quicker
        return torch.zeros_like(got, dtype=torch.bool)
    kind = _kind(got)
    return (kind != _kind(reference)) & (kind != _kind(rounded))


def _kind(x: Tensor) -> Tensor:
    """0 for finite numbers, 1 for infinity, 2 for its negative, 3 for NaN."""
    return x.isposinf() * 1 + x.isneginf() * 2 + x.isnan() * 3


def _error(x: Tensor, target: Tensor) -> Tensor:
    """The distance where both are finite, else 0: the places of the others are judged by themselves."""
    return torch.where(x.isfinite() & target.isfinite(), (x - target).abs(), 0)


def _rows(x: Tensor) -> Tensor:
    columns = 1
    for size in reversed(x.shape):
        if columns >= ROW:
            break
        columns *= size
    return x.reshape(-1, columns) if x.numel() else x.reshape(0, 1)


def _most(rows: Tensor) -> Tensor:
    return rows.amax(-1, keepdim=True) if rows.numel() else rows
