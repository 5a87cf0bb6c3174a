#!/usr/bin/env python3
"""Prefill and decode speed of `tilewise generate` and of Hugging Face transformers on the same weights.

Float32, greedy, the prompts of 34 and 873 tokens of tests/fixtures, 64 new tokens; the two take turns in one
run on the same number of threads. Where torch and transformers cannot be imported it says so and ends with
status 2: they are no dependency of the project.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "smollm2-135m-instruct"
PROMPTS = ("gravity", "license")
NEW_TOKENS = 64


class Transformers:
    name = "transformers"

    def __init__(self, threads):
        import torch
        from transformers import LlamaForCausalLM, __version__

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = LlamaForCausalLM.from_pretrained(
            MODEL, dtype=torch.float32, attn_implementation="sdpa").eval()
        self.version = f"transformers {__version__}, torch {torch.__version__}"

    def run(self, case):
        """Tokens per second of prefill and decode, and the tokens."""
        torch = self.torch
        ids = torch.tensor([case["prompt_ids"]])
        with torch.inference_mode():
            start = time.perf_counter()
            state = self.model(ids, use_cache=True, logits_to_keep=1)
            token = int(state.logits[0, -1].argmax())
            middle = time.perf_counter()
            tokens = [token]
            while len(tokens) < NEW_TOKENS:
                state = self.model(torch.tensor([[token]]), past_key_values=state.past_key_values,
                                   use_cache=True)
                token = int(state.logits[0, -1].argmax())
                tokens.append(token)
            end = time.perf_counter()
        return ids.shape[1] / (middle - start), (NEW_TOKENS - 1) / (end - middle), tokens


class Tilewise:
    name = "tilewise"

    def __init__(self, command, threads):
        self.command = [command, "generate", "--model", str(MODEL), "--json", "--ignore-eos",
                        "--threads", str(threads), "--max-tokens", str(NEW_TOKENS), "--prompt-file"]
        version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
        self.version = version.stdout.strip()

    def run(self, case):
        with tempfile.NamedTemporaryFile() as prompt:
            Path(prompt.name).write_bytes(case["prompt"].encode())
            done = subprocess.run([*self.command, prompt.name], capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        return (result["prefill_tokens_per_s"], result["decode_tokens_per_s"],
                result["prompts"][0]["output_ids"])


def measure(runners, case, repeats):
    """Medians of (prefill, decode) by runner, taken in turns; the tokens must be the stored ones."""
    samples = {runner.name: [] for runner in runners}
    for repeat in range(repeats + 1):
        for runner in runners:
            prefill, decode, tokens = runner.run(case)
            if tokens != case["greedy_ids"]:
                raise SystemExit(f"{runner.name}: {case['name']} is not the stored answer")
            if repeat > 0:  # the first turn warms up
                samples[runner.name].append((prefill, decode))
    return {name: [round(statistics.median(column), 1) for column in zip(*values)]
            for name, values in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default=str(ROOT / "build" / "tilewise"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the JSON document to this file too")
    options = parser.parse_args()
    try:
        runners = [Tilewise(options.command, options.threads), Transformers(options.threads)]
    except ImportError as error:
        print(f"generate_vs_transformers: needs the Python package {error.name}", file=sys.stderr)
        return 2
    cases = json.loads((ROOT / "tests/fixtures/smollm2-greedy.json").read_text())["cases"]
    # On a machine that is busy with other work the figures mean little: its load stands beside them.
    document = {"threads": options.threads, "versions": [runner.version for runner in runners],
                "load_average_before": round(os.getloadavg()[0], 2), "rows": []}
    for case in cases:
        if case["name"] not in PROMPTS:
            continue
        medians = measure(runners, case, options.repeats)
        for index, stage in enumerate(("prefill", "decode")):
            ours, theirs = medians["tilewise"][index], medians["transformers"][index]
            document["rows"].append({"stage": stage, "prompt_tokens": len(case["prompt_ids"]),
                                     "tilewise_tokens_per_s": ours, "transformers_tokens_per_s": theirs,
                                     "ratio": round(ours / theirs, 2)})
    text = json.dumps(document, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
