package opencl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
	"samebit/internal/canon"
	"samebit/tensor"
)

// fake is an OpenCL in this process: it has memory and objects, but runs no kernel
// save the probe.
type fake struct {
	next    uintptr
	mem     map[cl.Mem]room
	kernels map[cl.Kernel]string
	args    map[int][]byte // of the probe
	info    map[cl.Info][]byte
	wrong   uint32 // added to the bits of the probe's results
	bytes   int64  // of all buffers
	most    int64  // that they may have
	builds  []string
	refuse  string // log of a build that fails
}

// room is a buffer of n bytes, of which only the first ones are kept.
type room struct {
	n int64
	b []byte
}

const kept = 512 << 10

func number(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

const allFP = cl.FMA | cl.Denorm | cl.Nearest | cl.InfNaN | cl.DivideSqr

func newFake() *fake {
	return &fake{next: 100, mem: map[cl.Mem]room{}, kernels: map[cl.Kernel]string{}, args: map[int][]byte{}, most: 1 << 40, info: map[cl.Info][]byte{
		cl.DeviceName: []byte("a fake\x00"), cl.DeviceVersion: []byte("OpenCL 1.2\x00"), cl.DeviceFPConfig: number(allFP), cl.DeviceMemory: number(1 << 30), cl.DeviceMaxAlloc: number(1 << 28),
		cl.DeviceLocal: number(32 << 10), cl.DeviceGroupSize: number(256), cl.DeviceUnits: number(2), cl.DeviceAvailable: {1, 0, 0, 0}, cl.DeviceCompiler: {1, 0, 0, 0}, cl.DeviceLittle: {1, 0, 0, 0},
	}}
}

func (f *fake) handle() uintptr { f.next++; return f.next }

func (f *fake) Platforms() ([]cl.Platform, error) { return []cl.Platform{1}, nil }
func (f *fake) PlatformInfo(cl.Platform, cl.Info) ([]byte, error) {
	return []byte("Fake platform\x00"), nil
}
func (f *fake) Devices(cl.Platform) ([]cl.Device, error)            { return []cl.Device{1, 2}, nil }
func (f *fake) DeviceInfo(_ cl.Device, w cl.Info) ([]byte, error)   { return f.info[w], nil }
func (f *fake) CreateContext(cl.Device) (cl.Context, error)         { return cl.Context(f.handle()), nil }
func (f *fake) ReleaseContext(cl.Context) error                     { return nil }
func (f *fake) CreateQueue(cl.Context, cl.Device) (cl.Queue, error) { return cl.Queue(f.handle()), nil }
func (f *fake) ReleaseQueue(cl.Queue) error                         { return nil }
func (f *fake) CreateProgram(cl.Context, string) (cl.Program, error) {
	return cl.Program(f.handle()), nil
}
func (f *fake) BuildLog(cl.Program, cl.Device) (string, error) { return f.refuse, nil }
func (f *fake) ReleaseProgram(cl.Program) error                { return nil }
func (f *fake) ReleaseKernel(cl.Kernel) error                  { return nil }
func (f *fake) Finish(cl.Queue) error                          { return nil }

func (f *fake) BuildProgram(_ cl.Program, _ cl.Device, options string) error {
	f.builds = append(f.builds, options)
	if f.refuse != "" {
		return &cl.Error{Call: "clBuildProgram", Code: -11}
	}
	return nil
}

func (f *fake) CreateKernel(_ cl.Program, name string) (cl.Kernel, error) {
	k := cl.Kernel(f.handle())
	f.kernels[k] = name
	return k, nil
}

func (f *fake) SetArg(k cl.Kernel, i int, size uintptr, v unsafe.Pointer) error {
	if f.kernels[k] == "probe" {
		f.args[i] = bytes.Clone(unsafe.Slice((*byte)(v), size))
	}
	return nil
}

func (f *fake) CreateBuffer(_ cl.Context, n int64) (cl.Mem, error) {
	if f.bytes+n > f.most {
		return 0, &cl.Error{Call: "clCreateBuffer", Code: cl.MemAllocFailure}
	}
	f.bytes += n
	m := cl.Mem(f.handle())
	f.mem[m] = room{n, make([]byte, min(n, kept))}
	return m, nil
}

func (f *fake) ReleaseBuffer(m cl.Mem) error {
	f.bytes -= f.mem[m].n
	delete(f.mem, m)
	return nil
}

// at is a range of a buffer, nothing where it is not kept.
func (f *fake) at(m cl.Mem, off, n int64) []byte {
	r, ok := f.mem[m]
	if !ok || off < 0 || n < 0 || off+n > r.n {
		panic(fmt.Sprintf("bytes [%d, %d) of buffer %d, which has %d", off, off+n, m, r.n))
	}
	if off+n > int64(len(r.b)) {
		return nil
	}
	return r.b[off : off+n]
}

func (f *fake) Read(_ cl.Queue, dst []byte, m cl.Mem, off int64) error {
	copy(dst, f.at(m, off, int64(len(dst))))
	return nil
}

func (f *fake) Write(_ cl.Queue, m cl.Mem, off int64, src []byte) error {
	copy(f.at(m, off, int64(len(src))), src)
	return nil
}

func (f *fake) Fill(_ cl.Queue, m cl.Mem, off, n int64) error {
	clear(f.at(m, off, n))
	return nil
}

func (f *fake) Launch(_ cl.Queue, k cl.Kernel, _, _ *[3]uintptr) error {
	if f.kernels[k] != "probe" {
		return nil
	}
	m := *(*cl.Mem)(unsafe.Pointer(&f.args[0][0]))
	at, n := binary.LittleEndian.Uint32(f.args[1]), binary.LittleEndian.Uint32(f.args[2])
	b := f.at(m, 0, int64(4*(at+5*n)))
	get := func(i uint32) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])) }
	for i := range n {
		x, y, z := get(3*i), get(3*i+1), get(3*i+2)
		for j, v := range [5]float32{canon.FMA32(x, y, z), float32(x*y) + z, x / y, canon.Sqrt(float32(math.Abs(float64(x)))), canon.Exp(x)} {
			binary.LittleEndian.PutUint32(b[4*(at+5*i+uint32(j)):], math.Float32bits(v)+f.wrong)
		}
	}
	return nil
}

// A device that does not promise exact steps, or promises them and fails, is refused
// with the name of what it lacks.
func TestRefusals(t *testing.T) {
	for name, bit := range map[string]uint64{"CL_FP_FMA": cl.FMA, "CL_FP_DENORM": cl.Denorm, "CL_FP_ROUND_TO_NEAREST": cl.Nearest, "CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT": cl.DivideSqr, "CL_FP_INF_NAN": cl.InfNaN} {
		f := newFake()
		f.info[cl.DeviceFPConfig] = number(allFP &^ bit)
		refuses(t, f, name)
	}
	for what, name := range map[cl.Info]string{cl.DeviceCompiler: "CL_DEVICE_COMPILER_AVAILABLE", cl.DeviceLittle: "CL_DEVICE_ENDIAN_LITTLE", cl.DeviceAvailable: "CL_DEVICE_AVAILABLE",
		cl.DeviceGroupSize: "work groups of 64", cl.DeviceLocal: "24 KiB of local memory"} {
		f := newFake()
		f.info[what] = make([]byte, len(f.info[what]))
		refuses(t, f, name)
	}
	f := newFake()
	f.wrong = 1
	refuses(t, f, "fma of (3f800001, 3f800001, bf800002), want 28800000")
}

func refuses(t *testing.T, f *fake, name string) {
	t.Helper()
	d, err := open(f, Config{})
	if d != nil || !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "a fake") {
		t.Errorf("a device without %s gives %v", name, err)
	}
	if len(f.mem) > 0 {
		t.Errorf("a device without %s leaves %d buffers", name, len(f.mem))
	}
}

func TestNoSuchDevice(t *testing.T) {
	for cfg, hint := range map[Config]string{{Device: 2}: "device 2 of 2", {Device: -1}: "from 0", {Platform: "nobody's"}: "pocl-opencl-icd"} {
		if _, err := open(newFake(), cfg); !errors.Is(err, backend.ErrNoDevice) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%+v gives %v", cfg, err)
		}
	}
	d, err := open(newFake(), Config{Platform: "FAKE", Device: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d.Name() != "opencl:1" {
		t.Errorf("the second device is called %s", d.Name())
	}
}

// Programs are never compiled with relaxed arithmetic.
func TestBuildOptions(t *testing.T) {
	f := newFake()
	d, err := open(f, Config{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"common": true}
	for dt := tensor.Q8_0; dt <= tensor.Q6_K; dt++ {
		for _, p := range []program{linearOps(dt, 1), expertOps(dt), probeOps, rowOps, attnOps, deltaOps, moeOps, gradLinearOps(dt), gradOps, gradRowOps, gradLossOps, gradAttnOps, gradDeltaOps,
			archiveOps, landmarkOps, tableOps, mixOps, archiveGradOps, mixGradOps} {
			for _, file := range append(parts[p.file], p.file) {
				seen[file] = true
			}
			if _, err := d.kernel(p, "any"); err != nil {
				t.Fatal(err)
			}
			text, err := p.source()
			if err != nil || !strings.Contains(text, "#pragma OPENCL FP_CONTRACT OFF") {
				t.Errorf("%v does not turn contraction off (%v)", p, err)
			}
		}
	}
	files, err := sources.ReadDir("kernels")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files { // the list above is whole
		if !seen[strings.TrimSuffix(file.Name(), ".cl")] {
			t.Errorf("%s is in no program of this test", file.Name())
		}
	}
	for _, o := range f.builds {
		if !strings.Contains(o, "-cl-std=CL1.2") || !strings.Contains(o, "-cl-fp32-correctly-rounded-divide-sqrt") ||
			strings.Contains(o, "relaxed") || strings.Contains(o, "denorms") || strings.Contains(o, "unsafe") || strings.Contains(o, "mad-enable") {
			t.Errorf("options %q", o)
		}
	}
	f.refuse = "line 7: no"
	if _, err := d.kernel(program{file: "rows", rows: 9}, "any"); err == nil || !strings.Contains(err.Error(), "line 7: no") || !strings.Contains(err.Error(), "rows.cl") {
		t.Errorf("a build that fails gives %v", err)
	}
}

// The kernels call no built-in function that a device may round in its own way, and
// enter no loop with only some work items (EACH says why).
func TestKernelText(t *testing.T) {
	files, err := sources.ReadDir("kernels")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d kernel files, %v", len(files), err)
	}
	inexact := regexp.MustCompile(`\b(mad|mix|dot|length|normalize|distance|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|pown|powr|rsqrt|cbrt|sin|cos|tan|tanh|erf|fmod|hypot|(native|half|fast)_[a-z]\w*)\(`)
	ragged := regexp.MustCompile(`for \(uint \w+ = ([lj]|get_local_id\(0\));`)
	for _, f := range files {
		text, err := sources.ReadFile("kernels/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if m := inexact.FindString(code); m != "" {
				t.Errorf("%s:%d: %s is not exact on every device", f.Name(), i+1, m)
			}
			if m := ragged.FindString(code); m != "" {
				t.Errorf("%s:%d: %s: use EACH", f.Name(), i+1, m)
			}
		}
	}
}

// Memory ends with an error that leaves what there is usable.
func TestOutOfMemory(t *testing.T) {
	f := newFake()
	f.most = firstSlab + 3<<20
	d, err := open(f, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var kept []tensor.Buffer
	for {
		b, err := d.Alloc(1 << 20)
		if err != nil {
			if !errors.Is(err, backend.ErrNoMemory) {
				t.Fatalf("Alloc gives %v, want ErrNoMemory", err)
			}
			break
		}
		if kept = append(kept, b); len(kept) > 1000 {
			t.Fatal("memory has no end")
		}
	}
	if len(kept) < firstSlab>>20+2 {
		t.Errorf("only %d MiB were given, a smaller buffer would have fitted", len(kept))
	}
	d.Free(kept[7])
	d.Free(kept[7])
	if _, err := d.Alloc(1 << 20); err != nil {
		t.Errorf("after Free: %v", err)
	}
	if _, err := d.Alloc(1 << 20); !errors.Is(err, backend.ErrNoMemory) {
		t.Errorf("a buffer was given out twice: %v", err)
	}
	for _, b := range kept {
		d.Free(b)
	}
	if len(f.mem) != 1 {
		t.Errorf("%d slabs are kept without need", len(f.mem))
	}
	w, _ := tensor.FromF32(make([]float32, 4), 2, 2)
	if _, err := d.Pack(w, backend.UseLinear); err != nil {
		t.Error(err)
	}
	if _, err := d.Alloc(1<<28 + 1); !errors.Is(err, backend.ErrNoMemory) {
		t.Errorf("more than a buffer may hold gives %v", err)
	}
}
