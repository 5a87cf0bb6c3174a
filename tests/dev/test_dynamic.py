# The gates that run code report a build, a test and a fuzz target that fail. The programs are stand-ins
# in a tree of their own: what is tested is that a failure is seen, not the sanitizers.
from __future__ import annotations

import stat

import pytest


@pytest.fixture
def tree(plant, monkeypatch, tmp_path):
    """Puts scripts named cmake and ctest first in PATH, with given exit statuses."""

    def make(cmake: int = 0, ctest: int = 0, fuzz: int = 0) -> None:
        program = "build-fuzz/tests/fuzz/args_fuzz"
        for name, status in (("bin/cmake", cmake), ("bin/ctest", ctest), (program, fuzz)):
            path = plant(name, f'#!/bin/sh\necho "ran {name} $@"\nexit {status}\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        plant("tests/fuzz/args_fuzz.cc", "// A target.\n")
        monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")

    return make


@pytest.mark.parametrize(("name", "failing"), [("asan", "cmake"), ("asan", "ctest"),
                                               ("fuzz", "cmake"), ("fuzz", "fuzz")])
def test_failure_is_reported(tree, gate, name, failing):
    tree(**{failing: 3})
    verdict = gate("dynamic.py", name)
    assert not verdict.passed
    assert "exit status 3" in verdict.said


@pytest.mark.parametrize("name", ["asan", "fuzz"])
def test_success_passes(tree, gate, name):
    tree()
    verdict = gate("dynamic.py", name)
    assert verdict.passed, verdict.said


def test_missing_fuzz_targets_are_a_failure(gate):
    verdict = gate("dynamic.py", "fuzz")
    assert not verdict.passed
    assert "no *_fuzz.cc" in verdict.said
