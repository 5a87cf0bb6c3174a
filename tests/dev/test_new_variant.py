"""The script that adds compiled kernels."""
from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))

import new_variant  # noqa: E402


def manifest_of(root: Path) -> Path:
    return root / "src/cuda/variants.def"


def test_adds_a_line_and_a_file_once(tmp_path: Path) -> None:
    (tmp_path / "src/cuda/instances").mkdir(parents=True)
    manifest_of(tmp_path).write_text("// head\n")
    assert new_variant.add(tmp_path, "decode", "bf16", 160) is None
    assert manifest_of(tmp_path).read_text() == "// head\nTW_VARIANT(decode, Bf16, 160)\n"
    text = (tmp_path / "src/cuda/instances/decode_bf16_160.cu").read_text()
    assert "launch_decode<core::Variant<core::Bf16, 160>>" in text
    assert "already" in str(new_variant.add(tmp_path, "decode", "bf16", 160))


def test_every_line_of_the_manifest_has_its_instance() -> None:
    names = {"Bf16": "bf16", "Fp16": "fp16"}
    lines = [line for line in manifest_of(ROOT).read_text().splitlines() if line.startswith("TW_")]
    expected = set()
    for line in lines:
        body, element, dim = line.removeprefix("TW_VARIANT(").removesuffix(")").split(", ")
        expected.add(f"{body}_{names[element]}_{dim}.cu")
    found = {
        path.name
        for body in new_variant.BODIES
        for path in (ROOT / "src/cuda/instances").glob(f"{body}_*.cu")
    }
    assert found == expected
