# The include gate finds each kind of include that points up or sideways, and passes what points down.
from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/core/a.h", '"plan/b.h"'),
        ("src/core/a.h", '"cpu/b.h"'),
        ("src/core/a.h", "<tilewise/tilewise.h>"),
        ("src/core/a.h", "<cuda_fp16.h>"),
        ("src/plan/a.cc", "<cuda_runtime.h>"),
        ("src/plan/a.cc", '"cpu/b.h"'),
        ("src/cpu/a.cc", '"cuda/launch/b.h"'),
        ("src/cpu/simd/a.cc", '"api/b.h"'),
        ("src/cuda/dispatch.cc", '"cpu/b.h"'),
        ("src/cuda/dispatch.cc", '"cuda/instances/b.cu"'),
        ("src/cuda/dispatch.cc", '"cuda/tile/b.cuh"'),
        ("src/cuda/kernel/sm80/a.cuh", '"cuda/launch/b.h"'),
        ("src/cuda/kernel/sm80/a.cuh", '"cuda/kernel/sm90a/b.cuh"'),
        ("src/cuda/tile/a.cuh", '"cuda/kernel/b.cuh"'),
        ("src/cuda/ptx/a.cuh", '"cuda/tile/b.cuh"'),
        ("src/api/a.cc", '"b.h"'),
        ("src/loose.cc", '"core/b.h"'),
        ("include/tilewise/a.h", '"core/b.h"'),
        ("tools/generate/a.cc", '"core/b.h"'),
        ("tools/generate/a.cc", '"verify/b.h"'),
        ("tools/common/a.cc", '"core/b.h"'),
        ("examples/a.c", '"core/b.h"'),
    ],
)
def test_wrong_direction_is_found(plant, gate, name, include):
    plant(name, f"// A file.\n#include {include}\n")
    verdict = gate("includes.py")
    assert not verdict.passed
    assert f"{name}:2:" in verdict.said


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("src/api/a.cc", '"cpu/b.h"'),
        ("src/api/a.cc", "<tilewise/tilewise.h>"),
        ("src/plan/a.cc", '"core/b.h"'),
        ("src/cpu/simd/a.cc", '"hwy/foreach_target.h"'),
        ("src/cpu/amx/a.cc", '"cpu/b.h"'),
        ("src/cpu/a.cc", "<hwy/highway.h>"),
        ("src/cuda/dispatch.cc", '"cuda/launch/b.h"'),
        ("src/cuda/instances/a.cu", '"cuda/launch/b.cuh"'),
        ("src/cuda/kernel/sm80/a.cuh", '"cuda/kernel/any/b.cuh"'),
        ("src/cuda/tile/a.cuh", '"cuda/ptx/b.cuh"'),
        ("include/tilewise/a.hpp", "<tilewise/a.h>"),
        ("tools/generate/a.cc", '"generate/b.h"'),
        ("tools/generate/a.cc", '"common/b.h"'),
        ("tools/generate/a.cc", "<tilewise/tilewise.h>"),
        ("tools/verify/a.cc", '"core/b.h"'),
    ],
)
def test_right_direction_passes(plant, gate, name, include):
    plant(name, f"// A file.\n#include {include}\n")
    verdict = gate("includes.py")
    assert verdict.passed, verdict.said
