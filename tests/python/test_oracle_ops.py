# The small operations of the library against numpy float64, over the C ABI. The library computes in
# fp32 and rounds where the contract says; so results equal the twin's but for rare steps of an ulp.
from __future__ import annotations

import numpy as np
import pytest

import abi
import ops_twin as twin
from attention_cases import Rows, struct
from caches import Cache, PageRules, contiguous, int32, packed, paged
from elements import CODES, TYPES, decode, encode, poisoned, round_to, ulp

C = abi.CONSTANTS
NORMS = {"none": "TW_NORM_NONE", "weight": "TW_NORM_WEIGHT", "one_plus": "TW_NORM_ONE_PLUS_WEIGHT"}
V_MODES = {"copy": "TW_V_COPY", "rms": "TW_V_RMS", "raw_k": "TW_V_FROM_RAW_K"}


class Tally:
    """Results next to what they should be. fp32: within rounding errors of the row's size; 16 bits:
    nearly all equal, none further than a few ulps of the row's largest value."""

    def __init__(self):
        self.total = self.equal = 0
        self.worst = 0.0

    def add(self, got: np.ndarray, want: np.ndarray, dtype: str) -> None:
        assert got.shape == want.shape
        if not want.size:
            return
        assert not np.any(np.isnan(got)), "a value was not written"
        scale = np.max(np.abs(want), axis=-1, keepdims=True)
        error = np.abs(got - want) / (
            4e-6 * scale + 1e-30 if dtype == "fp32" else 3 * ulp(scale, dtype)
        )
        self.worst = max(self.worst, float(np.max(error)))
        if dtype != "fp32":
            self.total += want.size
            self.equal += int(np.sum(got == want))

    def holds(self) -> bool:
        return self.worst <= 1.0 and self.equal >= 0.985 * self.total


def read(rows: Rows, r: int) -> np.ndarray:
    stored = np.ascontiguousarray(rows.view(r))
    return decode(stored, rows.dtype)


def check(call: str, args) -> None:
    abi.call(call, args)


class PrepCase:
    """A random call of tw_qk_prep: inputs, outputs and cache, and what each must be."""

    def __init__(self, seed: int, **fixed):
        rng = self.rng = np.random.default_rng([seed, 2])
        pick = lambda *values: values[int(rng.integers(len(values)))]  # noqa: E731
        self.choice = {
            "dtype": pick(*TYPES), "kv_dtype": pick(*TYPES), "weight_dtype": pick(*TYPES), "norm": pick(*NORMS),
            "two_step": pick(False, True), "v_mode": pick(*V_MODES), "rope": pick("none", "halves", "interleaved"),
            "table": pick("fp32", "bf16"), "positions": pick("default", "start", "each"), "ragged": pick(False, True),
            "cache": pick("none", "contiguous", "packed", "csr_last", "block", "token", "slots"),
            "outputs": pick("apart", "in_place"), "hostile": pick(False, True), "order": pick("blhd", "bhld"),
            "dim": pick(8, 24, 64, 128), "threads": pick(1, 2), "seed": seed,
        } | fixed  # fmt: skip
        c = self.choice
        batch = int(rng.integers(1, 4))
        self.counts = (
            [int(n) for n in rng.integers(0, 6, batch)]
            if c["ragged"]
            else [int(rng.integers(1, 6))] * batch
        )
        self.heads = (int(rng.integers(1, 5)), int(rng.integers(1, 3)))
        self.lens = [n + int(rng.integers(0, 20)) for n in self.counts]
        self.args: dict = {"dtype": CODES[c["dtype"]], "kv_dtype": CODES[c["kv_dtype"]]}
        self.kept: list = []
        self.make_rows()
        self.make_norm()
        self.make_rope()
        self.make_cache()
        self.make_positions()

    def make_rows(self) -> None:
        c = self.choice
        self.rows, self.input = {}, {}
        names = {"q": self.heads[0], "k": self.heads[1], "v": self.heads[1]}
        if c["v_mode"] == "raw_k":
            del names["v"]
        for name, heads in names.items():
            rows = Rows(self.counts, heads, c["dim"], c["dtype"], c["order"], c["ragged"])
            values = [
                round_to(self.rng.standard_normal((n, heads, c["dim"])) * 2, c["dtype"])
                for n in self.counts
            ]
            rows.write(values)
            self.rows[name], self.input[name] = rows, values
            self.args |= rows.fields(name)
        for name in ("q", "k", "v"):
            heads = self.heads[0] if name == "q" else self.heads[1]
            out = self.rows.get(name)
            if c["outputs"] == "apart" or out is None:
                out = Rows(self.counts, heads, c["dim"], c["dtype"], "blhd", c["ragged"])
            self.rows[f"{name}_out"] = out
            self.args |= out.fields(f"{name}_out")
        self.args |= {
            "batch": len(self.counts),
            "q_heads": self.heads[0],
            "kv_heads": self.heads[1],
        }
        self.args |= {"head_dim": c["dim"], "target": abi.make("tw_target", threads=c["threads"])}
        if c["ragged"]:
            indptr = int32(np.concatenate([[0], np.cumsum(self.counts)]))
            self.args |= {"q_indptr": indptr, "total_q": sum(self.counts)}
        else:
            self.args["q_len"] = self.counts[0]

    def make_norm(self) -> None:
        c = self.choice
        self.norms = {}
        for name in ("q", "k"):
            weight = round_to(self.rng.standard_normal(c["dim"]) * 0.5 + 0.7, c["weight_dtype"])
            self.args[f"{name}_weight"] = encode(weight, c["weight_dtype"])
            self.norms[name] = twin.Norm(c["norm"], c["two_step"], 1e-5, weight)
        self.args |= {"norm": C[NORMS[c["norm"]]], "v_mode": C[V_MODES[c["v_mode"]]], "eps": 1e-5}
        self.args |= {"rounding": C["TW_ROUND_TWO_STEP" if c["two_step"] else "TW_ROUND_ONCE"]}
        self.args["weight_dtype"] = CODES[c["weight_dtype"]]

    def make_rope(self) -> None:
        c = self.choice
        self.rope, self.table_rows = None, 40
        if c["rope"] == "none":
            return
        half = int(self.rng.integers(1, c["dim"] // 2 + 1))
        angles = self.rng.random((self.table_rows, half)) * 6
        tables = [round_to(f(angles), c["table"]) for f in (np.cos, np.sin)]
        self.rope = twin.Rope(*tables, interleaved=c["rope"] == "interleaved")
        self.args["rope"] = rope_struct(self.rng, self.rope, c["table"])

    def make_cache(self) -> None:
        c = self.choice
        self.cache, self.place = None, [[None] * n for n in self.counts]
        if c["cache"] == "none":
            return
        layout = "block" if c["cache"] == "slots" else c["cache"]
        self.cache = cache = Cache(layout, c["kv_dtype"], self.lens)
        if layout == "contiguous":
            contiguous(self.rng, cache)
        elif layout == "packed":
            packed(self.rng, cache)
        else:
            paged(
                self.rng, cache, PageRules(1 if layout == "token" else 4, layout == "block", "none")
            )
        cache.allocate(self.rng, self.heads[1], (c["dim"], c["dim"]))
        if c["cache"] == "slots":
            self.make_slots(cache)
        self.args["kv"] = cache.struct()

    def make_slots(self, cache: Cache) -> None:
        size = cache.fields["page_size"]
        cache.fields = {"page_size": size, "num_pages": cache.blocks}
        total = cache.blocks * size
        slots = (
            self.rng.permutation(total)[: sum(self.counts)] if total >= sum(self.counts) else None
        )
        slots = np.full(sum(self.counts), -1) if slots is None else slots
        slots = np.where(self.rng.random(slots.size) < 0.2, -1, slots)
        self.args["slot_mapping"] = int32(slots)
        flat = iter(slots)
        self.place = [[(s // size, s % size) if s >= 0 else None for s in (next(flat) for _ in range(n))]
                      for n in self.counts]  # fmt: skip

    def make_positions(self) -> None:
        c = self.choice
        by_len = self.cache is not None and c["cache"] != "slots"
        self.positions = [
            np.arange(n) + (m - n if by_len else 0) for n, m in zip(self.counts, self.lens)
        ]
        if c["positions"] == "start":
            starts = [int(self.rng.integers(0, m - n + 1)) for n, m in zip(self.counts, self.lens)]
            self.positions = [np.arange(n) + s for n, s in zip(self.counts, starts)]
            self.args["start"] = int32(starts)
        elif c["positions"] == "each":
            self.positions = [self.rng.permutation(m)[:n] for n, m in zip(self.counts, self.lens)]
            if c["hostile"]:
                for positions in self.positions:
                    positions[self.rng.random(positions.size) < 0.3] = int(
                        self.rng.choice([-1, -7, 40, 1 << 30])
                    )
            self.args["positions"] = int32(np.concatenate(self.positions))
        if by_len:
            self.place = [[cache_place(self.cache, r, p) for p in positions]
                          for r, positions in enumerate(self.positions)]  # fmt: skip

    def run(self) -> None:
        check("tw_qk_prep", struct("tw_qk_prep_args", dict(self.args)))

    def expected(self, r: int, two_step: bool | None = None) -> tuple[dict, np.ndarray]:
        """Results of all rows, and which rows have a position that the table knows."""
        c = self.choice
        dtype, positions = c["dtype"], self.positions[r]
        two_step = c["two_step"] if two_step is None else two_step
        good = np.ones(len(positions), dtype=bool)
        if self.rope is not None:
            good = (positions >= 0) & (positions < self.table_rows)
        out = {}
        for name in ("q", "k"):
            norm = self.norms[name]
            x = twin.normalise(
                self.input[name][r], twin.Norm(norm.mode, two_step, norm.eps, norm.weight), dtype
            )
            if self.rope is not None:
                x = twin.rotate(x, self.rope, np.where(good, positions, 0), two_step, dtype)
            out[name] = x
        v = self.input["k" if c["v_mode"] == "raw_k" else "v"][r]
        out["v"] = v if c["v_mode"] == "copy" else twin.rms(v, 1e-5, dtype)
        return out, good

    def compare(self, tally: Tally, two_step: bool | None = None) -> None:
        dtype = self.choice["dtype"]
        for r in range(len(self.counts)):
            want, good = self.expected(r, two_step)
            for name in ("q", "k", "v"):
                rows = np.ones_like(good) if name == "v" else good
                got = read(self.rows[f"{name}_out"], r)
                tally.add(got[rows], want[name][rows], dtype)
                if not self.choice["outputs"] == "in_place" or f"{name}" not in self.input:
                    assert np.all(np.isnan(got[~rows])), "a refused row was written"
            self.compare_cache(r, want, good, tally)

    def compare_cache(self, r: int, want: dict, good: np.ndarray, tally: Tally) -> None:
        if self.cache is None:
            return
        cache, kv_dtype = self.cache, self.choice["kv_dtype"]
        coarse = min((self.choice["dtype"], kv_dtype), key=("bf16", "fp16", "fp32").index)
        for i, place in enumerate(self.place[r]):
            if place is None or not good[i]:
                continue
            for pool, s, name in ((cache.k, cache.k_strides, "k"), (cache.v, cache.v_strides, "v")):
                for h in range(self.heads[1]):
                    at = place[0] * s.block + place[1] * s.token + h * s.head
                    got = decode(pool[at : at + self.choice["dim"]], kv_dtype)
                    tally.add(got, round_to(want[name][i, h], kv_dtype), coarse)

    def written_elements(self) -> int:
        if self.cache is None:
            return 0
        return sum(
            int(np.sum(~np.isnan(decode(p, self.cache.dtype))))
            for p in (self.cache.k, self.cache.v)
        )


def cache_place(cache: Cache, r: int, position: int):
    return cache.place[r][position] if 0 <= position < cache.lens[r] else None


def rope_struct(rng: np.random.Generator, rope: twin.Rope, dtype: str):
    rows, half = rope.cos.shape
    fields = {"dtype": CODES[dtype], "rows": rows, "rotary_dim": 2 * half}
    fields["pairs"] = C["TW_PAIRS_INTERLEAVED" if rope.interleaved else "TW_PAIRS_HALVES"]
    for name, values in (("cos", rope.cos), ("sin", rope.sin)):
        step = int(rng.integers(1, 3))
        stride = half * step + int(rng.integers(0, 3))
        data = poisoned(rows * stride, dtype)
        for p in range(rows):
            data[p * stride : p * stride + half * step : step] = encode(values[p], dtype)
        fields |= {name: data, f"{name}_row_stride": stride, f"{name}_element_stride": step}
    return abi.make("tw_rope_table", **fields)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_prep_agrees_with_the_twin(first: int):
    tally = Tally()
    for seed in range(first, first + 50):
        case = PrepCase(seed)
        case.run()
        case.compare(tally)
        assert tally.worst <= 1.0, case.choice
        good = [case.expected(r)[1] for r in range(len(case.counts))]
        slots = sum(
            p is not None and bool(g) for row, ok in zip(case.place, good) for p, g in zip(row, ok)
        )
        assert case.written_elements() == 2 * slots * case.heads[1] * case.choice["dim"], (
            case.choice
        )
    assert tally.total > 5000 and tally.holds()


def test_prep_with_the_other_rounding_is_told_apart():
    for two_step in (False, True):
        right, wrong = Tally(), Tally()
        for seed in range(30):
            case = PrepCase(
                seed, dtype="bf16", norm="weight", two_step=two_step, cache="none", outputs="apart"
            )
            case.run()
            case.compare(right)
            case.compare(wrong, two_step=not two_step)
        assert right.holds() and not wrong.holds()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("in_place", [False, True])
def test_rope_agrees_with_the_twin(dtype: str, in_place: bool):
    tally = Tally()
    for seed in range(40):
        rng = np.random.default_rng([seed, 3])
        heads, dim, counts = (
            int(rng.integers(1, 4)),
            int(rng.choice([8, 64, 136])),
            [int(rng.integers(1, 5))] * 2,
        )
        half = int(rng.integers(1, dim // 2 + 1))
        angles = rng.random((16, half)) * 6
        rope = twin.Rope(
            np.float64(np.float32(np.cos(angles))),
            np.float64(np.float32(np.sin(angles))),
            bool(seed % 2),
        )
        x = Rows(
            counts, heads, dim, dtype, "bhld" if seed % 3 else "blhd", ragged=bool(seed % 5 == 0)
        )
        values = [round_to(rng.standard_normal((n, heads, dim)), dtype) for n in counts]
        x.write(values)
        out = x if in_place else Rows(counts, heads, dim, dtype, "blhd", x.ragged)
        positions = rng.integers(-1, 17, sum(counts))
        args = {"dtype": CODES[dtype], "batch": 2, "heads": heads, "head_dim": dim, "positions": int32(positions),
                "rope": rope_struct(rng, rope, "fp32")} | x.fields("x")  # fmt: skip
        args |= (
            {"q_indptr": int32([0, counts[0], 2 * counts[0]]), "total_q": sum(counts)}
            if x.ragged
            else {}
        )
        args |= {} if x.ragged else {"q_len": counts[0]}
        args |= {} if in_place else out.fields("out")
        check("tw_rope", struct("tw_rope_args", args))
        for r, part in enumerate(np.split(positions, 2)):
            good = (part >= 0) & (part < 16)
            want = twin.rotate(values[r], rope, np.where(good, part, 0), False, dtype)
            got = read(out, r)
            tally.add(got[good], want[good], dtype)
            refused = values[r][~good] if in_place else np.full_like(values[r][~good], np.nan)
            assert np.array_equal(got[~good], refused, equal_nan=True)
    assert tally.holds()
