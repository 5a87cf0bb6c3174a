#!/usr/bin/env python3
# Gates: clang-format over every C-family file, and clang-tidy over the .cc files of src/ and tools/ as
# build/compile_commands.json compiles them. Both pinned to version 14, since versions disagree.
from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import C_FAMILY, files, parser, report

VERSION = 14


def find_tool(name: str) -> str:
    path = shutil.which(f"{name}-{VERSION}")
    if path is None:
        sys.exit(f"{name}-{VERSION} is missing (Debian: apt-get install {name}-{VERSION})")
    return path


def check_format(root: Path) -> None:
    names = [str(path) for path in files(root, C_FAMILY)]
    if not names:
        report([], "no files")
    command = [find_tool("clang-format"), "--dry-run", "-Werror", "--style=file", *names]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    places = re.findall(r"^(.*?):(\d+):\d+: error:", done.stderr, flags=re.M)
    first = {name: number for name, number in reversed(places)}
    found = [f"{name}:{number}: clang-format-{VERSION} -i would change this" for name, number in
             sorted(first.items())]
    report(found or ([done.stderr] if done.returncode else []), f"{len(names)} files formatted")


def tidy_one(tool: str, root: Path, build: Path, source: str) -> str:
    """The findings in one file, empty if none.

    Warnings belong to the compiler; Highway units are read for one target, since the others are the
    same text again: AVX2 on x86, as plain x86-64 would be scalars.
    """
    extra = ["--extra-arg=-w", "--extra-arg=-DHWY_COMPILE_ONLY_STATIC"]
    if platform.machine() == "x86_64":
        extra.append("--extra-arg=-march=skylake")
    command = [tool, "-p", str(build), "--quiet", *extra, source]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    found = re.sub(r"^\d+ warnings? (generated|treated as error).*\n?", "", done.stdout, flags=re.M)
    return found.strip() or done.stderr.strip()


def check_tidy(root: Path, build: Path) -> None:
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"{database} is missing: configure first (make build)")
    wanted = re.compile(re.escape(str(root.resolve())) + r"/(src|tools)/.*\.cc$")
    known = {entry["file"] for entry in json.loads(database.read_text())}
    sources = sorted(filter(wanted.match, known), key=lambda name: -Path(name).stat().st_size)
    tool = find_tool("clang-tidy")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda name: tidy_one(tool, root, build, name), sources))
    report([text for text in found if text], f"{len(sources)} files tidy")


def main() -> None:
    options = parser("Run clang-format or clang-tidy.")
    options.add_argument("gate", choices=("format", "tidy"))
    options.add_argument("--build", type=Path, help="build folder (default: build)")
    given = options.parse_args()
    if given.gate == "format":
        check_format(given.root)
    else:
        check_tidy(given.root, given.build or given.root / "build")


if __name__ == "__main__":
    main()
