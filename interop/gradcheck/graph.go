package gradcheck

import (
	"fmt"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// graph builds nodes of one type. The first failure sticks, later steps do
// nothing and return nil.
type graph struct {
	*gorgonia.ExprGraph
	dt  gtensor.Dtype
	err error
}

func (g *graph) keep(n *gorgonia.Node, err error) *gorgonia.Node {
	if err != nil {
		g.err = err
		return nil
	}
	return n
}

// input is a node with a value of the graph's type.
func (g *graph) input(name string, v []float64, dim ...int) *gorgonia.Node {
	var backing any = append([]float64(nil), v...)
	if g.dt == gtensor.Float32 {
		f := make([]float32, len(v))
		for i, x := range v {
			f[i] = float32(x)
		}
		backing = f
	}
	n := 1
	for _, d := range dim {
		n *= d
	}
	if n != len(v) {
		return g.keep(nil, fmt.Errorf("%s of shape %v has %d elements", name, dim, len(v)))
	}
	d := gtensor.New(gtensor.WithShape(dim...), gtensor.WithBacking(backing))
	return gorgonia.NewTensor(g.ExprGraph, g.dt, len(dim), gorgonia.WithShape(dim...), gorgonia.WithName(name), gorgonia.WithValue(d))
}

func (g *graph) unary(f func(*gorgonia.Node) (*gorgonia.Node, error), a *gorgonia.Node) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	return g.keep(f(a))
}

func (g *graph) binary(f func(a, b *gorgonia.Node) (*gorgonia.Node, error), a, b *gorgonia.Node) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	return g.keep(f(a, b))
}

// mul is the product element by element, dot that of matrices.
func (g *graph) mul(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(gorgonia.HadamardProd, a, b) }
func (g *graph) dot(a, b *gorgonia.Node) *gorgonia.Node { return g.binary(gorgonia.Mul, a, b) }

// sum adds along some axes, or all.
func (g *graph) sum(a *gorgonia.Node, axes ...int) *gorgonia.Node {
	return g.unary(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Sum(a, axes...) }, a)
}

// plus adds a constant.
func (g *graph) plus(a *gorgonia.Node, c float64) *gorgonia.Node {
	var k *gorgonia.Node
	if g.dt == gtensor.Float32 {
		k = gorgonia.NewConstant(float32(c))
	} else {
		k = gorgonia.NewConstant(c)
	}
	return g.binary(gorgonia.Add, a, k)
}

// scale multiplies each row of a by one element of the vector v (axis 1), or
// each column (axis 0): v is repeated along the axis.
func (g *graph) scale(a, v *gorgonia.Node, axis byte) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	dim := a.Shape().Clone()
	dim[axis] = 1
	v = g.unary(func(v *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Reshape(v, dim) }, v)
	return g.binary(func(a, v *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.BroadcastHadamardProd(a, v, nil, []byte{axis})
	}, a, v)
}

// list is a value's elements in row-major order, read one by one since values
// may be views.
func list(v gorgonia.Value) ([]float64, error) {
	d, ok := v.(*gtensor.Dense)
	if !ok {
		return nil, fmt.Errorf("value %v is no Dense", v)
	}
	dim := d.Shape()
	out := make([]float64, 0, dim.TotalSize())
	at := make([]int, len(dim))
	for range dim.TotalSize() {
		e, err := d.At(at...)
		if err != nil {
			return nil, err
		}
		switch x := e.(type) {
		case float64:
			out = append(out, x)
		case float32:
			out = append(out, float64(x))
		default:
			return nil, fmt.Errorf("element %v is no float", e)
		}
		for i := len(dim) - 1; i >= 0; i-- {
			if at[i]++; at[i] < dim[i] {
				break
			}
			at[i] = 0
		}
	}
	return out, nil
}
