# The limits gate finds long files and functions, foreign macros, missing headers, differing versions.
from __future__ import annotations

import pytest

TOP = "// A file that says what it is for.\n"


def statements(count: int) -> str:
    return "".join(f"  x += {i};\n" for i in range(count))


def c_function(lines: int, head: str = "int f(int x)") -> str:
    return f"{TOP}namespace tilewise {{\n{head} {{\n{statements(lines - 3)}  return x;\n}}\n}}\n"


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("src/core/a.cc", TOP + "int x;\n" * 400, "file of 401 lines"),
        ("src/core/a.cc", c_function(61), "src/core/a.cc:3: function of 61 lines"),
        ("src/core/a.cc", c_function(61, "TEST(A, B)"), "function of 61 lines"),
        ("src/core/a.cc", c_function(61, "template <class T>\nstruct S s(int x)"), "function of 62"),
        ("src/cuda/kernel/a.cu", c_function(121, "__global__ void k(int x)"), "limit 120"),
        ("src/core/a.cc", TOP + "#define TW_OTHER 1\n", "macro TW_OTHER"),
        ("src/core/a.cc", TOP + "#  define min(a, b) a\n", "macro min"),
        ("src/core/a.h", TOP + "int x;\n", "without #pragma once"),
        ("src/core/a.cc", "int x;\n", "does not begin with a comment"),
        ("src/core/a.cc", "#include <x>\n", "does not begin with a comment"),
        ("tools/a.py", "# A file.\ndef f(x):\n" + "    x += 1\n" * 60, "function of 61 lines"),
        ("cmake/a.cmake", "set(x 1)\n", "does not begin with a comment"),
    ],
)
def test_violation_is_found(plant, gate, name, text, finding):
    plant(name, text)
    verdict = gate("limits.py")
    assert not verdict.passed
    assert finding in verdict.said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/core/a.cc", TOP + "int x;\n" * 399),
        ("src/core/a.cc", c_function(60)),
        ("src/cuda/kernel/a.cu", c_function(120, "__global__ void k(int x)")),
        ("src/core/a.cc", TOP + "namespace tilewise {\n" + "int x;\n" * 200 + "}\n"),
        ("src/core/a.cc", TOP + "struct alignas(64) S {\n" + "  int x;\n" * 100 + "};\n"),
        ("src/core/a.h", TOP + "#pragma once\n#define TW_TRY(x) x\n"),
        ("src/core/a.cc", TOP + '// #define OTHER 1\nconst char* s = "\\n#define X";\n'),
        (
            "src/cpu/simd/a.cc",
            TOP + '#define HWY_TARGET_INCLUDE "a.cc"\n#include "hwy/foreach_target.h"\n',
        ),
    ],
)
def test_what_keeps_the_limits_passes(plant, gate, name, text):
    plant(name, text)
    verdict = gate("limits.py")
    assert verdict.passed, verdict.said


def header(minor: int) -> str:
    lines = [f"#define TW_VERSION_{part} {value}" for part, value in
             (("MAJOR", 0), ("MINOR", minor), ("PATCH", 0))]
    return "/* The header. */\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(("minor", "log", "agree"), [(1, "0.1.0", True), (2, "0.1.0", False),
                                                     (1, "0.2.0", False)])
def test_versions_must_agree(plant, gate, minor, log, agree):
    plant("include/tilewise/tilewise.h", header(minor))
    plant("CMakeLists.txt", "# Build.\nproject(tilewise VERSION 0.1.0 LANGUAGES C)\n")
    plant("CHANGELOG.md", f"# Changes\n\n## {log}\n")
    verdict = gate("limits.py")
    assert verdict.passed == agree, verdict.said
