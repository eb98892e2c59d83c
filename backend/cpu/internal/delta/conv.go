package delta

// Conv is the work of a causal depthwise convolution of width Taps over T rows
// of one sequence, followed by SiLU.
//
// Row t of the input lies at X[t*XStride:], of the output at Dst[t*DstStride:],
// Channels values each; strides count floats. W is [Taps][Channels], the
// weight of the oldest row first. In and Out are [Taps-1][Channels]: the input
// rows before this call and before the next, oldest first, zeros where there is
// no history; they may be the same slice. Dst may not overlap X;
// 1 <= Taps <= 128.
type Conv struct {
	T, Channels, Taps int

	Dst, X, W []float32
	In, Out   []float32

	DstStride, XStride int
}

// at is input row t; rows before the first come from the history.
func (c *Conv) at(t int) []float32 {
	if t < 0 {
		return c.In[(c.Taps-1+t)*c.Channels:][:c.Channels]
	}
	return c.X[t*c.XStride:][:c.Channels]
}

// Conv writes, for every row and channel,
//
//	dst[t] = silu(DOT over the taps (x[t-Taps+1+j], w[j]))
//
// and then the new history.
func (k *Kernels) Conv(c *Conv) {
	n := c.Channels
	if c.Taps == 4 {
		w := [4][]float32{c.W[:n], c.W[n : 2*n], c.W[2*n : 3*n], c.W[3*n : 4*n]}
		for t := range c.T {
			x := [4][]float32{c.at(t - 3), c.at(t - 2), c.at(t - 1), c.at(t)}
			k.row.Conv4SiLU(c.Dst[t*c.DstStride:][:n], &x, &w)
		}
	} else {
		for t := range c.T {
			y := c.Dst[t*c.DstStride:][:n]
			clear(y)
			for j := range c.Taps {
				k.row.FMA(y, c.at(t-c.Taps+1+j), c.W[j*n:])
			}
			k.row.AddScalar(y, y, 0) // total = +0 + acc
			k.row.SiLU(y, y)
		}
	}
	// Ascending: a row is read before its place is overwritten.
	for j := range c.Taps - 1 {
		copy(c.Out[j*n:][:n], c.at(c.T-c.Taps+1+j))
	}
}
