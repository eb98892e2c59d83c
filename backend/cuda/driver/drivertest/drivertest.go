// Package drivertest has what every implementation of package driver must do
// with a driver library: the same calls with the same values.
package drivertest

import (
	"errors"
	"time"

	"samebit/backend/cuda/driver"
)

// Exercise makes every call of an opened driver once and gives everything back,
// also when one fails. Its error joins what failed on the way with what failed
// while things were given back.
func Exercise(open func() (driver.Driver, error)) (err error) {
	d, err := open()
	if err != nil {
		return err
	}
	if _, err := d.Count(); err != nil {
		return err
	}
	if _, err := d.Info(0); err != nil {
		return err
	}
	c, err := d.Open(0)
	if err != nil {
		return err
	}
	undo := func(f func() error) { err = errors.Join(err, f()) }
	defer undo(c.Close)
	if _, _, err := c.MemInfo(); err != nil {
		return err
	}
	m, err := c.LoadModule("m", []byte(".entry k"))
	if err != nil {
		return err
	}
	defer undo(func() error { return c.UnloadModule(m) })
	k, err := c.Function(m, "k")
	if err != nil {
		return err
	}
	if _, err := c.FuncInfo(k); err != nil {
		return err
	}
	if err := c.SetMaxShared(k, 70000); err != nil {
		return err
	}
	p, err := c.Alloc(24)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.Free(p) })
	h, err := c.AllocHost(24)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.FreeHost(h) })
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseStream(s) })
	e, err := c.NewEvent()
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseEvent(e) })
	for _, f := range []func() error{
		func() error { return c.Fill(s, p, 9, 24) },
		func() error { return c.CopyIn(s, p, []byte{1, 2, 3, 4, 5, 6, 7, 8}) },
		func() error { return c.Copy(s, p+16, p, 8) },
		func() error { return c.CopyOut(s, h, p) },
		func() error { return c.Sync(s) },
		func() error { return c.Record(e, s) },
		func() error { return c.BeginCapture(s) },
		func() error {
			var v driver.Params
			v.Ptr(0x1122334455667788).Float32(1).Int32(-2).Uint64(3)
			return c.Launch(s, k, driver.Launch{Grid: [3]uint32{2, 3, 4}, Block: [3]uint32{32, 2, 1}, Shared: 512}, v.Bytes())
		},
	} {
		if err := f(); err != nil {
			return err
		}
	}
	if string(h[:10]) != "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x09" || string(h[16:]) != "\x01\x02\x03\x04\x05\x06\x07\x08" {
		return errors.New("the copies went wrong")
	}
	took, err := c.Elapsed(e, e)
	if err != nil {
		return err
	}
	if took != 1500*time.Microsecond {
		return errors.New("the time is wrong")
	}
	g, err := c.EndCapture(s)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseGraph(g) })
	x, err := c.Instantiate(g)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.CloseExec(x) })
	return c.LaunchGraph(s, x)
}

// Calls is what Exercise makes the library of testdata/fakecuda.c write down,
// without the calls that make the context current before each that needs it.
var Calls = []string{
	"cuInit 0", "cuDriverGetVersion", "cuDeviceGetCount",
	"cuDeviceGet 0", "cuDeviceGetName 255 7", "cuDeviceTotalMem 7",
	"cuDeviceGetAttribute 1 7", "cuDeviceGetAttribute 8 7", "cuDeviceGetAttribute 10 7", "cuDeviceGetAttribute 13 7", "cuDeviceGetAttribute 16 7",
	"cuDeviceGetAttribute 36 7", "cuDeviceGetAttribute 37 7", "cuDeviceGetAttribute 38 7", "cuDeviceGetAttribute 75 7", "cuDeviceGetAttribute 76 7", "cuDeviceGetAttribute 97 7",
	"cuDeviceGet 0", "cuDevicePrimaryCtxRetain 7", "cuMemGetInfo",
	"cuModuleLoadDataEx 2 5 6 8191 [.entry k]", "cuModuleGetFunction 0x1020 k",
	"cuFuncGetAttribute 0 0xf00", "cuFuncGetAttribute 1 0xf00", "cuFuncGetAttribute 3 0xf00", "cuFuncGetAttribute 4 0xf00", "cuFuncSetAttribute 0xf00 8 70000",
	"cuMemAlloc 24", "cuMemAllocHost 24", "cuStreamCreate 1", "cuEventCreate 0",
	"cuMemsetD8Async 9 24 0x1030", "cuMemcpyHtoDAsync 8 0x1030", "cuMemcpyDtoDAsync 8 0x1030", "cuMemcpyDtoHAsync 24 0x1030", "cuStreamSynchronize 0x1030",
	"cuEventRecord 0x1040 0x1030", "cuStreamBeginCapture 0x1030 2",
	"cuLaunchKernel 0xf00 grid 2 3 4 block 32 2 1 shared 512 0x1030 params 88776655443322110000803ffeffffff0300000000000000",
	"cuEventElapsedTime 0x1040 0x1040", "cuStreamEndCapture 0x1030", "cuGraphInstantiateWithFlags 0x1050 0", "cuGraphLaunch 0x1060 0x1030",
	"cuGraphExecDestroy 0x1060", "cuGraphDestroy 0x1050", "cuEventDestroy 0x1040", "cuStreamDestroy 0x1030", "cuMemFreeHost", "cuMemFree", "cuModuleUnload 0x1020",
	"cuDevicePrimaryCtxRelease 7",
}
