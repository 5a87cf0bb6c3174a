# Shared by the gates' own tests: a small tree to plant a violation in, and a way to run a gate on it.
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Callable, NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


class Verdict(NamedTuple):
    passed: bool
    said: str


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file into the tree under test."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def gate(tmp_path: Path) -> Callable[..., Verdict]:
    """Runs tools/dev/<script> on the tree under test."""

    def run(script: str, *arguments: str) -> Verdict:
        command = [sys.executable, str(REPOSITORY / "tools" / "dev" / script), *arguments]
        done = subprocess.run(
            [*command, "--root", str(tmp_path)], capture_output=True, text=True, timeout=300
        )
        return Verdict(done.returncode == 0, done.stdout + done.stderr)

    return run
