# The converter: names, rounding and row order on values made here, its record, and what it refuses.
from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import MODEL, ROOT

SCRIPT = ROOT / "tools" / "model" / "convert.py"
sys.path.insert(0, str(SCRIPT.parent))
import convert  # noqa: E402


def bits(value: int) -> np.ndarray:
    return np.array([value], dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("float32", "bf16"),
    [
        (0x3F800000, 0x3F80),
        (0x3F807FFF, 0x3F80),  # below half
        (0x3F808000, 0x3F80),  # half, even below
        (0x3F818000, 0x3F82),  # half, odd below
        (0x3F808001, 0x3F81),  # above half
        (0x3FFFFFFF, 0x4000),  # carries into the exponent
        (0x80000000, 0x8000),
        (0x00000001, 0x0000),
    ],
)
def test_rounding_goes_to_the_nearest_and_then_to_even(float32, bf16):
    assert convert.to_bf16_bits(bits(float32), "t").tolist() == [bf16]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused_by_name(value):
    with pytest.raises(convert.ConversionError, match="some.weight"):
        convert.to_bf16_bits(np.array([1.0, value]), "some.weight")


def test_rotary_rows_move_from_pairs_to_halves():
    pairs = np.arange(16).reshape(16, 1)  # two heads of eight rows
    halves = convert.halves_from_pairs(pairs, 8).ravel().tolist()
    assert halves == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


def test_names_become_those_of_hugging_face():
    assert convert.hugging_face_name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"
    assert convert.hugging_face_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(convert.ConversionError, match="blk.0.ssm.weight"):
        convert.hugging_face_name("blk.0.ssm.weight")


def test_a_complete_folder_is_known_by_its_record(tmp_path):
    assert convert.is_complete(MODEL)
    assert not convert.is_complete(tmp_path)
    record = json.loads((MODEL / convert.RECORD).read_text())
    for name in convert.FILES:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / convert.RECORD).write_text(json.dumps(record))
    assert not convert.is_complete(tmp_path)  # sizes differ


@pytest.mark.parametrize("option", ["--gguf", "--wheel"])
def test_a_broken_source_is_named_and_leaves_nothing_behind(tmp_path, option):
    pytest.importorskip("gguf")
    source = tmp_path / "source"
    source.write_bytes(b"GGUF" + bytes(200))
    done = subprocess.run([sys.executable, str(SCRIPT), option, str(source), "--out", str(tmp_path / "out" / "m")],
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert str(source) in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []
