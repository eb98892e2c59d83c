#!/usr/bin/env python3
"""Rewrites a GGUF with its matrices in another type; metadata is kept. Vectors (norms, biases) stay float32.

gguf_retype.py IN.gguf OUT.gguf f32|f16|bf16|q8_0|q4_0

Unlike the mixtures of llama.cpp's own quantiser, every matrix gets the named type, the embedding too.
"""
import sys

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType
TYPES = {"f32": (Q.F32, 0), "f16": (Q.F16, 1), "bf16": (Q.BF16, 32), "q8_0": (Q.Q8_0, 7), "q4_0": (Q.Q4_0, 2)}  # type, general.file_type


def retype(src, dst, typ):
    qtype, ftype = TYPES[typ]
    r = gguf.GGUFReader(src)
    w = gguf.GGUFWriter(dst, r.fields["general.architecture"].contents())
    for key, field in r.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if key == "general.file_type":
            w.add_file_type(ftype)
            continue
        t = field.types[0]
        w.add_key_value(key, field.contents(), t, sub_type=field.types[-1] if t == gguf.GGUFValueType.ARRAY else None)
    for t in r.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in reversed(t.shape)])
        to = Q.F32 if x.ndim < 2 or "conv1d" in t.name else qtype
        w.add_tensor(t.name, np.ascontiguousarray(x if to == Q.F32 else gguf.quants.quantize(np.ascontiguousarray(x), to)), raw_dtype=to)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in TYPES:
        sys.exit(__doc__)
    retype(*sys.argv[1:])
