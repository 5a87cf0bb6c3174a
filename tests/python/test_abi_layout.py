# The ctypes structs that the tests read from the header have the C compiler's sizes and offsets.
from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import abi


def test_every_struct_and_constant_was_found():
    assert {"tw_attention_args", "tw_kv_cache", "tw_qk_prep_args", "tw_target"} <= set(abi.STRUCTS)
    assert abi.CONSTANTS["TW_WINDOW_RIGHT"] == 4
    assert all(struct._fields_ for struct in abi.STRUCTS.values())


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_sizes_and_offsets_are_the_compilers(tmp_path: Path):
    lines = []
    for name, struct in abi.STRUCTS.items():
        lines.append(f"sizeof({name}) == {ctypes.sizeof(struct)}")
        for field, _ in struct._fields_:
            lines.append(f"offsetof({name}, {field}) == {getattr(struct, field).offset}")
    for name, value in abi.CONSTANTS.items():
        lines.append(f"{name} == {value}")
    checks = "\n".join(f'_Static_assert({line}, "");' for line in lines)
    source = tmp_path / "layout.c"
    source.write_text(f"#include <tilewise/tilewise.h>\n{checks}\n")
    command = ["cc", "-std=c11", "-fsyntax-only", f"-I{abi.ROOT / 'include'}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
