// Package deps holds no code. Its tests keep what the compiler does not: which
// room may import which, that no float product can be fused by accident where
// the contract has two roundings, and the habits of the source tree.
package deps
