#!/usr/bin/env python3
# Gate: the direction of includes. Rooms depend downwards only (ARCHITECTURE.md); this reads the
# include lines and names each one that points up or sideways.
from __future__ import annotations

import re
from pathlib import Path

from sources import C_FAMILY, files, parser, report

# Room -> what it may include besides itself. A room is the longest prefix that matches a path below
# src/. The standard library, Highway and the public headers are judged by the second table.
ROOMS: dict[str, tuple[str, ...]] = {
    "api": ("plan", "core", "cpu", "cuda"),
    "plan": ("core",),
    "core": (),
    "cpu": ("plan", "core"),
    "cuda": ("plan", "core", "cuda/launch"),
    "cuda/instances": ("core", "cuda/launch"),
    "cuda/launch": ("plan", "core", "cuda/kernel", "cuda/tile"),
    "cuda/kernel": ("plan", "core", "cuda/tile", "cuda/ptx"),
    "cuda/tile": ("plan", "core", "cuda/ptx"),
    "cuda/ptx": ("core",),
}
ARCHITECTURES = ("any", "simt", "sm80", "sm90a")
HOST_ROOMS = ("api", "core", "plan", "cpu")

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
_CUDA_HEADER = re.compile(r"^(cuda|cub/|cute/|cutlass/|thrust/|mma\.h|nv|cooperative_groups)")


def room_of(path: str) -> str | None:
    """The room of a path below src/, or None for a path outside all rooms."""
    matching = [room for room in ROOMS if path.startswith(room + "/")]
    return max(matching, key=len, default=None)


def architecture_of(path: str) -> str | None:
    match = re.match(r"cuda/(?:kernel|launch)/([^/]+)/", path)
    return match.group(1) if match and match.group(1) in ARCHITECTURES else None


def judge_source(path: str, quoted: bool, target: str) -> str | None:
    """Why a file at src/<path> may not include `target`, or None."""
    room = room_of(path)
    if not quoted:
        if room in HOST_ROOMS and _CUDA_HEADER.match(target):
            return f"{room} includes no CUDA header"
        if target.startswith("tilewise/") and room != "api":
            return "only api sees the public headers"
        return None
    if target.startswith("hwy/"):
        return None
    other = room_of(target)
    if other is None:
        return "not a path below src/"
    if other == "cuda/instances":
        return "nothing includes instances/"
    mine, theirs = architecture_of(path), architecture_of(target)
    if mine and theirs and "any" not in (mine, theirs) and mine != theirs:
        return f"{mine} does not include {theirs}"
    if other != room and other not in ROOMS[room or ""]:
        return f"{room} may include {', '.join(ROOMS[room or '']) or 'nothing of ours'}"
    return None


def judge_outside(path: str, quoted: bool, target: str) -> str | None:
    """The same for include/, tools/ and examples/, which are users of the public headers."""
    if path.startswith("include/"):
        return "public headers include each other as <tilewise/...>" if quoted else None
    # What speaks for the C ABI must not reach behind it, nor through a folder that does.
    for folder, known in (("generate", ("generate", "common")), ("common", ("common",))):
        if path.startswith(f"tools/{folder}/") and quoted:
            if "/" in target and not target.startswith((*(f"{name}/" for name in known), "hwy/")):
                return f"tools/{folder} knows <tilewise/...> and tools/{{{', '.join(known)}}} only"
    if path.startswith("examples/") and quoted:
        return "an example knows <tilewise/...> only"
    return None


def findings_in(root: Path, file: Path) -> list[str]:
    relative = file.relative_to(root).as_posix()
    found = []
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        match = _INCLUDE.match(line)
        if not match:
            continue
        quoted, target = match.group(1) == '"', match.group(2)
        if relative.startswith("src/"):
            path = relative.removeprefix("src/")
            why = judge_source(path, quoted, target) if room_of(path) else "in no room"
        else:
            why = judge_outside(relative, quoted, target)
        if why:
            found.append(f"{relative}:{number}: includes {target}: {why}")
    return found


def main() -> None:
    root = parser("Check the direction of includes.").parse_args().root
    sources = [
        file
        for folder in ("src", "include", "tools", "examples")
        for file in files(root / folder, C_FAMILY)
    ]
    found = [line for file in sources for line in findings_in(root, file)]
    report(found, f"{len(sources)} files, all includes point downwards")


if __name__ == "__main__":
    main()
