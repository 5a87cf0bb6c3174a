# What the gates share: which files of a tree are ours, their text without comments and strings, and
# the one way to report findings.
from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

C_FAMILY = (".h", ".hpp", ".c", ".cc", ".cu", ".cuh")
ROOT = Path(__file__).resolve().parents[2]

_SKIPPED = re.compile(r"^(build.*|models|third_party|__pycache__|node_modules|target|\..*)$")

# Comments and literals of the C family. Group 1: comment, group 2: literal. A quote after a digit or
# letter separates digits (1'000) and opens nothing.
_C_TOKENS = re.compile(
    r"""(//[^\n]*|/\*.*?\*/)|(R"([^()\\\s]*)\(.*?\)\3"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+')""",
    re.DOTALL,
)


def files(root: Path, suffixes: tuple[str, ...], names: tuple[str, ...] = ()) -> list[Path]:
    """Files under `root` by suffix or exact name, sorted; build trees and hidden folders left out."""
    found = []
    for folder, folders, entries in os.walk(root):
        folders[:] = [name for name in folders if not _SKIPPED.match(name)]
        found += [
            Path(folder, name)
            for name in entries
            if name.endswith(suffixes) or name in names
        ]
    return sorted(found)


def _blank(match: re.Match[str]) -> str:
    newlines = "\n" * match.group().count("\n")
    return newlines if match.group(1) else '""' + newlines


def strip_c(text: str) -> str:
    """C or C++ text with comments gone and literals emptied; line numbers stay."""
    return _C_TOKENS.sub(_blank, text)


def parser(description: str) -> argparse.ArgumentParser:
    """The options that every gate takes."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--root", type=Path, default=ROOT, help="tree to look at")
    return result


def report(findings: list[str], summary: str) -> None:
    """Prints the findings, or the summary when there are none, and exits accordingly."""
    if findings:
        print("\n".join(findings))
        sys.exit(1)
    print(summary)
    sys.exit(0)
