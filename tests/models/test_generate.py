# Greedy text of the demo's model against stored answers of an independent implementation: every prompt alone
# and in one batch, page sizes 1, 16 and 64, one thread and two, and 16-bit caches.
from __future__ import annotations

import json
import subprocess

import pytest
from conftest import CASES, COMMAND, MODEL
from emulation import Llama, gap_changes

NAMES = [case["name"] for case in CASES]


def check(result: dict, cases: list[dict]) -> None:
    assert len(result["prompts"]) == len(cases)
    for got, case in zip(result["prompts"], cases):
        assert got["prompt_ids"] == case["prompt_ids"], case["name"]
        assert got["output_ids"] == case["greedy_ids"], case["name"]
        assert got["text"] == case["text"], case["name"]
    assert result["prefill_tokens_per_s"] > 0
    assert result["decode_tokens_per_s"] > 0


# Alone, three pairs hold each page size and each thread count: a run reads the whole model again.
@pytest.mark.parametrize(("page_size", "threads"), [("1", "2"), ("16", "1"), ("64", "2")])
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_prompt_alone_gives_the_stored_answer(generate, case, page_size, threads):
    check(generate([case], "--page-size", page_size, "--threads", threads), [case])


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("page_size", ["1", "16", "64"])
def test_one_batch_of_all_prompts_gives_the_stored_answers(generate, page_size, threads):
    check(generate(CASES, "--page-size", page_size, "--threads", threads), CASES)


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(MODEL)


def test_the_emulation_reproduces_the_stored_leads(model):
    """Without rounding it agrees with an independent float32 run, so that its changes mean something."""
    assert gap_changes(model, CASES[NAMES.index("story")], "f32").max() < 1e-3


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_16_bit_cache_differs_first_where_its_error_allows(generate, model, dtype):
    """The stated error: twice the largest change of a stored token's lead over the best other one that rounding
    K and V to the cache's type makes in an emulation over the stored tokens, all prompts and steps. Up to the
    first difference the command has read these same tokens, so its error is that of the emulation but for
    float32 rounding, which is a thousand times smaller. The factor of two is the project's tolerance rule."""
    changes = {case["name"]: gap_changes(model, case, dtype) for case in CASES}
    bound = 2 * max(change.max() for change in changes.values())
    result = generate(CASES, "--cache-dtype", dtype)
    for got, case in zip(result["prompts"], CASES):
        pairs = zip(got["output_ids"], case["greedy_ids"])
        first = next((step for step, (a, b) in enumerate(pairs) if a != b), None)
        print(f"{dtype} {case['name']}: first difference at {first}, bound {bound:.3f}, "
              f"largest change {changes[case['name']].max():.3f}")
        if first is not None:
            assert case["gaps"][first] <= bound, (case["name"], first)


def test_token_ids_stand_for_the_text(generate):
    case = CASES[NAMES.index("capital")]
    ids = " ".join(map(str, case["prompt_ids"]))
    done = subprocess.run([COMMAND, "generate", "--model", str(MODEL), "--json", "--ids", "--prompt", ids,
                           "--max-tokens", "64", "--ignore-eos"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), [case])


def test_chat_streams_the_answer_and_stops_at_the_end_token():
    case = CASES[NAMES.index("gravity")]
    done = subprocess.run([COMMAND, "generate", "--model", str(MODEL), "--chat", "--prompt",
                           "What is gravity?", "--max-tokens", "64"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == case["text"] + "\n"
    assert "tokens/s" in done.stderr


def test_the_end_token_ends_a_request_and_not_its_neighbours():
    case = CASES[NAMES.index("capital")]  # its stored answer runs over an end token
    end = case["greedy_ids"].index(2)
    done = subprocess.run([COMMAND, "generate", "--model", str(MODEL), "--json", "--prompt", case["prompt"],
                           "--prompt", "What is gravity?", "--chat", "--max-tokens", "64"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plain = subprocess.run([COMMAND, "generate", "--model", str(MODEL), "--json", "--prompt", case["prompt"],
                            "--max-tokens", "64"], capture_output=True, text=True)
    assert json.loads(plain.stdout)["prompts"][0]["output_ids"] == case["greedy_ids"][:end]
    gravity = CASES[NAMES.index("gravity")]
    assert json.loads(done.stdout)["prompts"][1]["output_ids"] == gravity["greedy_ids"]


def test_a_seed_repeats_a_draw_and_neighbours_do_not_change_it():
    def draw(seed: str, *prompts: str) -> list[list[int]]:
        options = [text for prompt in prompts for text in ("--prompt", prompt)]
        done = subprocess.run([COMMAND, "generate", "--model", str(MODEL), "--json", "--temperature", "1",
                               "--seed", seed, "--max-tokens", "24", "--ignore-eos", *options],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [prompt["output_ids"] for prompt in json.loads(done.stdout)["prompts"]]

    first = draw("7", "The sea is")
    assert draw("7", "The sea is", "My favourite colour is")[0] == first[0]
    assert draw("8", "The sea is") != first
