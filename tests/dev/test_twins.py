# The twin gate finds planted copies, verbatim and renamed, in each language, and lets alone what is
# alike by nature.
from __future__ import annotations

import pytest

BODY = """\
  const auto rows = args.rows;
  if (rows == 0) return fail("rows", rows);
  for (int i = 0; i < rows; ++i) {
    float sum = 0.0f;
    while (next(i)) sum += x[i] * y[i];
    out[i] = sum / scale;
    mark(out, i);
  }
  int total = count(out);
  return total;
"""
RENAMED = BODY.replace("rows", "heads").replace("sum", "acc").replace("0.0f", "1.5f")
PYTHON = """\
    kept = []
    for row in rows:
        if row.size > 3:
            kept.append(row.size)
        total += row.size * 2
    print(total, kept)
    with open(name) as file:
        text = file.read()
    return text.strip()
"""


def c_function(name: str, body: str) -> str:
    return f"// A file.\nint {name}(const Args& args) {{\n{body}}}\n"


@pytest.mark.parametrize("body", [BODY, RENAMED], ids=["equal", "renamed"])
def test_copy_is_found_with_both_places(plant, gate, body):
    plant("src/core/a.h", c_function("one", BODY))
    plant("tests/unit/b_test.cc", c_function("two", body))
    verdict = gate("twins.py")
    assert not verdict.passed
    assert "src/core/a.h:2-12 and tests/unit/b_test.cc:2-12" in verdict.said


def test_copy_within_one_file_is_found(plant, gate):
    plant("src/core/a.h", c_function("one", BODY) + "\n" + c_function("two", RENAMED))
    assert not gate("twins.py").passed


def test_comments_blanks_and_braces_hide_nothing(plant, gate):
    spread = BODY.replace("\n", "  // why\n\n").replace(" {  //", "\n{\n//")
    plant("src/core/a.h", c_function("one", BODY))
    plant("src/core/b.h", c_function("two", spread))
    assert not gate("twins.py").passed


def test_python_copy_is_found(plant, gate):
    plant("tools/a.py", f"# A file.\ndef one(rows, total, name):\n{PYTHON}")
    renamed = PYTHON.replace("row", "line").replace("3", "9")
    plant("tools/b.py", f'# B file.\ndef two(lines, total, name):\n    """Says so."""\n{renamed}')
    assert not gate("twins.py").passed


def test_seven_lines_pass(plant, gate):
    seven = "".join(BODY.splitlines(keepends=True)[:6])
    plant("src/core/a.h", f"// A file.\n{seven}")
    plant("src/core/b.h", f"// B file.\n{seven}")
    verdict = gate("twins.py")
    assert verdict.passed, verdict.said


def test_list_of_alike_lines_passes(plant, gate):
    rows = "".join(f'  add("name_{i}", {i}, {i * i});\n' for i in range(40))
    fields = "".join(f"  int64_t field_{i}, other_{i};\n  float f{i};\n" for i in range(20))
    plant("src/core/a.h", f"// A file.\nvoid fill() {{\n{rows}}}\nstruct Table {{\n{fields}}};\n")
    verdict = gate("twins.py")
    assert verdict.passed, verdict.said


def test_allow_list_exempts_a_table(plant, gate):
    plant("src/core/a.h", c_function("one", BODY))
    plant("src/core/table.h", c_function("two", BODY))
    plant("tools/dev/twins_allow.txt", "# Tables.\nsrc/core/table.h  rows of numbers\n")
    verdict = gate("twins.py")
    assert verdict.passed, verdict.said
