#!/usr/bin/env python3
# Times the same CPU shapes through libtilewise and, where torch can be imported, through torch's
# scaled_dot_product_attention: same tensors, same threads, the two taking turns in one process.
# `tilewise bench` runs first, so that one file holds limits, our figures and the peer's. Without torch
# only that part is done. The result file is described in bench/README.md.
from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))  # abi: the C structs, read from the header
PAUSE_SECONDS = 0.02  # lets the other side's threads fall asleep before we are timed


@dataclass
class Row:
    name: str
    dtype: str
    q_heads: int
    kv_heads: int
    head_dim: int
    q_len: int
    kv_len: int
    causal: bool
    page_size: int = 0
    layout: str = "hnd"  # order of the dimensions of q, cache or page: hnd = head, token, dim

    def flops(self) -> float:
        pairs = self.q_heads * self.q_len * self.kv_len
        return 4.0 * pairs * self.head_dim * (0.5 if self.causal and self.q_len > 1 else 1.0)

    def cache_bytes(self) -> float:
        return 2.0 * self.kv_heads * self.kv_len * self.head_dim * (4 if self.dtype == "fp32" else 2)


def all_rows() -> list[Row]:
    """The attention rows of `tilewise bench`, by the same names."""
    rows = []
    for dtype in ("fp32", "fp16", "bf16"):
        for dim in (64, 128):
            for causal in (True, False):
                name = f"prefill/{dtype}/d{dim}/{'causal' if causal else 'full'}"
                rows.append(Row(name, dtype, 8, 8, dim, 2048, 2048, causal))
    for dtype in ("fp32", "fp16", "bf16"):
        for kv_len in (1024, 16384):
            for page_size, place in ((0, "contiguous"), (16, "paged16")):
                for layout in ("hnd", "nhd"):
                    name = f"decode/{dtype}/kv{kv_len}/{place}-{layout}"
                    rows.append(Row(name, dtype, 32, 8, 128, 1, kv_len, True, page_size, layout))
    return rows


def abi_call(function: str, args: ctypes.Structure, *more) -> None:
    import abi

    status = getattr(abi.library(), function)(ctypes.byref(args), *more)
    if status != 0:
        raise SystemExit(f"peers: {function}: {abi.library().tw_last_error().decode()}")


def strided(name: str, tensor) -> dict[str, int]:
    """Pointer and strides of a [batch, head, token, dim] tensor as fields of a struct."""
    batch, head, token, _ = tensor.stride()
    return {
        name: tensor.data_ptr(),
        f"{name}_batch_stride": batch,
        f"{name}_head_stride": head,
        f"{name}_token_stride": token,
    }


def ordered(tensor, layout: str):
    """A [batch, head, token, dim] tensor with its memory in the order that `layout` names."""
    return tensor if layout == "hnd" else tensor.transpose(1, 2).contiguous().transpose(1, 2)


class Problem:
    """Tensors of a row, seen as [batch, head, token, dim], and the two ways of computing it."""

    def __init__(self, row: Row, threads: int):
        import torch

        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[row.dtype]
        generator = torch.Generator().manual_seed(20)

        def normal(heads: int, tokens: int) -> torch.Tensor:
            values = torch.randn(1, heads, tokens, row.head_dim, generator=generator).to(dtype)
            return ordered(values, row.layout)

        self.row = row
        self.q = normal(row.q_heads, row.q_len)
        self.k = normal(row.kv_heads, row.kv_len)
        self.v = normal(row.kv_heads, row.kv_len)
        self.out = torch.empty_like(self.q)
        self.args = self._call(threads)
        size = ctypes.c_uint64()
        abi_call("tw_attention_workspace", self.args, ctypes.byref(size))
        self.workspace = torch.empty(size.value + 256, dtype=torch.uint8)
        self.args.workspace = (self.workspace.data_ptr() + 255) // 256 * 256
        self.args.workspace_bytes = size.value

    def ours(self) -> None:
        abi_call("tw_attention", self.args)

    def _cache(self) -> ctypes.Structure:
        import abi

        row = self.row
        if row.page_size == 0:
            k, v, pages = self.k, self.v, {}
        else:
            k, v, pages = self._paged()
        return abi.make(
            "tw_kv_cache", **strided("k", k), **strided("v", v), kv_len=row.kv_len,
            **(pages or {"kv_capacity": row.kv_len}),
        )  # fmt: skip

    def _paged(self):
        """The same K and V in pages of a pool, in shuffled order."""
        import torch

        row, size = self.row, self.row.page_size
        pages = row.kv_len // size
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(20))
        self.pools = []
        for tensor in (self.k, self.v):
            pool = torch.empty(pages, row.kv_heads, size, row.head_dim, dtype=tensor.dtype)
            pool[order] = tensor[0].unflatten(1, (pages, size)).transpose(0, 1)
            self.pools.append(ordered(pool, row.layout))
        self.table = order.to(torch.int32)
        table = {
            "page_size": size, "page_table": self.table.data_ptr(), "page_table_rows": 1,
            "page_table_width": pages, "num_pages": pages,
        }  # fmt: skip
        return *self.pools, table

    def _call(self, threads: int) -> ctypes.Structure:
        import abi

        row = self.row
        return abi.make(
            "tw_attention_args", flags=abi.CONSTANTS["TW_CAUSAL"] if row.causal else 0,
            target=abi.make("tw_target", threads=threads), kv=self._cache(),
            q_dtype=abi.CONSTANTS[f"TW_DTYPE_{row.dtype.upper()}"], batch=1, q_heads=row.q_heads,
            kv_heads=row.kv_heads, head_dim=row.head_dim, q_len=row.q_len, max_kv_len=row.kv_len,
            **strided("q", self.q), **strided("o", self.out),
        )  # fmt: skip

    def torch(self):
        import torch

        # One query row sees every key, and torch's causal mask would be top-left.
        causal = self.row.causal and self.row.q_len > 1
        grouped = self.row.q_heads != self.row.kv_heads
        return torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=causal, enable_gqa=grouped
        )

    def difference(self) -> float:
        """Largest difference between the two results: proof that both do the same work."""
        self.ours()
        return (self.out.float() - self.torch().float()).abs().max().item()


def timed_ms(call, calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e3


def calls_for(call, seconds: float) -> int:
    call()
    once = min(timed_ms(call, 1) for _ in range(3)) * 1e-3
    return max(1, round(seconds / once))


def spread(samples: list[float]) -> dict[str, float]:
    return {
        "ms_median": float(f"{statistics.median(samples):.5g}"),
        "ms_min": float(f"{min(samples):.5g}"),
        "ms_max": float(f"{max(samples):.5g}"),
    }


# bf16 results of about 1 in size carry errors of 2^-9 on either side, and torch rounds P as well.
LARGEST_DIFFERENCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}


def measure(row: Row, options: argparse.Namespace) -> dict:
    import torch

    with torch.inference_mode():
        problem = Problem(row, options.threads)
        difference = problem.difference()
        if not difference <= LARGEST_DIFFERENCE[row.dtype]:
            raise SystemExit(f"peers: {row.name}: results differ by {difference}")
        sides = (problem.ours, problem.torch)
        calls = [calls_for(side, options.seconds) for side in sides]
        samples: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.samples):
            for side, count, into in zip(sides, calls, samples):
                time.sleep(PAUSE_SECONDS)
                side()
                into.append(timed_ms(side, count))
    ours, peer = map(spread, samples)
    return {
        **asdict(row),
        "tilewise": ours,
        "torch": peer,
        "tilewise_gflops": float(f"{row.flops() / ours['ms_median'] * 1e-6:.5g}"),
        "torch_gflops": float(f"{row.flops() / peer['ms_median'] * 1e-6:.5g}"),
        "tilewise_gb_s": float(f"{row.cache_bytes() / ours['ms_median'] * 1e-6:.5g}"),
        "torch_gb_s": float(f"{row.cache_bytes() / peer['ms_median'] * 1e-6:.5g}"),
        "speedup": float(f"{peer['ms_median'] / ours['ms_median']:.4g}"),
        "largest_difference": float(f"{difference:.3g}"),
    }


def print_row(result: dict) -> None:
    prefill = result["q_len"] > 1
    unit, key = ("GFLOP/s", "gflops") if prefill else ("GB/s", "gb_s")
    print(
        f"{result['name']:<36} {result['tilewise']['ms_median']:>9.3f} {result['torch']['ms_median']:>9.3f}"
        f" {result['tilewise_' + key]:>9.1f} {result['torch_' + key]:>9.1f} {unit:<8}"
        f" {result['speedup']:>7.2f}",
        flush=True,
    )


def run_bench(options: argparse.Namespace) -> dict:
    """Our own rows with the machine's limits, by the command."""
    command = [str(options.build / "tilewise"), "bench", "--json", "--threads", str(options.threads)]
    if options.filter:
        command += ["--filter", options.filter]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def print_bench(document: dict) -> None:
    print(f"{'row':<36} {'ms':>9} {'rate':>9} {'':<8} {'limit':>9} {'':<9} {'share':>7}")
    for row in document["rows"]:
        rate = row["gflops"] if row["limit_unit"] == "GFLOP/s" else row["gb_s"]
        print(
            f"{row['name']:<36} {row['ms_median']:>9.3f} {rate:>9.1f} {row['limit_unit']:<8}"
            f" {row['limit']:>9.1f} {row['limit_name']:<9} {100 * row['share']:>5.1f} %"
        )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time Tilewise beside torch on the CPU.")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="build folder with library and command")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--samples", type=int, default=11, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=0.05, help="time of a sample, at least one call")
    parser.add_argument("--filter", default="", help="only rows whose name this regular expression finds")
    parser.add_argument("--no-bench", action="store_true", help="leave out `tilewise bench`")
    parser.add_argument("--out", help="write the JSON document to this file")
    options = parser.parse_args()
    try:
        re.compile(options.filter)
    except re.error as error:
        parser.error(f"--filter: not a regular expression: {error}")
    return options


def compare_with_torch(options: argparse.Namespace, document: dict) -> None:
    import torch

    os.environ.setdefault("TILEWISE_LIBRARY", str(options.build / "libtilewise.so"))
    torch.set_num_threads(options.threads)
    document |= {"torch": torch.__version__, "rows": []}
    print(f"\n{'row':<36} {'ours ms':>9} {'torch ms':>9} {'ours':>9} {'torch':>9} {'':<8} {'speedup':>7}")
    for row in all_rows():
        if re.search(options.filter, row.name):
            document["rows"].append(measure(row, options))
            print_row(document["rows"][-1])


def main() -> int:
    options = parse_options()
    document = {"format": "tilewise-peers-1", "threads": options.threads, "samples": options.samples}
    if not options.no_bench:
        document["bench"] = run_bench(options)
        print_bench(document["bench"])
    try:
        import torch  # noqa: F401
    except ImportError:
        print("\npeers: torch cannot be imported here, so there is no peer to compare with")
    else:
        compare_with_torch(options, document)
    if options.out:
        Path(options.out).write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
