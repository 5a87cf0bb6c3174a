# Physical K/V caches for tests: puts logical rows (request, key) into every layout that the ABI
# describes, with NaN wherever no key lies, and says afterwards where each row was.
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import abi
from elements import BYTES, encode, poisoned

PAGED = ("csr_last", "csr_lens", "csr_indptr", "block", "block_scalar", "token")
LAYOUTS = ("contiguous", "packed", *PAGED)


@dataclass
class Strides:
    block: int
    token: int
    head: int
    elements: int


def make_strides(
    rng: np.random.Generator, counts: tuple[int, int, int], dim: int, dtype: str
) -> Strides:
    """Strides of (block, token, head) with the heads inside or outside the tokens, and gaps."""
    blocks, tokens, heads = counts
    align = 16 // BYTES[dtype]
    row = -(-dim // align) * align + align * int(rng.integers(0, 2))
    if rng.integers(0, 2):
        head, token = row, row * heads + align * int(rng.integers(0, 3))
        block = token * max(tokens, 1)
    else:
        token, head = row, row * max(tokens, 1) + align * int(rng.integers(0, 3))
        block = head * heads
    return Strides(block, token, head, block * max(blocks, 1) + align)


@dataclass
class Cache:
    """`place[r][j]` is (block, row) of a key, or None if it is missing."""

    layout: str
    dtype: str
    lens: list[int]
    fields: dict = field(default_factory=dict)
    place: list[list] = field(default_factory=list)
    blocks: int = 0
    rows: int = 0
    k: np.ndarray | None = None
    v: np.ndarray | None = None
    k_strides: Strides | None = None
    v_strides: Strides | None = None

    def allocate(self, rng: np.random.Generator, heads: int, dims: tuple[int, int]) -> None:
        counts = (self.blocks, self.rows, heads)
        self.k_strides = make_strides(rng, counts, dims[0], self.dtype)
        self.v_strides = make_strides(rng, counts, dims[1], self.dtype)
        self.k = poisoned(self.k_strides.elements, self.dtype)
        self.v = poisoned(self.v_strides.elements, self.dtype)

    def write(self, r: int, j: int, k: np.ndarray, v: np.ndarray) -> None:
        """Rows [heads, dim] of one key; a missing key is not written."""
        if self.place[r][j] is None:
            return
        for pool, s, rows in ((self.k, self.k_strides, k), (self.v, self.v_strides, v)):
            block, row = self.place[r][j]
            for head, values in enumerate(rows):
                at = block * s.block + row * s.token + head * s.head
                pool[at : at + values.size] = encode(values, self.dtype)

    def struct(self):
        k, v = self.k_strides, self.v_strides
        return abi.make(
            "tw_kv_cache", k=self.k, v=self.v, **self.fields,
            k_batch_stride=k.block, k_token_stride=k.token, k_head_stride=k.head,
            v_batch_stride=v.block, v_token_stride=v.token, v_head_stride=v.head,
        )  # fmt: skip


def int32(values) -> np.ndarray:
    return np.array(values, dtype=np.int32).reshape(-1)


def contiguous(rng: np.random.Generator, cache: Cache) -> None:
    cache.blocks = len(cache.lens)
    cache.rows = max(cache.lens) + int(rng.integers(0, 4))
    cache.fields = {"kv_capacity": max(cache.rows, 1), "kv_lens": int32(cache.lens)}
    cache.place = [[(r, j) for j in range(n)] for r, n in enumerate(cache.lens)]


def packed(rng: np.random.Generator, cache: Cache) -> None:
    starts = np.concatenate([[0], np.cumsum(cache.lens)])
    cache.blocks, cache.rows = 1, int(starts[-1]) + int(rng.integers(1, 4))
    cache.fields = {"kv_capacity": cache.rows, "kv_indptr": int32(starts)}
    cache.place = [[(0, int(starts[r]) + j) for j in range(n)] for r, n in enumerate(cache.lens)]


@dataclass
class PageRules:
    page_size: int
    released: bool  # some front pages are gone (first_page)
    holes: str  # none, hole (-1) or bad (an id outside the pool)


def paged(rng: np.random.Generator, cache: Cache, rules: PageRules) -> None:
    size = rules.page_size
    pages = [-(-n // size) for n in cache.lens]
    first = [int(rng.integers(0, max(n, 1))) if rules.released else 0 for n in pages]
    resident = [n - f for n, f in zip(pages, first)]
    cache.blocks, cache.rows = sum(resident) + 3, size
    ids = iter(rng.permutation(cache.blocks))
    tables = [[int(next(ids)) for _ in range(n)] for n in resident]
    if rules.holes != "none":
        outside = -1 if rules.holes == "hole" else cache.blocks + int(rng.integers(0, 1000))
        for table in tables:
            for slot in range(len(table)):
                if rng.random() < 0.3:
                    table[slot] = outside
    cache.fields = {"page_size": size, "num_pages": cache.blocks}
    if rules.released:
        cache.fields["first_page"] = int32(first)
    cache.place = []
    for r, n in enumerate(cache.lens):
        slots = [j // size - first[r] for j in range(n)]
        known = [tables[r][s] if s >= 0 else -1 for s in slots]
        cache.place.append(
            [(p, j % size) if 0 <= p < cache.blocks else None for j, p in enumerate(known)]
        )
    if cache.layout.startswith("csr"):
        csr_tables(rng, cache, tables, size)
    else:
        block_tables(rng, cache, tables)


def csr_tables(rng: np.random.Generator, cache: Cache, tables: list[list[int]], size: int) -> None:
    lead = int(rng.integers(0, 3))  # entries of nobody before the first request's
    starts = np.concatenate([[0], np.cumsum([len(t) for t in tables])]) + lead
    entries = [-1] * lead + [page for table in tables for page in table] + [-1]
    cache.fields |= {"page_indptr": int32(starts), "page_table": int32(entries)}
    cache.fields["page_indices_len"] = len(entries)
    if cache.layout == "csr_last":
        cache.fields["last_page_len"] = int32([(n - 1) % size + 1 if n else 0 for n in cache.lens])
    elif cache.layout == "csr_lens":
        cache.fields["kv_lens"] = int32(cache.lens)
    else:
        cache.fields["kv_indptr"] = int32(np.concatenate([[0], np.cumsum(cache.lens)]) + 7)


def block_tables(rng: np.random.Generator, cache: Cache, tables: list[list[int]]) -> None:
    width = max(len(t) for t in tables) + int(rng.integers(0, 3))
    stride = width + int(rng.integers(0, 3))
    batch = len(tables)
    by_row = cache.layout == "token" or bool(rng.integers(0, 2))
    rows = batch + 2 if by_row else batch
    where = rng.permutation(rows)[:batch] if by_row else np.arange(batch)
    table = np.full((rows, max(stride, 1)), -1, dtype=np.int32)
    for r, entries in enumerate(tables):
        table[where[r], : len(entries)] = entries
    cache.fields |= {"page_table": table, "page_table_width": width, "page_table_rows": rows}
    if stride != width:
        cache.fields["page_row_stride"] = stride
    if by_row:
        cache.fields["page_rows"] = int32(where)
    if cache.layout == "block_scalar":
        cache.fields["kv_len"] = cache.lens[0]
    else:
        cache.fields["kv_lens"] = int32(cache.lens)
