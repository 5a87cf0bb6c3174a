# The demo's model in plain numpy, independent of the library and of Hugging Face: what rounding the K/V
# cache to 16 bits does to the logits. The model is read with code of its own.
from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np


def round_to_bf16(x: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


ROUNDING = {
    "f32": lambda x: x,
    "bf16": round_to_bf16,
    "fp16": lambda x: x.astype(np.float16).astype(np.float32),
}


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """bf16 tensors of a safetensors file as float32."""
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    header = json.loads(raw[8 : 8 + length].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[begin:end].tobytes(), dtype="<u2").astype(np.uint32)
        tensors[name] = (bits << 16).view(np.float32).reshape(entry["shape"])
    return tensors


class Llama:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_checkpoint(folder / "model.safetensors")

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name]

    def heads(self, x: np.ndarray, name: str) -> np.ndarray:
        """x W^T as [heads, rows, head_dim]"""
        y = x @ self.weights[name].T
        return y.reshape(len(x), -1, self.config["head_dim"]).swapaxes(0, 1)

    def rotate(self, x: np.ndarray) -> np.ndarray:
        half = self.config["head_dim"] // 2
        frequency = self.config["rope_theta"] ** (-np.arange(half) / half)
        angle = np.arange(x.shape[1])[:, None] * frequency
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, x: np.ndarray, layer: str, cache: str) -> np.ndarray:
        q = self.rotate(self.heads(x, layer + "self_attn.q_proj.weight"))
        k = ROUNDING[cache](self.rotate(self.heads(x, layer + "self_attn.k_proj.weight")))
        v = ROUNDING[cache](self.heads(x, layer + "self_attn.v_proj.weight"))
        group = len(q) // len(k)
        future = np.triu(np.full((len(x), len(x)), -np.inf, dtype=np.float32), 1)
        out = []
        for head, rows in enumerate(q):
            scores = rows @ k[head // group].T / np.sqrt(np.float32(rows.shape[1])) + future
            p = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out.append(p @ v[head // group] / p.sum(axis=-1, keepdims=True))
        return np.concatenate(out, axis=-1) @ self.weights[layer + "self_attn.o_proj.weight"].T

    def feed_forward(self, x: np.ndarray, layer: str) -> np.ndarray:
        gate = x @ self.weights[layer + "mlp.gate_proj.weight"].T
        up = x @ self.weights[layer + "mlp.up_proj.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weights[layer + "mlp.down_proj.weight"].T

    def logits(self, ids: list[int], first: int, cache: str) -> np.ndarray:
        """Logits after each of ids[first:], with K and V rounded as a cache of that type holds them."""
        x = self.weights["model.embed_tokens.weight"][ids]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = x + self.attention(self.norm(x, layer + "input_layernorm.weight"), layer, cache)
            x = x + self.feed_forward(self.norm(x, layer + "post_attention_layernorm.weight"), layer)
        return self.norm(x[first:], "model.norm.weight") @ self.weights["model.embed_tokens.weight"].T


def gap_changes(model: Llama, case: dict, cache: str) -> np.ndarray:
    """How much rounding the cache changes the lead of each stored token over the best other one, by step."""
    prompt, answer = case["prompt_ids"], case["greedy_ids"]
    logits = model.logits(prompt + answer[:-1], len(prompt) - 1, cache)
    step = np.arange(len(answer))
    chosen = logits[step, answer]
    logits[step, answer] = -np.inf
    return np.abs(chosen - logits.max(axis=-1) - np.array(case["gaps"], dtype=np.float32))
