# The small operations in numpy float64, from the formulas in the documentation: whole arrays at a
# time, rounded to an element type exactly where the contract names a rounding.
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elements import round_to


@dataclass
class Norm:
    mode: str = "none"  # none, weight, one_plus
    two_step: bool = False
    eps: float = 0.0
    weight: np.ndarray | None = None  # [dim]


def inverse_rms(x: np.ndarray, eps: float) -> np.ndarray:
    return 1.0 / np.sqrt(
        np.mean(np.square(x), axis=-1, keepdims=True) + np.float64(np.float32(eps))
    )


def rms(x: np.ndarray, eps: float, dtype: str) -> np.ndarray:
    """Weightless."""
    return round_to(x * inverse_rms(x, eps), dtype)


def normalise(x: np.ndarray, norm: Norm, dtype: str) -> np.ndarray:
    if norm.mode == "none":
        return x
    weight = norm.weight
    if norm.mode == "one_plus":
        weight = (np.float32(1) + weight.astype(np.float32)).astype(np.float64)
    scaled = x * inverse_rms(x, norm.eps)
    if norm.two_step:
        scaled = round_to(scaled, dtype)
    return round_to(scaled * weight, dtype)


@dataclass
class Rope:
    cos: np.ndarray  # [positions, rotary_dim / 2]
    sin: np.ndarray
    interleaved: bool = False


def rotate(
    x: np.ndarray, rope: Rope, positions: np.ndarray, two_step: bool, dtype: str
) -> np.ndarray:
    """x [rows, heads, dim], positions [rows] inside the table."""
    half = rope.cos.shape[1]
    lower = np.arange(half) * 2 if rope.interleaved else np.arange(half)
    upper = lower + 1 if rope.interleaved else lower + half
    cos, sin = (table[positions][:, None, :] for table in (rope.cos, rope.sin))
    a, b = x[..., lower], x[..., upper]
    step = (lambda y: round_to(y, dtype)) if two_step else (lambda y: y)
    out = x.copy()
    out[..., lower] = round_to(step(a * cos) - step(b * sin), dtype)
    out[..., upper] = round_to(step(b * cos) + step(a * sin), dtype)
    return out


def merge(
    o: np.ndarray, lse: np.ndarray, sinks: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """o [states, rows, heads, dim], lse [states, rows, heads]: the softmax over all their keys."""
    if o.shape[0] == 0:
        return np.zeros(o.shape[1:]), np.full(lse.shape[1:], -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.logaddexp.reduce(lse, axis=0)
        whole = total if sinks is None else np.logaddexp(total, sinks[None, :])
        share = np.where(lse == -np.inf, 0.0, np.exp(lse - whole[None]))
    values = np.where((lse == -np.inf)[..., None], 0.0, o)
    return np.sum(share[..., None] * values, axis=0), total


def gate(o: np.ndarray, g: np.ndarray) -> np.ndarray:
    return o / (1.0 + np.exp(-g))


def softcap(x: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(x / cap)
