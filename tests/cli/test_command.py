# The built command from outside: exit status, what goes to which stream, and the JSON documents.
# TILEWISE_COMMAND names another build than build/tilewise.
from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("TILEWISE_COMMAND", str(ROOT / "build" / "tilewise"))
QUICK_ROW = "qk_prep/bf16"


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=300)


def document(*arguments: str) -> dict:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # fails if anything but one document was printed


def test_version_is_the_headers():
    done = run("--version")
    header = (ROOT / "include/tilewise/tilewise.h").read_text()
    parts = [header.split(f"TW_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH")]
    assert (done.returncode, done.stdout) == (0, f"tilewise {'.'.join(parts)}\n")


@pytest.mark.parametrize("command", ["", "info", "verify", "bench", "generate"])
def test_help_goes_to_standard_output(command):
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert "--help" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "subcommand"),
        (["paint"], "paint"),
        (["info", "--colour"], "--colour"),
        (["bench", "--filter", "["], "--filter"),
        (["bench", "--filter", "no such row"], "--filter"),
        (["bench", "--threads", "-1"], "--threads"),
        (["bench", "--threads", "many"], "--threads"),
        (["bench", "--backend", "tpu"], "--backend"),
        (["bench", "--backend", "cuda"], "--backend"),
        (["bench", "--filter", QUICK_ROW, "--out", "/no/such/folder/x.json"], "--out"),
        (["bench", "--filter", QUICK_ROW, "--plot", "/no/such/folder/x.svg"], "--plot"),
        (["verify", "--filter", "("], "--filter"),
        (["verify", "--cases", "-3"], "--cases"),
        (["generate"], "--model"),
    ],
)
def test_bad_arguments_exit_with_2_and_name_the_option(arguments, named):
    done = run(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert done.stdout == ""


def test_verify_says_why_it_cannot_run_on_cuda():
    if document("info", "--json")["device"] is not None:
        pytest.skip("there is a device")
    done = run("verify", "--backend", "cuda")
    assert done.returncode == 2
    assert "--backend cuda: this " in done.stderr


def test_info_json_tells_build_backends_machine_and_variants():
    info = document("info", "--json")
    assert info["build"]["version"] == info["version"]
    backends = {backend["name"]: backend for backend in info["backends"]}
    assert backends["cpu"]["available"] is True
    assert backends["cpu"]["types"][0]["head_dims"] == list(range(8, 513, 8))
    assert len(backends["cpu"]["types"]) == 9
    assert info["machine"]["cores"] >= 1
    assert [variant["number"] for variant in info["variants"]] == list(range(1, len(info["variants"]) + 1))
    assert (info["cuda_variants"] != []) == backends["cuda"]["available"]
    assert info["device"] is None or info["device"]["sm_count"] >= 1


def test_info_text_names_the_same_facts():
    info, text = document("info", "--json"), run("info").stdout
    for fact in (info["version"], info["machine"]["cpu"], "head_dim 8..512 in steps of 8"):
        assert fact in text


def test_bench_writes_the_same_document_to_file_and_stream(tmp_path):
    out, plot = tmp_path / "bench.json", tmp_path / "bench.svg"
    result = document("bench", "--quick", "--json", "--filter", QUICK_ROW, "--out", str(out), "--plot", str(plot))
    assert result == json.loads(out.read_text())
    assert xml.etree.ElementTree.parse(plot).getroot().tag.endswith("svg")
    (row,) = result["rows"]
    assert row["ms_min"] <= row["ms_median"] <= row["ms_max"]
    assert row["share"] == pytest.approx(row["gb_s"] / row["limit"], rel=1e-3)


def test_bench_runs_on_the_threads_it_is_told():
    assert document("bench", "--quick", "--json", "--filter", QUICK_ROW, "--threads", "1")["threads"] == 1


def test_bench_table_goes_to_standard_output():
    done = run("bench", "--quick", "--filter", QUICK_ROW)
    assert done.returncode == 0
    assert QUICK_ROW in done.stdout
    assert "share" in done.stdout
