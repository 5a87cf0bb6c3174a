# Merge of partial states, output gate, soft-cap, scale and kv_append against numpy float64, over the C ABI.
from __future__ import annotations

import numpy as np
import pytest

import abi
import ops_twin as twin
from attention_cases import Rows, struct
from caches import LAYOUTS, PAGED, Cache, PageRules, contiguous, int32, packed, paged
from elements import CODES, TYPES, decode, encode, poisoned, round_to, ulp


def within(got: np.ndarray, want: np.ndarray, dtype: str) -> bool:
    """One step of the type, or a few of fp32's in the value that was rounded."""
    return bool(np.all(np.abs(got - want) <= ulp(want, dtype) + 1e-6 * np.abs(want) + 1e-30))


def merge_case(seed: int, dtype: str, out_dtype: str):
    rng = np.random.default_rng([seed, 4])
    states, rows, heads, dim = (
        int(n) for n in (rng.integers(0, 5), rng.integers(1, 5), rng.integers(1, 4), 24)
    )
    lse = np.float64(np.float32(rng.standard_normal((states, rows, heads)) * 3))
    lse[rng.random(lse.shape) < 0.25] = -np.inf
    o = round_to(rng.standard_normal((states, rows, heads, dim)), dtype)
    o[lse == -np.inf] = np.nan  # an empty state's values are not read
    sinks = np.float64(np.float32(rng.standard_normal(heads))) if seed % 2 else None
    out, out_lse = poisoned(rows * heads * dim, out_dtype), poisoned(rows * heads, "fp32")
    row, state = heads * dim, rows * heads * dim
    fields = {
        "dtype": CODES[dtype], "out_dtype": CODES[out_dtype], "states": states, "heads": heads, "v_head_dim": dim,
        "rows": rows, "o": encode(o, dtype).reshape(-1), "o_state_stride": state, "o_row_stride": row,
        "o_head_stride": dim, "lse": lse.astype(np.float32).reshape(-1), "lse_state_stride": rows * heads,
        "lse_row_stride": heads, "lse_head_stride": 1, "out": out, "out_row_stride": row, "out_head_stride": dim,
        "out_lse": out_lse, "out_lse_row_stride": heads, "out_lse_head_stride": 1,
    }  # fmt: skip
    if sinks is not None:
        fields["sinks"] = sinks.astype(np.float32)
    abi.call("tw_merge_states", abi.make("tw_merge_states_args", **fields))
    shape = (rows, heads, dim)
    return (
        o,
        lse,
        sinks,
        decode(out, out_dtype).reshape(shape),
        out_lse.reshape(rows, heads).astype(np.float64),
    )


@pytest.mark.parametrize(
    "dtype, out_dtype", [(t, t) for t in TYPES] + [("bf16", "fp32"), ("fp32", "fp16")]
)
def test_merge_agrees_with_the_twin(dtype: str, out_dtype: str):
    for seed in range(60):
        o, lse, sinks, got, got_lse = merge_case(seed, dtype, out_dtype)
        want, want_lse = twin.merge(o, lse, sinks)
        assert np.all(np.isfinite(got)), seed
        scale = np.max(np.abs(want), initial=0.0)
        assert np.all(np.abs(got - want) <= ulp(want, out_dtype) + 1e-6 * scale), seed
        empty = want_lse == -np.inf
        assert np.array_equal(got_lse == -np.inf, empty), seed
        assert np.all(
            np.abs(got_lse[~empty] - want_lse[~empty]) <= 1e-6 * (1 + np.abs(want_lse[~empty]))
        ), seed


@pytest.mark.parametrize("dtype", TYPES)
def test_gate_agrees_with_the_twin(dtype: str):
    rng = np.random.default_rng(5)
    rows, heads, dim = 7, 3, 40
    o = round_to(rng.standard_normal((rows, heads, dim)), dtype)
    g = round_to(rng.standard_normal((rows, heads, dim)) * 8, dtype)
    data, gates = encode(o, dtype), encode(g, dtype)
    abi.call("tw_output_gate", abi.make(
        "tw_output_gate_args", dtype=CODES[dtype], rows=rows, heads=heads, head_dim=dim, o=data, gate=gates,
        o_row_stride=heads * dim, o_head_stride=dim, gate_row_stride=heads * dim, gate_head_stride=dim,
    ))  # fmt: skip
    assert within(decode(data, dtype), round_to(twin.gate(o, g), dtype), dtype)
    assert np.array_equal(decode(gates, dtype), g)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("function", ["tw_softcap", "tw_scale"])
def test_elementwise_agrees_with_the_twin(function: str, dtype: str):
    x = round_to(np.random.default_rng(6).standard_normal(1037) * 40, dtype)
    data = encode(x, dtype)
    value = 30.0 if function == "tw_softcap" else -0.37
    exact = np.float64(np.float32(value))
    args = abi.make("tw_elementwise_args", dtype=CODES[dtype], x=data, n=x.size, value=value)
    abi.call(function, args)
    want = twin.softcap(x, exact) if function == "tw_softcap" else x * exact
    assert within(decode(data, dtype), round_to(want, dtype), dtype)


def make_cache(rng: np.random.Generator, layout: str, dtype: str, lens: list[int]) -> Cache:
    cache = Cache(layout, dtype, lens)
    if layout in PAGED:
        rules = PageRules(1 if layout == "token" else 3, bool(rng.integers(0, 2)), "hole")
        paged(rng, cache, rules)
    else:
        (contiguous if layout == "contiguous" else packed)(rng, cache)
    return cache


def expect_pools(cache: Cache, written: dict) -> None:
    """Every slot of `written` holds its row and all else is still NaN."""
    for pool, s, which in ((cache.k, cache.k_strides, 0), (cache.v, cache.v_strides, 1)):
        want = poisoned(s.elements, cache.dtype)
        for (block, row), values in written.items():
            for head, x in enumerate(values[which]):
                at = block * s.block + row * s.token + head * s.head
                want[at : at + x.size] = encode(x, cache.dtype)
        assert pool.tobytes() == want.tobytes()


@pytest.mark.parametrize("form", ["dense", "ragged", "pairs", "slots"])
@pytest.mark.parametrize("dtype, kv_dtype", [(a, b) for a in TYPES for b in TYPES])
def test_kv_append_writes_its_rows_rounded_once_and_nothing_else(
    form: str, dtype: str, kv_dtype: str
):
    for seed, layout in enumerate(LAYOUTS):
        if form == "slots" and layout not in ("packed", "block"):
            continue
        rng = np.random.default_rng([seed, 7])
        counts = [int(n) for n in rng.integers(0, 4, 3)] if form != "dense" else [2] * 3
        lens = (
            [max(counts) + 5] * 3
            if layout == "block_scalar"
            else [n + int(rng.integers(0, 9)) for n in counts]
        )
        cache = make_cache(rng, layout, kv_dtype, lens)
        cache.allocate(rng, 2, (16, 24))
        rows = {
            name: Rows(counts, 2, dim, dtype, "blhd", form != "dense")
            for name, dim in (("k", 16), ("v", 24))
        }
        values = {
            n: [round_to(rng.standard_normal((c, 2, r.dim)), dtype) for c in counts]
            for n, r in rows.items()
        }
        fields = {"dtype": CODES[dtype]}
        for name, r in rows.items():
            r.write(values[name])
            fields |= r.fields(name)
        args = {
            "kv_dtype": CODES[kv_dtype],
            "batch": 3,
            "kv_heads": 2,
            "head_dim": 16,
            "v_head_dim": 24,
        }
        places = place_rows(rng, form, cache, counts, args)
        args |= {"rows": struct("tw_new_kv", fields), "kv": cache.struct()}
        abi.call("tw_kv_append", abi.make("tw_kv_append_args", **args))
        flat = {name: [row for request in v for row in request] for name, v in values.items()}
        written = {p: (flat["k"][i], flat["v"][i]) for i, p in enumerate(places) if p is not None}
        expect_pools(cache, written)


def place_rows(
    rng: np.random.Generator, form: str, cache: Cache, counts: list[int], args: dict
) -> list:
    """Where each row goes; writes the arrays that say so into `args`."""
    total = sum(counts)
    ends = [(r, cache.lens[r] - n + i) for r, n in enumerate(counts) for i in range(n)]
    if form == "dense":
        args["q_len"] = counts[0]
    elif form == "ragged":
        args |= {"q_indptr": int32(np.concatenate([[0], np.cumsum(counts)])), "total_q": total}
    elif form == "pairs":
        every = [(r, j) for r, n in enumerate(cache.lens) for j in range(n)]
        ends = [every[i] for i in rng.permutation(len(every))[:total]]
        pairs = np.array(ends, dtype=np.int32).reshape(-1, 2)
        args |= {
            "total_q": total,
            "batch_indices": int32(pairs[:, 0]),
            "positions": int32(pairs[:, 1]),
        }
    else:
        size = cache.fields.get("page_size", 0)
        capacity = cache.blocks * size if size else cache.rows
        slots = rng.permutation(capacity)[:total]
        slots[rng.random(total) < 0.2] = -1
        args |= {"total_q": total, "slot_mapping": int32(slots)}
        cache.fields = (
            {"page_size": size, "num_pages": cache.blocks} if size else {"kv_capacity": cache.rows}
        )
        return [None if s < 0 else (s // size, s % size) if size else (0, s) for s in slots]
    return [cache.place[r][j] for r, j in ends]
