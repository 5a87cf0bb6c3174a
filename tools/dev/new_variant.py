#!/usr/bin/env python3
"""Adds a compiled kernel of a tensor-core body: its line in src/cuda/variants.def and the instance file.

Usage: tools/dev/new_variant.py BODY ELEMENT DIM      (decode|prefill, bf16|fp16, a multiple of 32)
A head dim that no kernel had before also goes into kInstanceDims of src/core/tile_shapes.h.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

BODIES = {"decode": "Class D", "prefill": "Class P"}
ELEMENTS = {"bf16": "Bf16", "fp16": "Fp16"}


def instance(body: str, element: str, dim: int) -> str:
    return (
        f"// {BODIES[body]} on tensor cores: {element}, head dims up to {dim}.\n"
        f'#include "cuda/launch/{body}.cuh"\n\n'
        "namespace tilewise::cuda {\n"
        f"template core::Status launch_{body}<core::Variant<core::{ELEMENTS[element]}, {dim}>>(\n"
        "    const AttentionLaunch&);\n"
        "}  // namespace tilewise::cuda\n"
    )


def add(root: Path, body: str, element: str, dim: int) -> str | None:
    """Why the variant cannot be added, or None once it is."""
    manifest = root / "src/cuda/variants.def"
    line = f"TW_VARIANT({body}, {ELEMENTS[element]}, {dim})\n"
    text = manifest.read_text()
    if line in text:
        return f"{manifest} has this line already"
    manifest.write_text(text + line)
    path = root / f"src/cuda/instances/{body}_{element}_{dim}.cu"
    path.write_text(instance(body, element, dim))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("body", choices=BODIES)
    parser.add_argument("element", choices=ELEMENTS)
    parser.add_argument("dim", type=int)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    args = parser.parse_args()
    if args.dim <= 0 or args.dim % 32 != 0:
        sys.exit(f"dim is {args.dim}, wanted a multiple of 32")
    if why := add(args.root, args.body, args.element, args.dim):
        sys.exit(why)


if __name__ == "__main__":
    main()
