#!/usr/bin/env python3
"""Writes a model of random weights in a real model's shape, as a Hugging Face folder and/or as GGUF.

gen_weights.py --shape qwen3-0.6b   --out DIR [--dtype bf16|f32]      # model.safetensors and config.json
gen_weights.py --shape qwen3.5-0.8b --gguf FILE --gguf-type f32|bf16|f16|q8_0 [--unrounded]

Random weights time as real ones do. All values are drawn from numpy's PCG64 (one stream per tensor name and seed) and
rounded to bf16 first, as of models trained in bf16, so the bf16 and f32 files of one seed hold the same numbers (f16
too, where representable). With --unrounded they keep all bits of a float32: samebit, which keeps float32 values that
are bf16 as bf16, then reads twice as many bytes. Needs numpy, and gguf for --gguf.
"""
import argparse
import json
import os
import struct
import zlib

import numpy as np


def qwen3(h, L, nq, nkv, hd, ffn, vocab):
    return dict(kind="qwen3", hidden=h, layers=L, nq=nq, nkv=nkv, hd=hd, ffn=ffn, vocab=vocab, theta=1e6, ctx=40960)


def qwen35(h, L, nq, nkv, hd, ffn, vocab, kh, vh, kd=128):
    return dict(kind="qwen35", hidden=h, layers=L, nq=nq, nkv=nkv, hd=hd, ffn=ffn, vocab=vocab, theta=1e7, ctx=262144,
                kh=kh, vh=vh, kd=kd, conv=4, interval=4)


SHAPES = {
    "qwen3-0.6b": qwen3(1024, 28, 16, 8, 128, 3072, 151936),
    "qwen3-tiny": qwen3(256, 4, 4, 2, 64, 512, 2048),
    "qwen3.5-0.8b": qwen35(1024, 24, 8, 2, 256, 3584, 248320, 16, 16),
    # head size 128 keeps peers' kernels on their normal path; 2 value heads per key head exercises the regrouping
    "qwen3.5-tiny": qwen35(256, 8, 2, 1, 256, 512, 2048, 2, 4),
}


def rng(seed, name):
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))


def to_bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16_bits(b):
    return (b.astype(np.uint32) << 16).view(np.float32)


def tensors(s, seed, unrounded):
    """Yields (Hugging Face name, float32 values) in the order of a checkpoint."""
    def kept(x):
        return np.ascontiguousarray(x, np.float32) if unrounded else from_bf16_bits(to_bf16_bits(x))
    def mat(name, o, i, std=None):
        std = std or 1.0 / np.sqrt(i)
        return name, kept(rng(seed, name).standard_normal((o, i), dtype=np.float32) * np.float32(std))
    def vec(name, n, base):
        return name, kept(base + 0.1 * rng(seed, name).standard_normal(n, dtype=np.float32))
    base = 1.0 if s["kind"] == "qwen3" else 0.0          # Qwen3.5 stores norm weights as an offset from one
    H, F = s["hidden"], s["ffn"]
    yield mat("model.embed_tokens.weight", s["vocab"], H, 0.02)
    for l in range(s["layers"]):
        p = f"model.layers.{l}."
        yield vec(p + "input_layernorm.weight", H, base)
        full = s["kind"] == "qwen3" or (l + 1) % s["interval"] == 0
        if full:
            a = p + "self_attn."
            gate = 1 if s["kind"] == "qwen3" else 2       # Qwen3.5: query and output gate interleaved per head
            yield mat(a + "q_proj.weight", s["nq"] * s["hd"] * gate, H)
            yield mat(a + "k_proj.weight", s["nkv"] * s["hd"], H)
            yield mat(a + "v_proj.weight", s["nkv"] * s["hd"], H)
            yield mat(a + "o_proj.weight", H, s["nq"] * s["hd"])
            yield vec(a + "q_norm.weight", s["hd"], base)
            yield vec(a + "k_norm.weight", s["hd"], base)
        else:
            a = p + "linear_attn."
            kdim, vdim = s["kh"] * s["kd"], s["vh"] * s["kd"]
            yield mat(a + "in_proj_qkv.weight", 2 * kdim + vdim, H)
            yield mat(a + "in_proj_z.weight", vdim, H)
            yield mat(a + "in_proj_b.weight", s["vh"], H)
            yield mat(a + "in_proj_a.weight", s["vh"], H)
            n = a + "conv1d.weight"
            yield n, kept(rng(seed, n).standard_normal((2 * kdim + vdim, 1, s["conv"]), dtype=np.float32) * 0.5)
            n = a + "A_log"
            yield n, kept(np.log(rng(seed, n).uniform(0.5, 4.0, s["vh"])))
            n = a + "dt_bias"
            dt = np.exp(rng(seed, n).uniform(np.log(1e-3), np.log(1e-1), s["vh"]))
            yield n, kept(np.log(np.expm1(dt)))   # inverse softplus
            yield vec(a + "norm.weight", s["kd"], 1.0)
            yield mat(a + "out_proj.weight", H, vdim)
        yield vec(p + "post_attention_layernorm.weight", H, base)
        yield mat(p + "mlp.gate_proj.weight", F, H)
        yield mat(p + "mlp.up_proj.weight", F, H)
        yield mat(p + "mlp.down_proj.weight", H, F)
    yield vec("model.norm.weight", H, base)


def config(s, dtype):
    c = dict(vocab_size=s["vocab"], hidden_size=s["hidden"], intermediate_size=s["ffn"], num_hidden_layers=s["layers"],
             num_attention_heads=s["nq"], num_key_value_heads=s["nkv"], head_dim=s["hd"], hidden_act="silu",
             max_position_embeddings=s["ctx"], rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False,
             attention_dropout=0.0, use_cache=True, bos_token_id=s["vocab"] - 3, eos_token_id=s["vocab"] - 1,
             torch_dtype={"bf16": "bfloat16", "f32": "float32"}[dtype])
    if s["kind"] == "qwen3":
        c.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", rope_theta=s["theta"])
    else:
        c.update(architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text",
                 layer_types=["full_attention" if (l + 1) % s["interval"] == 0 else "linear_attention" for l in range(s["layers"])],
                 full_attention_interval=s["interval"], linear_conv_kernel_dim=s["conv"], linear_key_head_dim=s["kd"],
                 linear_value_head_dim=s["kd"], linear_num_key_heads=s["kh"], linear_num_value_heads=s["vh"],
                 rope_parameters=dict(rope_type="default", rope_theta=s["theta"], partial_rotary_factor=0.25,
                                      mrope_section=[11, 11, 10], mrope_interleaved=True))
    return c


def write_safetensors(s, seed, out, dtype, unrounded):
    os.makedirs(out, exist_ok=True)
    f32 = dtype == "f32"
    head, off, data = {"__metadata__": {"format": "pt"}}, 0, []
    for n, x in tensors(s, seed, unrounded):
        x = x if f32 else to_bf16_bits(x)
        head[n] = dict(dtype="F32" if f32 else "BF16", shape=list(x.shape), data_offsets=[off, off + x.nbytes])
        off += x.nbytes
        data.append(x)
    hj = json.dumps(head, separators=(",", ":")).encode()
    hj += b" " * (-len(hj) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(hj)) + hj)
        for x in data:
            f.write(x.tobytes())
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config(s, dtype), f, indent=1)


NAMES = {"input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
         "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
         "self_attn.k_norm.weight": "attn_k_norm.weight", "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
         "mlp.down_proj.weight": "ffn_down.weight", "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
         "linear_attn.in_proj_b.weight": "ssm_beta.weight", "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.conv1d.weight": "ssm_conv1d.weight",
         "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight",
         "linear_attn.out_proj.weight": "ssm_out.weight"}


def gguf_name(s, name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    if rest == "post_attention_layernorm.weight":
        return f"blk.{layer}." + ("post_attention_norm.weight" if s["kind"] == "qwen35" else "ffn_norm.weight")
    return f"blk.{layer}.{NAMES[rest]}"


def gguf_value(s, name, x):
    """Hugging Face value -> convention of GGUF's qwen35 (norms + 1, A = -exp(A_log), value heads k-major -> tiled)."""
    if s["kind"] == "qwen3":
        return x
    def tile(y, hd, axis=0):                              # [kh, r, hd] -> [r, kh, hd] along axis
        y = np.moveaxis(y, axis, 0)
        z = y.reshape(s["kh"], s["vh"] // s["kh"], hd, *y.shape[1:]).swapaxes(0, 1).reshape(y.shape)
        return np.moveaxis(z, 0, axis)
    kd, kdim = s["kd"], s["kh"] * s["kd"]
    if name.endswith("A_log"):
        return tile(-np.exp(x), 1)
    if name.endswith("dt_bias") or "in_proj_b" in name or "in_proj_a" in name:
        return tile(x, 1)
    if "conv1d" in name:
        x = x[:, 0, :]
        return np.concatenate([x[:2 * kdim], tile(x[2 * kdim:], kd)])
    if "in_proj_qkv" in name:
        return np.concatenate([x[:2 * kdim], tile(x[2 * kdim:], kd)])
    if "in_proj_z" in name:
        return tile(x, kd)
    if "linear_attn.out_proj" in name:
        return tile(x, kd, axis=1)
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return x + 1
    return x


def byte_tokens():
    """The 256 byte symbols of byte-level BPE (GPT-2's table)."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        if b in keep:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return [out[b] for b in range(256)]


def add_vocabulary(w, vocab):
    """Bytes, one merge, numbered fillers and the three special tokens of Qwen at the end."""
    toks = byte_tokens() + ["\u0120t"]
    toks += [f"<r{i}>" for i in range(len(toks), vocab - 3)] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(toks)
    w.add_token_types([1] * (vocab - 3) + [3] * 3)
    w.add_token_merges(["\u0120 t"])
    w.add_bos_token_id(vocab - 3)
    w.add_eos_token_id(vocab - 1)
    w.add_add_bos_token(False)


def write_gguf(s, seed, path, typ, unrounded):
    import gguf
    q = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}[typ]
    ft = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}[typ]
    w = gguf.GGUFWriter(path, s["kind"])
    w.add_name("random " + s["kind"])
    w.add_file_type(ft)
    w.add_quantization_version(2)
    w.add_block_count(s["layers"])
    w.add_context_length(s["ctx"])
    w.add_embedding_length(s["hidden"])
    w.add_feed_forward_length(s["ffn"])
    w.add_head_count(s["nq"])
    w.add_head_count_kv(s["nkv"])
    w.add_key_length(s["hd"])
    w.add_value_length(s["hd"])
    w.add_rope_freq_base(s["theta"])
    w.add_layer_norm_rms_eps(1e-6)
    if s["kind"] == "qwen35":
        w.add_rope_dimension_count(s["hd"] // 4)
        w.add_rope_dimension_sections([11, 11, 10, 0])
        w.add_ssm_conv_kernel(s["conv"])
        w.add_ssm_state_size(s["kd"])
        w.add_ssm_group_count(s["kh"])
        w.add_ssm_time_step_rank(s["vh"])
        w.add_ssm_inner_size(s["kd"] * s["vh"])
        w.add_full_attention_interval(s["interval"])
    add_vocabulary(w, s["vocab"])
    for n, x in tensors(s, seed, unrounded):
        x = gguf_value(s, n, x).astype(np.float32)
        g = gguf_name(s, n)
        t = gguf.GGMLQuantizationType.F32 if x.ndim < 2 or "conv1d" in g else q
        d = np.ascontiguousarray(x) if t == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(np.ascontiguousarray(x), t)
        w.add_tensor(g, d, raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shape", choices=SHAPES, required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", help="folder for model.safetensors and config.json")
    ap.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    ap.add_argument("--gguf", help="GGUF file to write")
    ap.add_argument("--gguf-type", default="bf16", choices=["f32", "bf16", "f16", "q8_0"])
    ap.add_argument("--unrounded", action="store_true", help="float32 values that are no bf16")
    a = ap.parse_args()
    if not a.out and not a.gguf:
        ap.error("nothing to write: give --out DIR or --gguf FILE")
    if a.out:
        write_safetensors(SHAPES[a.shape], a.seed, a.out, a.dtype, a.unrounded)
    if a.gguf:
        write_gguf(SHAPES[a.shape], a.seed, a.gguf, a.gguf_type, a.unrounded)
