# The clang gates find a misplaced space and a use after move.
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

CLEAN = "// A file.\n#include <string>\n#include <utility>\nint size(std::string s) {\n"
MOVED = "  std::string t = std::move(s);\n  return static_cast<int>(t.size() + s.size());\n}\n"


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


@pytest.fixture
def configured(plant):
    """Copies the repository's settings and tells clang-tidy how to compile src/core/a.cc."""
    for name in (".clang-format", ".clang-tidy"):
        plant(name, (REPOSITORY / name).read_text())

    def write(text: str):
        source = plant("src/core/a.cc", text)
        entry = {"directory": str(source.parent), "file": str(source),
                 "command": f"g++ -std=c++17 -c {source}"}
        plant("build/compile_commands.json", json.dumps([entry]))

    return write


@needs("clang-format-14")
def test_format_gate_finds_a_misplaced_space(configured, gate):
    configured("// A file.\nint  x;\n")
    verdict = gate("clang_tools.py", "format")
    assert not verdict.passed
    assert "src/core/a.cc:2:" in verdict.said
    configured("// A file.\nint x;\n")
    assert gate("clang_tools.py", "format").passed


@needs("clang-tidy-14")
def test_tidy_gate_finds_a_use_after_move(configured, gate):
    configured(CLEAN + MOVED)
    verdict = gate("clang_tools.py", "tidy")
    assert not verdict.passed
    assert "bugprone-use-after-move" in verdict.said
    configured(CLEAN.replace("std::string s", "const std::string& s") +
               "  return static_cast<int>(s.size());\n}\n")
    verdict = gate("clang_tools.py", "tidy")
    assert verdict.passed, verdict.said
