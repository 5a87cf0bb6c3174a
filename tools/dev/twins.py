#!/usr/bin/env python3
# Gate: no twins. Finds runs of eight or more lines that stand in two places, equal or equally shaped
# (same text once names, numbers and strings are made alike). Shared code belongs in one header.
from __future__ import annotations

import fnmatch
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from sources import C_FAMILY, files, parser, report, strip_c

RUN = 8
# A list of alike lines (fields, table rows, expectations) is equally shaped with itself all the way
# down and no twin. So a run counts only if it has this many different shapes, all declarations of
# fields being one; words that are spelt the same make it a twin with fewer.
MIN_SHAPES = 5
MIN_EQUAL = 3
ALLOW_LIST = "tools/dev/twins_allow.txt"

_WORD = re.compile(r'""|[A-Za-z_]\w*|\.?\d[\w.]*|\S')
_KEPT = frozenset(
    """alignas auto bool break case catch char class const constexpr continue default delete do double
    else enum explicit extern false float for friend goto if inline int int8_t int16_t int32_t int64_t
    long namespace new noexcept nullptr operator override private protected public return short signed
    size_t sizeof static static_assert struct switch template this throw true try typedef typename
    uint8_t uint16_t uint32_t uint64_t uintptr_t union unsigned using virtual void volatile while
    __global__ __device__ __host__ __shared__ asm
    def elif except finally from global import in is lambda None not and or pass raise with yield
    True False self assert fn impl let match mut mod pub trait unsafe use where type
    function endfunction foreach endforeach endif set""".split()
)
_PASSED_OVER = re.compile(
    r"^(?:#\s*(?:include|pragma|if|ifdef|ifndef|el\w+|endif|undef|define)\b.*|"
    r"(?:import|from|use)\b.*|(?:\}\s*)?namespace\b.*|HWY_(?:BEFORE|AFTER)_NAMESPACE.*|[\W_]*|"
    r"\}?\s*else\s*\{?|else:|end(?:if|foreach|function)\(\)|(?:public|private|protected):)$"
)
_FIELD = re.compile(r"^[^()={}]*;$")


class Line(NamedTuple):
    number: int
    text: str
    shape: str


class Twin(NamedTuple):
    first: tuple[str, int, int]
    second: tuple[str, int, int]
    lines: int

    def __str__(self) -> str:
        one, two = (f"{path}:{start}-{end}" for path, start, end in (self.first, self.second))
        return f"{one} and {two}: {self.lines} lines alike"


def strip_hash(text: str) -> str:
    """Rust has C's comments; CMake's and Python's begin with #, outside of strings."""
    return re.sub(r'("(?:\\.|[^"\\\n])*")|#[^\n]*', lambda m: '""' if m.group(1) else "", text)


def strip_python(text: str) -> str:
    """Python text without comments and with literals emptied; docstrings go entirely."""
    lines = text.splitlines(keepends=True)
    gone: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    fresh = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            gone.append((token.start, token.end, ""))
        elif token.type == tokenize.STRING:
            gone.append((token.start, token.end, "" if fresh else '""'))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            fresh = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for (row, column), (end_row, end_column), by in reversed(gone):
        head, tail = lines[row - 1][:column], lines[end_row - 1][end_column:]
        lines[row - 1] = head + by + (tail if end_row == row else "\n")
        for between in range(row, end_row):
            lines[between] = tail if between == end_row - 1 and tail.strip() else "\n"
    return "".join(lines)


def shape_of(text: str) -> str:
    """The line with every name as `n`, every number as `0`; keywords and plain types stay."""
    return " ".join(
        word if word in _KEPT else "n" if word[0].isalpha() or word[0] == "_" else
        "0" if word[0].isdigit() or word[:2].strip(".").isdigit() else word
        for word in _WORD.findall(text)
    )


def lines_of(path: Path) -> list[Line]:
    text = path.read_text(errors="replace")
    if path.suffix == ".py":
        text = strip_python(text)
    elif path.suffix in (".cmake", ".txt"):
        text = strip_hash(text)
    else:
        text = strip_c(text)
    kept = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = " ".join(raw.split())
        if not _PASSED_OVER.match(line):
            line = line.removeprefix("} ").removesuffix(" {")
            kept.append(Line(number, line, shape_of(line)))
    return kept


def grown(a: list[Line], i: int, b: list[Line], j: int) -> int:
    """How many lines from a[i] and b[j] on are equally shaped, without running into each other."""
    limit = min(len(a) - i, len(b) - j)
    if a is b:
        limit = min(limit, abs(j - i))
    count = 0
    while count < limit and a[i + count].shape == b[j + count].shape:
        count += 1
    return count


def telling(a: list[Line], b: list[Line]) -> bool:
    """Whether the run says enough to be called a copy rather than a list."""
    shapes = len({_FIELD.sub("field", line.shape) for line in a})
    equal = len({x.text for x, y in zip(a, b) if x.text == y.text})
    return shapes >= MIN_SHAPES or (equal >= RUN and shapes >= MIN_EQUAL)


def find_twins(sources: dict[str, list[Line]]) -> list[Twin]:
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, lines in sources.items():
        for start in range(len(lines) - RUN + 1):
            places[tuple(line.shape for line in lines[start : start + RUN])].append((path, start))
    covered: set[tuple[str, int, str, int]] = set()
    twins = []
    for window in places.values():
        for x, (path_a, i) in enumerate(window):
            for path_b, j in window[x + 1 :]:
                if (path_a, i, path_b, j) in covered:
                    continue
                a, b = sources[path_a], sources[path_b]
                count = grown(a, i, b, j)
                covered.update((path_a, i + k, path_b, j + k) for k in range(count - RUN + 1))
                if count >= RUN and telling(a[i : i + count], b[j : j + count]):
                    first = (path_a, a[i].number, a[i + count - 1].number)
                    second = (path_b, b[j].number, b[j + count - 1].number)
                    twins.append(Twin(first, second, count))
    return twins


def allowed(root: Path) -> list[str]:
    """Globs of files that are data tables: rows of numbers are alike by nature."""
    path = root / ALLOW_LIST
    text = path.read_text() if path.exists() else ""
    return [line.split()[0] for line in text.splitlines() if line.strip() and line[0] != "#"]


def main() -> None:
    root = parser("Find equal or equally shaped runs of lines.").parse_args().root
    tables = allowed(root)
    sources = {}
    for path in files(root, (*C_FAMILY, ".py", ".rs", ".cmake"), ("CMakeLists.txt",)):
        name = path.relative_to(root).as_posix()
        if not any(fnmatch.fnmatch(name, table) for table in tables):
            try:
                sources[name] = lines_of(path)
            except (tokenize.TokenError, IndentationError) as error:
                sys.exit(f"{name}: not readable as Python: {error}")
    twins = find_twins(sources)
    report([str(twin) for twin in twins], f"{len(sources)} files, no twins")


if __name__ == "__main__":
    main()
