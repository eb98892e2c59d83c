package emu

import (
	"errors"
	"slices"
)

// Version and Target are what PTX text for devices names: old enough for every
// driver since CUDA 11.0, new enough for the instructions across lanes.
const (
	Version    = "7.0"
	Target     = "sm_75"
	FastTarget = "sm_80" // of kernels that use tensor cores
)

// Check applies the rule for the text of exact kernels: .version 7.0 and .target
// sm_75; nothing of tensor cores; every sum, difference, product, fma, quotient, reciprocal and root of
// floats is marked .rn, so that an assembler fuses none; nothing is approximate
// and nothing flushes subnormals. It names all lines that break it. Whatever
// passes and is supported by the emulator has one meaning on every device.
func Check(ptx string) error { return check(ptx, Target) }

// CheckFast is the rule for the text of kernels of the fast mode, which promise no
// bits: .target sm_80, and products of matrices by mma are allowed. Everything else
// is as Check has it.
func CheckFast(ptx string) error { return check(ptx, FastTarget) }

func check(ptx, target string) error {
	m, err := parse(ptx)
	if err != nil {
		return err
	}
	var errs []error
	if m.version != Version {
		errs = append(errs, syntax(1, ".version %s, not %s", m.version, Version))
	}
	if m.target != target {
		errs = append(errs, syntax(1, ".target %s, not %s", m.target, target))
	}
	for _, k := range m.kernels {
		for i := range k.body {
			st := &k.body[i]
			if needs80(st) {
				if target == Target {
					errs = append(errs, syntax(st.line, "%s: tensor cores promise no order and no rounding", st.op))
				}
				continue
			}
			if err := exact(st); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// approximate are instructions that have no correctly rounded form.
var approximate = []string{"ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "mma", "wmma", "wgmma", "tcgen05", "tex", "tld4"}

// rounded are those that must say .rn when their operands are floats.
var rounded = []string{"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt"}

// exact says why an instruction breaks the rule.
func exact(st *stmt) error {
	if err := refuse(st); err != nil {
		return err
	}
	name, mods := st.words[0], st.words[1:]
	float := slices.ContainsFunc(mods, func(m string) bool {
		return m == "f16" || m == "f16x2" || m == "bf16" || m == "bf16x2" || m == "f32" || m == "f64" || m == "tf32"
	})
	switch {
	case slices.Contains(approximate, name):
		return syntax(st.line, "%s has no correctly rounded form", st.op)
	case slices.Contains(rounded, name) && float && !slices.Contains(mods, "rn"):
		return syntax(st.line, "%s is not marked .rn", st.op)
	case (name == "atom" || name == "red") && float && slices.Contains(mods, "add"):
		return syntax(st.line, "%s: sums of floats by atomics have no order", st.op)
	}
	return nil
}
