# A second attention in numpy float64, written from the formula in the documentation alone: full
# score matrices, explicit boolean masks. It knows nothing of caches, pages, tiles or chunks.
from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Request:
    """One request as plain numbers: rows x heads x dims, keys x heads x dims."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    present: np.ndarray  # [keys]: the key's page is there
    keep: np.ndarray  # [q_heads, rows, keys]: what the mask leaves
    positions: np.ndarray  # [rows]
    slopes: np.ndarray  # [q_heads]
    sinks: np.ndarray | None  # [q_heads]


@dataclass
class Semantics:
    scale: float
    softcap: float = 0.0
    causal: bool = False
    left: int | None = None
    right: int | None = None


def visible(request: Request, semantics: Semantics) -> np.ndarray:
    """[q_heads, rows, keys]"""
    keys = np.arange(request.k.shape[0])[None, :]
    pos = request.positions[:, None]
    seen = np.broadcast_to(request.present[None, :], (len(request.positions), keys.size)).copy()
    if semantics.causal:
        seen &= keys <= pos
    if semantics.left is not None:
        seen &= keys >= pos - semantics.left
    if semantics.right is not None:
        seen &= keys <= pos + semantics.right
    return seen[None] & request.keep


def logits(request: Request, semantics: Semantics) -> np.ndarray:
    group = request.q.shape[1] // request.k.shape[1]
    k = np.repeat(request.k, group, axis=1)
    scores = semantics.scale * np.einsum("ihd,jhd->hij", request.q, k)
    if semantics.softcap > 0:
        scores = semantics.softcap * np.tanh(scores / semantics.softcap)
    distance = np.abs(request.positions[:, None] - np.arange(k.shape[0])[None, :])
    return scores - request.slopes[:, None, None] * distance[None]


def attend(request: Request, semantics: Semantics) -> tuple[np.ndarray, np.ndarray]:
    """(o [rows, q_heads, v_dim], lse [rows, q_heads])"""
    rows, heads, _ = request.q.shape
    group = heads // request.k.shape[1]
    v = np.where(request.present[:, None, None], request.v, 0.0)
    v = np.repeat(v, group, axis=1)
    scores = logits(request, semantics)
    scores = np.where(visible(request, semantics), scores, -np.inf)
    top = np.max(scores, axis=2, initial=-np.inf)
    sees = top > -np.inf
    weights = np.exp(scores - np.where(sees, top, 0.0)[:, :, None])
    total = weights.sum(axis=2)
    with np.errstate(divide="ignore"):
        lse = np.where(sees, top + np.log(total), -np.inf)
    # The share of all weight, sink included, that each key has: exp(logit - log of the whole).
    whole = lse
    if request.sinks is not None:
        whole = np.logaddexp(lse, request.sinks[:, None])
    shares = np.where(
        sees[:, :, None], np.exp(scores - np.where(sees, whole, 0.0)[:, :, None]), 0.0
    )
    return np.einsum("hij,jhd->ihd", shares, v), lse.T
