package qwen3

import "fmt"

// part is a tensor of the model by its role; names gives its name in both file
// formats. A %d stands for the layer.
type part int

const (
	embedTokens part = iota
	finalNorm
	lmHead

	norm1
	norm2
	qProj
	kProj
	vProj
	oProj
	qBias
	kBias
	vBias
	oBias
	qNorm
	kNorm
	gateProj
	upProj
	downProj
	gateBias
	upBias
	downBias

	deltaQKV
	deltaZ
	deltaB
	deltaA
	deltaQKVZ
	deltaBA
	deltaConv
	deltaDT
	deltaALog
	deltaNorm
	deltaOut

	router
	sharedGate
	sharedGateProj
	sharedUpProj
	sharedDownProj
)

var names = map[part]struct{ hf, gguf string }{
	embedTokens: {"model.embed_tokens.weight", "token_embd.weight"},
	finalNorm:   {"model.norm.weight", "output_norm.weight"},
	lmHead:      {"lm_head.weight", "output.weight"},

	norm1:    {"model.layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight"},
	norm2:    {"model.layers.%d.post_attention_layernorm.weight", "blk.%d.ffn_norm.weight"},
	qProj:    {"model.layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight"},
	kProj:    {"model.layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight"},
	vProj:    {"model.layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight"},
	oProj:    {"model.layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight"},
	qBias:    {"model.layers.%d.self_attn.q_proj.bias", "blk.%d.attn_q.bias"},
	kBias:    {"model.layers.%d.self_attn.k_proj.bias", "blk.%d.attn_k.bias"},
	vBias:    {"model.layers.%d.self_attn.v_proj.bias", "blk.%d.attn_v.bias"},
	oBias:    {"model.layers.%d.self_attn.o_proj.bias", "blk.%d.attn_output.bias"},
	qNorm:    {"model.layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight"},
	kNorm:    {"model.layers.%d.self_attn.k_norm.weight", "blk.%d.attn_k_norm.weight"},
	gateProj: {"model.layers.%d.mlp.gate_proj.weight", "blk.%d.ffn_gate.weight"},
	upProj:   {"model.layers.%d.mlp.up_proj.weight", "blk.%d.ffn_up.weight"},
	downProj: {"model.layers.%d.mlp.down_proj.weight", "blk.%d.ffn_down.weight"},
	gateBias: {"model.layers.%d.mlp.gate_proj.bias", "blk.%d.ffn_gate.bias"},
	upBias:   {"model.layers.%d.mlp.up_proj.bias", "blk.%d.ffn_up.bias"},
	downBias: {"model.layers.%d.mlp.down_proj.bias", "blk.%d.ffn_down.bias"},

	deltaQKV:  {"model.layers.%d.linear_attn.in_proj_qkv.weight", "blk.%d.attn_qkv.weight"},
	deltaZ:    {"model.layers.%d.linear_attn.in_proj_z.weight", "blk.%d.attn_gate.weight"},
	deltaB:    {"model.layers.%d.linear_attn.in_proj_b.weight", "blk.%d.ssm_beta.weight"},
	deltaA:    {"model.layers.%d.linear_attn.in_proj_a.weight", "blk.%d.ssm_alpha.weight"},
	deltaQKVZ: {"model.layers.%d.linear_attn.in_proj_qkvz.weight", ""},
	deltaBA:   {"model.layers.%d.linear_attn.in_proj_ba.weight", "blk.%d.ssm_ba.weight"},
	deltaConv: {"model.layers.%d.linear_attn.conv1d.weight", "blk.%d.ssm_conv1d.weight"},
	deltaDT:   {"model.layers.%d.linear_attn.dt_bias", "blk.%d.ssm_dt.bias"},
	deltaALog: {"model.layers.%d.linear_attn.A_log", "blk.%d.ssm_a"},
	deltaNorm: {"model.layers.%d.linear_attn.norm.weight", "blk.%d.ssm_norm.weight"},
	deltaOut:  {"model.layers.%d.linear_attn.out_proj.weight", "blk.%d.ssm_out.weight"},

	router:         {"model.layers.%d.mlp.gate.weight", "blk.%d.ffn_gate_inp.weight"},
	sharedGate:     {"model.layers.%d.mlp.shared_expert_gate.weight", "blk.%d.ffn_gate_inp_shexp.weight"},
	sharedGateProj: {"model.layers.%d.mlp.shared_expert.gate_proj.weight", "blk.%d.ffn_gate_shexp.weight"},
	sharedUpProj:   {"model.layers.%d.mlp.shared_expert.up_proj.weight", "blk.%d.ffn_up_shexp.weight"},
	sharedDownProj: {"model.layers.%d.mlp.shared_expert.down_proj.weight", "blk.%d.ffn_down_shexp.weight"},
}

// prefixes that a multimodal wrapper puts before or beside the text model.
const (
	wrapped = "model.language_model."
	plain   = "model."
)

// ignorable are tensors that a checkpoint may carry and a text model leaves alone.
var ignorable = []string{"model.visual.", "visual.", "mtp.", "model.rotary_emb."}

// name is the part's name in the opened set.
func (l *loader) name(p part, layer int) string {
	n := names[p].hf
	if l.gguf {
		n = names[p].gguf
		if p == norm2 && (l.cfg.ModelType == "qwen3_next" || l.cfg.ModelType == "qwen3_5_text") {
			n = "blk.%d.post_attention_norm.weight"
		}
	} else if l.wrapped && len(n) > len(plain) && n[:len(plain)] == plain {
		n = wrapped + n[len(plain):]
	}
	if p > lmHead {
		n = fmt.Sprintf(n, layer)
	}
	return n
}
