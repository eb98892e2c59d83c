#!/usr/bin/env python3
"""GGUF (architectures llama, qwen2, qwen3) to a Hugging Face folder: config.json and model.safetensors, dequantised.

gguf_to_hf.py IN.gguf OUT_DIR f32|bf16|f16

Undoes the row interleave that the llama architecture applies to the query and key projections. Needs numpy and gguf.
"""
import json
import os
import struct
import sys

import gguf
import numpy as np

LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
DTYPES = {"f32": ("F32", "float32"), "f16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}


def hf_name(name):
    if not name.startswith("blk."):
        return TOP[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def uninterleave(x, heads):
    """[heads, d/2, 2, …] rows back to [heads, 2, d/2, …]."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def cast(x, dtype):
    if dtype == "f32":
        return x
    if dtype == "f16":
        return x.astype(np.float16)
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def config(arch, g, vocab, tied, dtype):
    heads, hidden = g[f"{arch}.attention.head_count"], g[f"{arch}.embedding_length"]
    return dict(
        architectures=[CLASSES[arch]], model_type=arch, vocab_size=vocab, hidden_size=hidden, intermediate_size=g[f"{arch}.feed_forward_length"],
        num_hidden_layers=g[f"{arch}.block_count"], num_attention_heads=heads, num_key_value_heads=g[f"{arch}.attention.head_count_kv"],
        head_dim=g.get(f"{arch}.attention.key_length", hidden // heads), hidden_act="silu", max_position_embeddings=g[f"{arch}.context_length"],
        rms_norm_eps=float("%.6g" % g[f"{arch}.attention.layer_norm_rms_epsilon"]), rope_theta=g[f"{arch}.rope.freq_base"], tie_word_embeddings=tied,
        attention_bias=False, bos_token_id=g.get("tokenizer.ggml.bos_token_id"), eos_token_id=g.get("tokenizer.ggml.eos_token_id"),
        torch_dtype=DTYPES[dtype][1])


def convert(src, out, dtype):
    r = gguf.GGUFReader(src)
    skip = ("tokenizer.ggml.tok", "tokenizer.ggml.merg")
    g = {k: f.contents() for k, f in r.fields.items() if f.types and not k.startswith(skip)}
    arch = g["general.architecture"]
    head, data, off, vocab = {"__metadata__": {"format": "pt"}}, [], 0, 0
    for t in r.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in reversed(t.shape)])
        if arch == "llama" and ".attn_q." in t.name:
            x = uninterleave(x, g["llama.attention.head_count"])
        if arch == "llama" and ".attn_k." in t.name:
            x = uninterleave(x, g["llama.attention.head_count_kv"])
        if t.name == "token_embd.weight":
            vocab = x.shape[0]
        y = cast(x, dtype)
        head[hf_name(t.name)] = dict(dtype=DTYPES[dtype][0], shape=list(x.shape), data_offsets=[off, off + y.nbytes])
        off += y.nbytes
        data.append(y)
    header = json.dumps(head, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        for y in data:
            f.write(np.ascontiguousarray(y).tobytes())
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config(arch, g, vocab, "lm_head.weight" not in head, dtype), f, indent=1)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in DTYPES:
        sys.exit(__doc__)
    convert(*sys.argv[1:])
