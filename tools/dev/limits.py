#!/usr/bin/env python3
# Gate: sizes and macros. Files of at most 400 lines, functions of at most 60 (kernel bodies 120), no
# macros but the few that the style guide names, a comment on top of every file, and one version
# number in CMakeLists.txt, the C header and the change log.
from __future__ import annotations

import ast
import re
from pathlib import Path

from sources import C_FAMILY, files, parser, report, strip_c

MAX_FILE = 400
MAX_FUNCTION = 60
MAX_KERNEL = 120
MACROS = frozenset({"TW_TRY", "TW_CUDA_TRY", "TW_DEVICE", "TW_VARIANT"})
PUBLIC_HEADER = "include/tilewise/tilewise.h"
# The C header cannot use #pragma once everywhere it goes, and tells its version to the preprocessor.
PUBLIC_MACROS = frozenset(
    {"TILEWISE_TILEWISE_H_", "TW_API", "TW_VERSION_MAJOR", "TW_VERSION_MINOR", "TW_VERSION_PATCH"}
)
# Highway includes a unit once per target through a macro, and lets its -inl.h files be read again.
HIGHWAY_MACROS = re.compile(r"^(HWY_TARGET_INCLUDE|HWY_DISABLED_TARGETS|TW_\w+_INL_H_)$")

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_SCOPE = re.compile(
    r"^\s*(?:template\s*<[^{}]*>\s*)?(?:inline\s+)?(?:typedef\s+)?"
    r"(?:namespace|class|struct|union|enum|extern)\b"
)


def blank_directives(text: str) -> str:
    return _DIRECTIVE.sub(lambda m: "\n" * m.group().count("\n"), text)


def c_functions(text: str) -> list[tuple[int, int, str]]:
    """First line, last line and head of each outermost function body; lambdas belong to their owner.

    A brace opens a function when what stands before it, back to the last ; { or }, has a parameter
    list and is no namespace or class; everything inside is skipped.
    """
    text = blank_directives(strip_c(text))
    found = []
    head_start = position = 0
    while position < len(text):
        mark = text[position]
        if mark == "{":
            head = text[head_start:position]
            is_type = _SCOPE.match(head) and not head.rstrip().endswith(")")
            if "(" in head and not is_type:
                end = closing_brace(text, position)
                lead = len(head) - len(head.lstrip())
                first = text.count("\n", 0, head_start + lead) + 1
                last = text.count("\n", 0, end) + 1
                found.append((first, last, head.strip()))
                position = end
            head_start = position + 1
        elif mark in ";}":
            head_start = position + 1
        position += 1
    return found


def closing_brace(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text) - 1


def check_c(name: str, text: str) -> list[str]:
    found = []
    for first, last, head in c_functions(text):
        limit = MAX_KERNEL if "__global__" in head else MAX_FUNCTION
        if last - first + 1 > limit:
            found.append(f"{name}:{first}: function of {last - first + 1} lines (limit {limit})")
    for match in _DEFINE.finditer(strip_c(text)):
        macro = match.group(1)
        public = name == PUBLIC_HEADER and macro in PUBLIC_MACROS
        # The emulator gives CUDA's own words a meaning.
        emulator = name.startswith("tests/emulator/")
        highway = ("hwy/" in text or "/simd/" in name) and HIGHWAY_MACROS.match(macro)
        if macro not in MACROS and not public and not highway and not emulator:
            number = strip_c(text).count("\n", 0, match.start()) + 1
            found.append(f"{name}:{number}: macro {macro} (allowed: {', '.join(sorted(MACROS))})")
    if name.endswith((".h", ".hpp", ".cuh")) and name != PUBLIC_HEADER and "_INL_H_" not in text:
        if "#pragma once" not in text:
            found.append(f"{name}:1: header without #pragma once")
    return found


def check_python(name: str, text: str) -> list[str]:
    return [
        f"{name}:{node.lineno}: function of {length} lines (limit {MAX_FUNCTION})"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    ]


def check_file(name: str, text: str) -> list[str]:
    lines = text.splitlines()
    found = []
    if len(lines) > MAX_FILE:
        found.append(f"{name}:1: file of {len(lines)} lines (limit {MAX_FILE})")
    first = next((line for line in lines if line.strip() and not line.startswith("#!")), "")
    opening = ("//", "/*") if name.endswith((*C_FAMILY, ".rs")) else ("#", '"""')
    if not first.lstrip().startswith(opening):
        found.append(f"{name}:1: does not begin with a comment on what it is for")
    return found + (check_python(name, text) if name.endswith(".py") else
                    check_c(name, text) if name.endswith(C_FAMILY) else [])


def versions(root: Path) -> list[str]:
    """The version in each place that states it; one finding if they differ."""
    header = (root / PUBLIC_HEADER).read_text()
    parts = [re.search(rf"TW_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    cmake = re.search(r"project\(tilewise VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())
    stated = {
        "header": ".".join(part.group(1) if part else "?" for part in parts),
        "CMakeLists.txt": cmake.group(1) if cmake else "?",
    }
    log = root / "CHANGELOG.md"
    heading = re.search(r"^## \[?([\d.]+)", log.read_text() if log.exists() else "", re.MULTILINE)
    stated["CHANGELOG.md"] = heading.group(1) if heading else "?"
    return [f"versions differ: {stated}"] if len(set(stated.values())) > 1 else []


def main() -> None:
    root = parser("Check sizes, macros and versions.").parse_args().root
    sources = files(root, (*C_FAMILY, ".py", ".rs", ".cmake"), ("CMakeLists.txt",))
    found = []
    for path in sources:
        found += check_file(path.relative_to(root).as_posix(), path.read_text(errors="replace"))
    if (root / PUBLIC_HEADER).exists():
        found += versions(root)
    report(found, f"{len(sources)} files within limits")


if __name__ == "__main__":
    main()
