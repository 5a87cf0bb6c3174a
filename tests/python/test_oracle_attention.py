# The float64 oracle of the library (variant 1) against the numpy twin, over the C ABI.
from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest

import abi
import attention_cases as cases
import twin
from elements import encode

REFERENCE = 1  # variant number of the oracle
VECTOR_KERNELS = (2, 3)  # fp32 arithmetic, chunks folded by one worker or shared
CASES = 600
CHUNK = 50


def close(got: np.ndarray, want: np.ndarray) -> bool:
    """Both sides sum in float64; only the library's last rounding to fp32 may differ."""
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return False
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite].astype(np.float32)):
        return False
    got, want = got[finite].astype(np.float64), want[finite]
    return bool(np.all(np.abs(got - want) <= 1.2e-7 * np.abs(want) + 1e-9))


def disagreements(built: cases.Built, semantics: twin.Semantics, attend=twin.attend) -> list[str]:
    found = []
    for r, request in enumerate(built.requests):
        o, lse = attend(request, semantics)
        if not close(built.o[r], o):
            found.append(f"o of request {r}")
        if not close(built.lse[r], lse):
            found.append(f"lse of request {r}")
    return found


def run(case: dict) -> cases.Built:
    built = cases.build(case, REFERENCE)
    abi.call("tw_attention", built.args)
    return built


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_random_cases_agree_with_the_twin(first: int):
    for seed in range(first, first + CHUNK):
        built = run(cases.draw_case(seed))
        assert disagreements(built, built.semantics) == [], built.case


def run_with_workspace(case: dict, variant: int) -> cases.Built:
    built = cases.build(case, variant)
    needed = ctypes.c_uint64()
    lib = abi.library()
    assert lib.tw_attention_workspace(ctypes.byref(built.args), ctypes.byref(needed)) == 0
    memory = np.full(needed.value + 256, 0xFF, dtype=np.uint8)
    built.args.workspace = memory.ctypes.data + -memory.ctypes.data % 256
    built.args.workspace_bytes = needed.value
    abi.call("tw_attention", built.args)
    return built


@pytest.mark.parametrize("variant", VECTOR_KERNELS)
def test_vector_kernels_agree_with_the_twin_too(variant: int):
    for seed in range(5000, 5200):
        built = run_with_workspace(cases.draw_case(seed), variant)
        for r, request in enumerate(built.requests):
            o, lse = twin.attend(request, built.semantics)
            limit = 1e-5 * np.max(np.abs(request.v), initial=0.0)
            assert np.all(np.abs(built.o[r] - o) <= limit), built.case
            sees = lse > -np.inf
            assert np.array_equal(np.isfinite(built.lse[r]), sees), built.case
            error = np.abs(built.lse[r][sees] - lse[sees])
            assert np.all(error <= 1e-5 * (1 + np.abs(lse[sees]))), built.case


def test_cases_cover_every_pair_of_features():
    missing = cases.possible_pairs()
    for seed in range(CASES):
        missing -= cases.pairs_of(cases.draw_case(seed))
    assert missing == set()


def expected_pools(case: dict) -> tuple[np.ndarray, np.ndarray]:
    """The cache as it must be after the call: what was there, and the appended rows in their slots."""
    built = cases.build(case, REFERENCE)
    for r, j, k, v in built.appended:
        built.cache.write(r, j, k, v)
    return built.cache.k, built.cache.v


@pytest.mark.parametrize("append", ["none", *cases.TYPES])
def test_a_call_writes_its_appended_rows_and_nothing_else(append: str):
    for seed in range(1000, 1040):
        case = cases.normalise(cases.draw_case(seed) | {"append": append})
        built = run(case)
        k, v = expected_pools(case)
        assert built.cache.k.tobytes() == k.tobytes(), case
        assert built.cache.v.tobytes() == v.tobytes(), case


def test_bad_page_ids_are_recorded_and_holes_are_not():
    base = {"layout": "block", "batch": 1, "append": "none", "causal": False, "left": None, "right": None,
            "rows": "dense", "page_size": 1}  # fmt: skip
    for seed in range(2000, 2020):
        for holes in ("none", "hole", "bad"):
            built = run(cases.draw_case(seed) | base | {"holes": holes})
            lost = any(place is None for place in built.cache.place[0])
            released = built.case["released"]
            bad = holes == "bad" and any(
                built.cache.fields["page_table"].reshape(-1) >= built.cache.blocks
            )
            expected = (
                abi.CONSTANTS["TW_FAULT_ABOVE_BOUND"] if bad else abi.CONSTANTS["TW_FAULT_NONE"]
            )
            assert built.status.code == expected, built.case
            assert holes != "none" or released or not lost


def test_threads_do_not_change_a_byte():
    for seed in range(3000, 3020):
        one, many = (run(cases.draw_case(seed) | {"threads": n}) for n in (1, 3))
        for a, b in zip(one.o + one.lse, many.o + many.lse):
            assert a.tobytes() == b.tobytes(), one.case


def run_with_output(case: dict, dtype: str) -> tuple[cases.Built, cases.Rows]:
    built = cases.build(case, REFERENCE)
    args = built.args
    counts = [len(request.positions) for request in built.requests]
    dim = args.v_head_dim or args.head_dim
    outputs = cases.Rows(counts, args.q_heads, dim, dtype, "blhd", case["rows"] == "ragged")
    for name, value in outputs.fields("o").items():
        if name != "o_array":
            setattr(args, name, value)
    args.o_dtype = 0
    abi.call("tw_attention", args)
    return built, outputs


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_outputs_of_sixteen_bits_are_the_float64_result_rounded_once(dtype: str):
    total = different = 0
    for seed in range(4000, 4040):
        built, outputs = run_with_output(cases.draw_case(seed) | {"q_dtype": dtype}, dtype)
        for r, request in enumerate(built.requests):
            want = encode(twin.attend(request, built.semantics)[0], dtype)
            total += want.size
            different += int(np.sum(outputs.view(r) != want))
    # Sums of another order may fall on the other side of a tie once in a very long while.
    assert total > 5000 and different <= 2


def sink_in_lse(request, semantics):
    o, lse = twin.attend(request, semantics)
    return o, lse if request.sinks is None else np.logaddexp(lse, request.sinks[None, :])


def with_request(**changes):
    """A twin that sees another request: each change is a function of the true one."""

    def attend(request, semantics):
        changed = {name: change(request) for name, change in changes.items()}
        return twin.attend(dataclasses.replace(request, **changed), semantics)

    return attend


def with_semantics(change):
    return lambda request, semantics: twin.attend(
        request, dataclasses.replace(semantics, **change(semantics))
    )


PLANTED = {
    "left window one wider": with_semantics(
        lambda s: {"left": None if s.left is None else s.left + 1}
    ),
    "right window one wider": with_semantics(
        lambda s: {"right": None if s.right is None else s.right + 1}
    ),
    "causal forgotten": with_semantics(lambda s: {"causal": False}),
    "cap forgotten": with_semantics(lambda s: {"softcap": 0.0}),
    "scale off by a thousandth": with_semantics(lambda s: {"scale": s.scale * 1.001}),
    "positions one later": with_request(positions=lambda r: r.positions + 1),
    "slopes of the wrong sign": with_request(slopes=lambda r: -r.slopes),
    "holes attended": with_request(present=lambda r: np.ones_like(r.present)),
    "mask forgotten": with_request(keep=lambda r: np.ones_like(r.keep)),
    "sink forgotten": with_request(sinks=lambda r: None),
    "sink in the lse": sink_in_lse,
    "wrong head of the group": with_request(q=lambda r: np.roll(r.q, 1, axis=1)),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_in_the_twin_is_seen(mistake: str):
    seen = 0
    for seed in range(60):
        built = run(cases.draw_case(seed))
        seen += disagreements(built, built.semantics, PLANTED[mistake]) != []
    assert seen >= 3
