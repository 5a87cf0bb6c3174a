#!/usr/bin/env python3
"""Compares the command's tokenizer with the PyPI package `tokenizers` on random Unicode strings.

Both read the vocabulary and merges of the model folder. Run by hand (pip install tokenizers); the result is
recorded in docs/performance.md. Strings hold characters that Unicode 14 has assigned: what a character was
assigned to later is a matter of the two libraries' Unicode versions.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct"
RUN = 1000  # prompts of one run of the command
# What the rules of the tokenizer look at, so that a random string meets them often.
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_", "'s", "'t", "'re", "'ve",
           "'m", "'ll", "'d", "'", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085",
           "1", "23", "\u00bd", "\u2167", "\u0661", "\u0301", "\u200d", "the", "ing", "Hello", "\u00e9",
           "\u4f60\u597d", "\U0001f600"]


def assigned_characters():
    return [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def random_string(source, characters):
    parts = []
    for _ in range(source.randint(1, 40)):
        kind = source.random()
        if kind < 0.35:
            parts.append(source.choice(SPECIAL))
        elif kind < 0.6:
            parts.append(chr(source.randint(0x20, 0x7E)))
        elif kind < 0.75:
            parts.append(chr(source.randint(1, 0x24F)))
        else:
            parts.append(source.choice(characters))
    return "".join(parts)


def encode(command, strings, folder):
    """Ids that the command gives: it reads the prompts and writes no tokens."""
    arguments = []
    for index, text in enumerate(strings):
        path = folder / str(index)
        path.write_bytes(text.encode())
        arguments += ["--prompt-file", str(path)]
    done = subprocess.run([command, "generate", "--model", str(MODEL), "--json", "--max-tokens", "0",
                           *arguments], capture_output=True, text=True, check=True)
    return [prompt["prompt_ids"] for prompt in json.loads(done.stdout)["prompts"]]


def main():
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default=str(ROOT / "build" / "tilewise"))
    parser.add_argument("--strings", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source = random.Random(options.seed)
    characters = assigned_characters()
    theirs = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    different = compared = tokens = 0
    while compared < options.strings:
        strings = [random_string(source, characters) for _ in range(min(RUN, options.strings - compared))]
        wanted = [encoding.ids for encoding in theirs.encode_batch(strings)]
        pairs = [(text, ids) for text, ids in zip(strings, wanted) if ids]  # the command wants a token
        with tempfile.TemporaryDirectory() as folder:
            ours = encode(options.command, [text for text, _ in pairs], Path(folder))
        for (text, ids), got in zip(pairs, ours):
            tokens += len(ids)
            if ids != got:
                different += 1
                print(f"different: {ascii(text)}\n  tokenizers {ids}\n  tilewise   {got}")
        compared += len(strings)
    print(f"{compared} strings, {tokens} tokens, {different} strings different (seed {options.seed})")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
