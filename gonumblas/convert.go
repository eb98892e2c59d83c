package gonumblas

import (
	"fmt"
	"unsafe"

	"gonum.org/v1/gonum/blas/blas32"

	"samebit/tensor"
)

// General views a float32 tensor [R, C] as a gonum matrix that shares its
// memory; rows may be strided. It fails for other types and shapes and for
// memory that this process cannot address.
func General(t tensor.Tensor) (blas32.General, error) {
	if !t.Valid() || t.Dims() != 2 {
		return blas32.General{}, fmt.Errorf("gonumblas: General: %v has %d axes, want 2; reshape it first", t, t.Dims())
	}
	v, ok := t.F32()
	if !ok {
		return blas32.General{}, fmt.Errorf("gonumblas: General: %v is not float32 in this process's memory; read it into a host tensor first", t)
	}
	g := blas32.General{Rows: t.Dim(0), Cols: t.Dim(1), Stride: t.Stride(0), Data: v}
	if len(v) == 0 || g.Rows == 1 || g.Stride < g.Cols {
		g.Stride = max(1, g.Cols)
	}
	return g, nil
}

// Vector views a float32 tensor [N], or [N, 1], whose elements may be strided,
// as a gonum vector that shares its memory. It fails where General does.
func Vector(t tensor.Tensor) (blas32.Vector, error) {
	if !t.Valid() || t.Dims() != 1 && (t.Dims() != 2 || t.Dim(1) != 1) {
		return blas32.Vector{}, fmt.Errorf("gonumblas: Vector: %v is not a vector, want [N] or [N, 1]; take a row or reshape it first", t)
	}
	v, ok := t.F32()
	if !ok {
		return blas32.Vector{}, fmt.Errorf("gonumblas: Vector: %v is not float32 in this process's memory; read it into a host tensor first", t)
	}
	return blas32.Vector{N: t.Dim(0), Inc: max(1, t.Stride(0)), Data: v}, nil
}

// Tensor views a gonum matrix as a tensor [Rows, Cols] that shares its memory.
// It fails for a matrix whose stride or data do not fit its shape.
func Tensor(g blas32.General) (tensor.Tensor, error) {
	if g.Rows < 0 || g.Cols < 0 || g.Stride < max(1, g.Cols) {
		return tensor.Tensor{}, fmt.Errorf("gonumblas: Tensor: matrix %d×%d with stride %d: want sizes >= 0 and a stride >= max(1, columns)", g.Rows, g.Cols, g.Stride)
	}
	if g.Rows == 0 || g.Cols == 0 {
		return tensor.FromF32(nil, g.Rows, g.Cols)
	}
	if need := (g.Rows-1)*g.Stride + g.Cols; len(g.Data) < need {
		return tensor.Tensor{}, fmt.Errorf("gonumblas: Tensor: matrix %d×%d with stride %d has %d elements, needs %d", g.Rows, g.Cols, g.Stride, len(g.Data), need)
	}
	if g.Stride == g.Cols || g.Rows == 1 {
		return tensor.FromF32(g.Data[:g.Rows*g.Cols], g.Rows, g.Cols)
	}
	// A view with gaps is cut out of whole rows, but the data may end with the
	// last element.
	whole, err := tensor.New(rows{g}, 0, tensor.F32, g.Rows, g.Stride)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gonumblas: Tensor: %w", err)
	}
	return whole.Cols(0, g.Cols), nil
}

// rows is the buffer of a matrix with gaps. Its length counts the gap after the
// last row, which a view of the columns never reaches.
type rows struct{ g blas32.General }

func (r rows) Len() int { return 4 * r.g.Rows * r.g.Stride }

func (r rows) Host() []byte {
	d := r.g.Data[:min(len(r.g.Data), r.g.Rows*r.g.Stride)]
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(d))), 4*len(d))
}
