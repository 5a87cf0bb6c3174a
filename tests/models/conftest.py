# What the tests of the demo's model share: where it is, the stored answers, and how to run the command.
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("TILEWISE_COMMAND", str(ROOT / "build" / "tilewise"))
MODEL = ROOT / "models" / "smollm2-135m-instruct"
CASES = json.loads((ROOT / "tests/fixtures/smollm2-greedy.json").read_text())["cases"]


@pytest.fixture(scope="session", autouse=True)
def model_folder() -> Path:
    if not (MODEL / "model.safetensors").exists():
        if os.environ.get("TILEWISE_REQUIRE_MODEL") == "1":
            pytest.fail(f"there is no model in {MODEL}: make model")
        pytest.skip(f"no model in {MODEL}")
    return MODEL


@pytest.fixture(scope="session")
def generate(tmp_path_factory):
    """generate(cases, options...): the JSON document of one run over the cases' prompts."""
    folder = tmp_path_factory.mktemp("prompts")
    for case in CASES:
        (folder / case["name"]).write_bytes(case["prompt"].encode())

    def run(cases: list[dict], *options: str) -> dict:
        prompts = [text for case in cases for text in ("--prompt-file", str(folder / case["name"]))]
        command = [COMMAND, "generate", "--model", str(MODEL), "--json", "--ignore-eos"]
        done = subprocess.run([*command, "--max-tokens", "64", *prompts, *options],
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
