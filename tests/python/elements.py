# Element types in numpy: what a number becomes in bf16, fp16 or fp32, from the definition of
# rounding to nearest even, and arrays of their bits. Shares no code with the library.
from __future__ import annotations

import numpy as np

from abi import CONSTANTS

TYPES = ("bf16", "fp16", "fp32")
CODES = {name: CONSTANTS[f"TW_DTYPE_{name.upper()}"] for name in TYPES}
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}

# Bits of the significand (with the hidden one), exponent of the smallest and the largest normal number.
_FORMATS = {"bf16": (8, -126, 127), "fp16": (11, -14, 15), "fp32": (24, -126, 127)}


def round_to(x: np.ndarray, dtype: str) -> np.ndarray:
    """float64 values of `x` rounded once to `dtype`."""
    x = np.asarray(x, dtype=np.float64)
    bits, smallest, largest = _FORMATS[dtype]
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0.0)
    _, exponent = np.frexp(safe)
    step = np.maximum(exponent - bits, smallest - bits + 1)
    rounded = np.ldexp(np.rint(np.ldexp(safe, -step)), step)
    limit = np.ldexp(2.0 - 2.0 ** (1 - bits), largest)
    rounded = np.where(np.abs(rounded) > limit, np.copysign(np.inf, rounded), rounded)
    return np.where(finite, rounded, x)


def encode(x: np.ndarray, dtype: str) -> np.ndarray:
    """The stored form of `x`: float32, or the 16 bits of an element as uint16."""
    rounded = round_to(x, dtype)
    if dtype == "fp32":
        return rounded.astype(np.float32)
    if dtype == "fp16":
        return rounded.astype(np.float16).view(np.uint16)
    return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "fp32":
        return stored.astype(np.float64)
    if dtype == "fp16":
        return stored.view(np.float16).astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def ulp(x: np.ndarray, dtype: str) -> np.ndarray:
    """Distance of neighbouring elements at `x`."""
    bits, smallest, _ = _FORMATS[dtype]
    _, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    return np.ldexp(1.0, np.maximum(exponent - bits, smallest - bits + 1))


def poisoned(count: int, dtype: str) -> np.ndarray:
    """`count` elements that are all NaN, 64-byte aligned."""
    item = BYTES[dtype]
    raw = np.full(count * item + 64, 0xFF, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * item].view(np.float32 if dtype == "fp32" else np.uint16)
