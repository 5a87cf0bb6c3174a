#!/usr/bin/env python3
# Gates that run code: all C++ tests under AddressSanitizer and UBSan, the thread pool's under
# ThreadSanitizer, and each fuzz target for some seconds. Presets in CMakePresets.json.
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sources import parser, report

# What runs tasks on several threads; the rest of the tests would only be slow under this sanitizer.
THREADED = "*Pool*:*Parallel*:*Threads*"
THREADED_PROGRAMS = ("unit_tests", "conformance_tests", "tools_tests")
# The same templates at other vector widths: most of the time for little news. All of them under
# AddressSanitizer: ctest --preset asan.
LEFT_OUT_OF_ASAN = r"^conformance\.isa\."
RUNTIME = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}
FUZZ_TARGET_SUFFIX = "_fuzz"


def run(command: list[str], root: Path, **environment: str) -> str | None:
    """Runs a command quietly; the end of what it said if it failed."""
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, **RUNTIME, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode == 0:
        return None
    tail = "\n".join(done.stdout.splitlines()[-60:])
    return f"{' '.join(command)}: exit status {done.returncode}\n{tail}"


def build(root: Path, preset: str, targets: tuple[str, ...] = ()) -> None:
    for command in (
        ["cmake", "--preset", preset],
        ["cmake", "--build", "--preset", preset, *(("--target", *targets) if targets else ())],
    ):
        failure = run(command, root)
        if failure:
            report([failure], "")


def check_asan(root: Path) -> None:
    build(root, "asan")
    # The same tests again for narrower vectors are left to `ctest --preset asan`: they take longest.
    command = ["ctest", "--preset", "asan", "--parallel", str(os.cpu_count())]
    failure = run([*command, "--exclude-regex", LEFT_OUT_OF_ASAN], root)
    report([failure] if failure else [], "all C++ tests clean")


def threaded_tests(program: Path) -> int:
    """How many tests of a program the filter picks."""
    command = [program, f"--gtest_filter={THREADED}", "--gtest_list_tests"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(line.startswith("  ") for line in listed.splitlines())


def check_tsan(root: Path) -> None:
    build(root, "tsan", THREADED_PROGRAMS)
    programs = [root / "build-tsan" / "tests" / name for name in THREADED_PROGRAMS]
    counts = {program: threaded_tests(program) for program in programs}
    failures = [f"{program}: no test is named like {THREADED}" for program in programs
                if counts[program] == 0]
    failures += filter(None, (run([str(program), "--gtest_brief=1", f"--gtest_filter={THREADED}"],
                                  root) for program in programs))
    report(failures, f"{sum(counts.values())} threaded tests clean")


def fuzz_one(root: Path, program: Path, seconds: int) -> str | None:
    """Runs one target on its seeds and on what it invents; a crash leaves its input in build-fuzz."""
    seeds = root / "tests" / "fuzz" / "corpus" / program.name
    with tempfile.TemporaryDirectory() as corpus:
        options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096",
                   f"-artifact_prefix={root}/build-fuzz/{program.name}-", "-print_final_stats=1"]
        seed_folders = [str(seeds)] if seeds.is_dir() else []
        return run([str(program), *options, corpus, *seed_folders], root)


def check_fuzz(root: Path, seconds: int) -> None:
    sources = sorted((root / "tests" / "fuzz").glob(f"*{FUZZ_TARGET_SUFFIX}.cc"))
    if not sources:
        report(["tests/fuzz has no *_fuzz.cc"], "")
    build(root, "fuzz", tuple(source.stem for source in sources))
    programs = [root / "build-fuzz" / "tests" / "fuzz" / source.stem for source in sources]
    failures = [fuzz_one(root, program, seconds) for program in programs]
    report([text for text in failures if text], f"{len(programs)} targets, {seconds} s each")


def main() -> None:
    options = parser("Run tests under sanitizers, or the fuzz targets.")
    options.add_argument("gate", choices=("asan", "tsan", "fuzz"))
    options.add_argument("--seconds", type=int, default=10, help="time of each fuzz target")
    given = options.parse_args()
    if given.gate == "fuzz":
        check_fuzz(given.root, given.seconds)
    else:
        {"asan": check_asan, "tsan": check_tsan}[given.gate](given.root)


if __name__ == "__main__":
    sys.exit(main())
