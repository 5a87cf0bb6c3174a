# Random attention calls over every feature: a case is a dictionary of plain choices, build() makes
# the numbers (for the twin) and the ABI structs (for the library) from the same random stream.
from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import abi
import twin
from caches import LAYOUTS, PAGED, Cache, PageRules, contiguous, int32, packed, paged
from elements import BYTES, CODES, TYPES, decode, encode, poisoned, round_to

FEATURES = {
    "q_dtype": TYPES,
    "kv_dtype": TYPES,
    "layout": LAYOUTS,
    "rows": ("dense", "ragged"),
    "q_order": ("blhd", "bhld", "reversed"),
    "group": (1, 2, 3, 7),
    "head_dim": (8, 40, 64),
    "v_head_dim": (0, 8, 24, 72),
    "causal": (False, True),
    "left": (None, 0, 3, 9),
    "right": (None, 0, 4),
    "positions": ("default", "start", "explicit"),
    "mask": ("none", "rank2", "rank3", "rank4", "tree"),
    "softcap": (0.0, 1.5),
    "scale": (0.0, 0.3),
    "alibi": ("none", "head", "batch"),
    "sinks": (False, True),
    "append": ("none", *TYPES),
    "holes": ("none", "hole", "bad"),
    "released": (False, True),
    "threads": (1, 3),
}


def normalise(case: dict) -> dict:
    """Takes back choices that contradict another one."""
    if case["layout"] not in PAGED:
        case |= {"holes": "none", "released": False}
    if case["layout"] == "token":
        case["page_size"] = 1
    if case["append"] != "none" and case["positions"] == "start":
        case["positions"] = "default"  # a start has to agree with the append: it is the default
    return case


def draw_case(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    case = {name: values[int(rng.integers(len(values)))] for name, values in FEATURES.items()}
    case |= {
        "seed": seed,
        "page_size": int(rng.choice([1, 2, 4, 13])),
        "batch": int(rng.integers(1, 4)),
    }
    return normalise(case)


def possible_pairs() -> set:
    """Every pair of two features' values that some case can hold."""
    pairs = set()
    for (a, a_values), (b, b_values) in itertools.combinations(FEATURES.items(), 2):
        for x, y in itertools.product(a_values, b_values):
            trial = {"layout": "block", "append": "none", "positions": "default", a: x, b: y}
            trial = normalise({"holes": "none", "released": False} | trial)
            if trial[a] == x and trial[b] == y:
                pairs.add((a, x, b, y))
    return pairs


def pairs_of(case: dict) -> set:
    return {(a, case[a], b, case[b]) for a, b in itertools.combinations(FEATURES, 2)}


@dataclass
class Built:
    case: dict
    args: object
    requests: list[twin.Request]
    semantics: twin.Semantics
    o: list[np.ndarray]  # views of the output, one a request: rows x heads x dims
    lse: list[np.ndarray]
    cache: Cache
    appended: list  # (request, key, k rows, v rows) that have a slot
    status: object


class Rows:
    """Rows x heads x dims of every request in one strided array that is NaN elsewhere."""

    def __init__(
        self, counts: list[int], heads: int, dim: int, dtype: str, order: str, ragged: bool
    ):
        self.dtype, self.dim, self.ragged = dtype, dim, ragged
        align = 16 // BYTES[dtype]
        row = -(-dim // align) * align + align
        batch, longest = (1, sum(counts)) if ragged else (len(counts), max(counts))
        self.head, self.token = (
            (row * max(longest, 1), row) if order == "bhld" else (row, row * heads + align)
        )
        self.batch = max(longest, 1) * row * heads + align * max(longest, 1)
        self.base, self.sign = 0, 1
        if order == "reversed":
            self.base, self.sign = self.token * max(longest - 1, 0), -1
        self.data = poisoned(batch * self.batch + row, dtype)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.counts, self.heads = counts, heads

    def view(self, r: int) -> np.ndarray:
        item = self.data.itemsize
        first = self.base
        first += self.sign * int(self.starts[r]) * self.token if self.ragged else r * self.batch
        shape = (self.counts[r], self.heads, self.dim)
        strides = (self.sign * self.token * item, self.head * item, item)
        return np.lib.stride_tricks.as_strided(self.data[first:], shape, strides)

    def write(self, values: list[np.ndarray]) -> None:
        for r, rows in enumerate(values):
            if rows.size:
                self.view(r)[...] = encode(rows, self.dtype)

    def fields(self, name: str, token: str = "token") -> dict:
        address = self.data.ctypes.data + self.base * self.data.itemsize
        return {
            f"{name}_batch_stride": 0 if self.ragged else self.batch,
            f"{name}_{token}_stride": self.sign * self.token,
            f"{name}_head_stride": self.head,
            name: address,
            f"{name}_array": self.data,
        }


def struct(name: str, fields: dict):
    """abi.make, with the arrays that `Rows` keeps alive left out of the fields."""
    kept = [fields.pop(key) for key in list(fields) if key.endswith("_array")]
    result = abi.make(name, **fields)
    result.arrays = kept
    return result


class Builder:
    def __init__(self, case: dict):
        self.case = case
        self.rng = np.random.default_rng([case["seed"], 1])
        self.heads = int(self.rng.integers(1, 4))
        self.q_heads = self.heads * case["group"]
        self.dims = (case["head_dim"], case["v_head_dim"] or case["head_dim"])
        batch = case["batch"]
        if case["rows"] == "ragged":
            self.counts = [int(n) for n in self.rng.integers(0, 6, batch)]
        else:
            self.counts = [int(self.rng.integers(1, 6))] * batch
        self.lens = [int(n) for n in self.rng.choice([0, 1, 2, 5, 16, 31, 64, 65], batch)]
        if case["layout"] == "block_scalar":
            self.lens = [self.lens[0]] * batch
        if case["append"] != "none":
            self.lens = [max(n, c) for n, c in zip(self.lens, self.counts)]
            if case["layout"] == "block_scalar":
                self.lens = [max(self.lens)] * batch

    def numbers(self, shape: tuple, dtype: str, size: float = 1.0) -> np.ndarray:
        return round_to(self.rng.standard_normal(shape) * size, dtype)

    def make_cache(self) -> Cache:
        cache = Cache(self.case["layout"], self.case["kv_dtype"], self.lens)
        if cache.layout == "contiguous":
            contiguous(self.rng, cache)
        elif cache.layout == "packed":
            packed(self.rng, cache)
        else:
            rules = PageRules(self.case["page_size"], self.case["released"], self.case["holes"])
            paged(self.rng, cache, rules)
        cache.allocate(self.rng, self.heads, self.dims)
        return cache

    def fill_cache(self, cache: Cache) -> tuple[list, list]:
        """Logical K and V of every request; keys that the call appends are left out of the cache."""
        keys, values = [], []
        for r, n in enumerate(self.lens):
            k = self.numbers((n, self.heads, self.dims[0]), self.case["kv_dtype"])
            v = self.numbers((n, self.heads, self.dims[1]), self.case["kv_dtype"])
            for j in range(n if self.case["append"] == "none" else n - self.counts[r]):
                cache.write(r, j, k[j], v[j])
            keys.append(k)
            values.append(v)
        return keys, values

    def make_append(self, cache: Cache, keys: list, values: list) -> tuple[object, list]:
        dtype = self.case["append"]
        if dtype == "none":
            return None, []
        ragged = self.case["rows"] == "ragged"
        fields, appended = {"dtype": CODES[dtype]}, []
        for name, logical, dim in (("k", keys, self.dims[0]), ("v", values, self.dims[1])):
            rows = Rows(self.counts, self.heads, dim, dtype, self.case["q_order"], ragged)
            new = [self.numbers((n, self.heads, dim), dtype) for n in self.counts]
            rows.write(new)
            for r, n in enumerate(self.counts):
                logical[r][self.lens[r] - n :] = round_to(new[r], self.case["kv_dtype"])
            fields |= rows.fields(name)
        for r, n in enumerate(self.counts):
            for j in range(self.lens[r] - n, self.lens[r]):
                appended.append((r, j, keys[r][j], values[r][j]))
        return struct("tw_new_kv", fields), appended

    def make_present(self, cache: Cache) -> list[np.ndarray]:
        present = [np.array([p is not None for p in place], dtype=bool) for place in cache.place]
        if self.case["append"] != "none":
            for r, n in enumerate(self.counts):
                present[r][self.lens[r] - n :] = True  # attended from the new rows
        return present

    def make_positions(self, args: dict) -> list[np.ndarray]:
        kind = self.case["positions"]
        positions = [np.arange(c) + n - c for c, n in zip(self.counts, self.lens)]
        if kind == "start":
            starts = [int(self.rng.integers(-2, n + 3)) for n in self.lens]
            positions = [np.arange(c) + s for c, s in zip(self.counts, starts)]
            args["q_start"] = int32(starts)
        elif kind == "explicit":
            positions = [self.rng.integers(-1, n + 2, c) for c, n in zip(self.counts, self.lens)]
            args["q_positions"] = int32(np.concatenate(positions))
        return positions

    def make_keep(self, args: dict) -> list[np.ndarray]:
        """What the mask keeps, as [heads, rows, keys] of every request, and the ABI's mask."""
        kind = self.case["mask"]
        everything = [
            np.ones((self.q_heads, c, n), dtype=bool) for c, n in zip(self.counts, self.lens)
        ]
        if kind == "none":
            return everything
        batch, rows = len(self.counts), max(max(self.counts), 1)
        width = int(self.rng.integers(0, max(self.lens) + 3))
        first = np.zeros(batch, dtype=np.int64)
        bits = self.rng.random((batch, self.q_heads, rows, width)) < 0.6
        if kind == "rank2":
            bits[:] = bits[:1, :1]
        elif kind in ("rank3", "tree"):
            bits[:] = bits[:, :1]
        if kind == "tree":
            first = np.array([int(self.rng.integers(0, n + 1)) for n in self.lens])
        args["mask"] = self.mask_struct(kind, bits, first)
        for r, keep in enumerate(everything):
            for j in range(self.lens[r]):
                column = j - first[r]
                if column >= width:
                    keep[:, :, j] = False
                elif column >= 0:
                    keep[:, :, j] = bits[r, :, : self.counts[r], column]
        return everything

    def mask_struct(self, kind: str, bits: np.ndarray, first: np.ndarray):
        batch, heads, rows, width = bits.shape
        noise = self.rng.integers(1, 256, bits.shape).astype(np.uint8)
        stored = np.where(bits, noise, 0).astype(np.uint8)
        fields = {"width": width, "row_stride": width}
        if kind == "rank2":
            data = stored[0, 0]
        elif kind == "rank3":
            data = stored[:, 0]
            fields["batch_stride"] = rows * width
        elif kind == "rank4":
            data = stored
            fields |= {"batch_stride": heads * rows * width, "head_stride": rows * width}
        else:
            order = self.rng.permutation(batch)
            data = np.concatenate(
                [stored[r, 0].reshape(-1) for r in order] + [np.ones(5, np.uint8)]
            )
            offset = np.empty(batch, dtype=np.int64)
            offset[order] = np.arange(batch) * rows * width
            fields |= {"offset": offset, "first_key": int32(first)}
        data = np.ascontiguousarray(data).reshape(-1)
        data = data if data.size else np.zeros(1, dtype=np.uint8)
        return abi.make("tw_mask", data=data, bytes=data.size, **fields)

    def make_logit_terms(self, args: dict) -> tuple[np.ndarray, np.ndarray | None]:
        batch = len(self.counts)
        slopes = np.zeros((batch, self.q_heads))
        if self.case["alibi"] != "none":
            shape = (batch if self.case["alibi"] == "batch" else 1, self.q_heads)
            stored = np.ascontiguousarray(self.rng.random(shape) * 0.3, dtype=np.float32)
            args["alibi_slopes"] = stored
            args["alibi_batch_stride"] = self.q_heads if self.case["alibi"] == "batch" else 0
            slopes[:] = stored
        if not self.case["sinks"]:
            return slopes, None
        args["sinks"] = self.rng.standard_normal(self.q_heads).astype(np.float32)
        return slopes, args["sinks"].astype(np.float64)

    def make_semantics(self, args: dict) -> twin.Semantics:
        case, flags = self.case, 0
        if case["causal"]:
            flags |= abi.CONSTANTS["TW_CAUSAL"]
        for side in ("left", "right"):
            if case[side] is not None:
                flags |= abi.CONSTANTS[f"TW_WINDOW_{side.upper()}"]
                args[f"window_{side}"] = case[side]
        args |= {"flags": flags, "scale": case["scale"], "softcap": case["softcap"]}
        scale = np.float32(case["scale"] or 1.0 / np.sqrt(case["head_dim"]))
        return twin.Semantics(
            float(scale), case["softcap"], case["causal"], case["left"], case["right"]
        )


def build(case: dict, variant: int) -> Built:
    b = Builder(case)
    ragged = case["rows"] == "ragged"
    cache = b.make_cache()
    keys, values = b.fill_cache(cache)
    append, appended = b.make_append(cache, keys, values)
    args = {
        "q_dtype": CODES[case["q_dtype"]], "kv_dtype": CODES[case["kv_dtype"]], "o_dtype": CODES["fp32"],
        "batch": len(b.counts), "q_heads": b.q_heads, "kv_heads": b.heads,
        "head_dim": case["head_dim"], "v_head_dim": case["v_head_dim"], "variant": variant,
    }  # fmt: skip
    if ragged:
        args |= {
            "q_indptr": int32(np.concatenate([[0], np.cumsum(b.counts)])),
            "total_q": sum(b.counts),
        }
    else:
        args["q_len"] = b.counts[0]
    q = Rows(b.counts, b.q_heads, b.dims[0], case["q_dtype"], case["q_order"], ragged)
    queries = [b.numbers((n, b.q_heads, b.dims[0]), case["q_dtype"], 1.5) for n in b.counts]
    q.write(queries)
    order = "bhld" if case["q_order"] == "bhld" else "blhd"
    o = Rows(b.counts, b.q_heads, b.dims[1], "fp32", order, ragged)
    lse = Rows(b.counts, b.q_heads, 1, "fp32", order, ragged)
    args |= q.fields("q") | o.fields("o") | lse.fields("lse", token="row")
    positions = b.make_positions(args)
    keep = b.make_keep(args)
    slopes, sinks = b.make_logit_terms(args)
    semantics = b.make_semantics(args)
    present = b.make_present(cache)
    status = abi.make("tw_status_record")
    target = abi.make("tw_target", threads=case["threads"])
    args |= {"kv": cache.struct(), "status": status, "target": target}
    if append is not None:
        args["append"] = append
    requests = [
        twin.Request(
            queries[r], keys[r], values[r], present[r], keep[r], positions[r], slopes[r], sinks
        )
        for r in range(len(b.counts))
    ]
    outputs = [o.view(r) for r in range(len(b.counts))]
    lses = [lse.view(r)[:, :, 0] for r in range(len(b.counts))]
    return Built(
        case,
        struct("tw_attention_args", args),
        requests,
        semantics,
        outputs,
        lses,
        cache,
        appended,
        status,
    )


def stored_row(
    pool: np.ndarray, s, place: tuple[int, int], head: int, dim: int, dtype: str
) -> np.ndarray:
    at = place[0] * s.block + place[1] * s.token + head * s.head
    return decode(pool[at : at + dim], dtype)
