package emu

import (
	"fmt"
	"slices"
	"sync"

	"samebit/backend/cuda/driver"
)

// loaded is a module on a device.
type loaded struct {
	name  string
	progs map[string]*program
	vars  []uint64 // addresses of its variables
	funcs []driver.Function
}

// function is a kernel that was asked for.
type function struct {
	p      *program
	module string
	shared int // dynamic bytes that SetMaxShared allows
}

// texts are the kernels of modules without variables, by text, which any device may
// run.
type texts struct {
	mu    sync.Mutex
	progs map[string]map[string]*program
}

// mostTexts are kept; then all are forgotten.
const mostTexts = 128

func (t *texts) get(ptx string) map[string]*program {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progs[ptx]
}

func (t *texts) put(ptx string, progs map[string]*program) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.progs) >= mostTexts || t.progs == nil {
		t.progs = map[string]map[string]*program{}
	}
	t.progs[ptx] = progs
}

// LoadModule reads, checks and compiles PTX text. A *SyntaxError names the line
// that is refused.
func (v *Device) LoadModule(name string, ptx []byte) (driver.Module, error) {
	defer v.leave()
	if err := v.enter("LoadModule"); err != nil {
		return 0, err
	}
	refused := func(err error) error { return fmt.Errorf("emu: module %s: %w: %w", name, driver.ErrKernel, err) }
	l := &loaded{name: name, progs: v.done.get(string(ptx))}
	h := driver.Module(v.handle())
	if l.progs != nil {
		v.modules[h] = l
		return h, nil
	}
	m, err := parse(string(ptx))
	if err != nil {
		return 0, refused(err)
	}
	if n := capability(m.target); n == 0 || n > v.cfg.Capability {
		return 0, refused(syntax(1, ".target %s: the device has compute capability %d.%d", m.target, v.cfg.Capability/10, v.cfg.Capability%10))
	}
	l.progs = map[string]*program{}
	drop := func() {
		for _, a := range l.vars {
			v.mem.free(a)
		}
	}
	for _, x := range m.vars {
		if x.space != global && x.space != constant {
			continue
		}
		if x.extern || x.size == 0 {
			drop()
			return 0, refused(syntax(x.line, "%s is not defined in the module", x.name))
		}
		a := v.mem.alloc(x.size, x.name)
		if a == nil {
			drop()
			return 0, fmt.Errorf("emu: module %s: variable %s of %d bytes: %w", name, x.name, x.size, driver.ErrOutOfMemory)
		}
		copy(a.data, x.init)
		setAll(a.set) // what is not initialised is zero
		a.readonly = x.space == constant
		x.addr = a.base
		l.vars = append(l.vars, a.base)
	}
	for _, k := range m.kernels {
		p, err := compile(m, k)
		if err != nil {
			drop()
			return 0, refused(err)
		}
		l.progs[k.name] = p
	}
	if len(l.vars) == 0 {
		v.done.put(string(ptx), l.progs)
	}
	v.modules[h] = l
	return h, nil
}

// UnloadModule waits for all streams.
func (v *Device) UnloadModule(h driver.Module) error {
	defer v.leave()
	if err := v.enter("UnloadModule"); err != nil {
		return err
	}
	l := v.modules[h]
	if l == nil {
		return closed("UnloadModule", h)
	}
	for _, s := range v.inOrder() {
		if err := v.drain(s); err != nil {
			return err
		}
	}
	for _, a := range l.vars {
		v.mem.free(a)
	}
	for _, f := range l.funcs {
		delete(v.funcs, f)
	}
	delete(v.modules, h)
	return nil
}

// Function finds a kernel of a module.
func (v *Device) Function(h driver.Module, name string) (driver.Function, error) {
	defer v.leave()
	if err := v.enter("Function"); err != nil {
		return 0, err
	}
	l := v.modules[h]
	if l == nil {
		return 0, closed("Function", h)
	}
	p := l.progs[name]
	if p == nil {
		var have []string
		for n := range l.progs {
			have = append(have, n)
		}
		slices.Sort(have)
		return 0, fmt.Errorf("emu: module %s has no kernel %s, only %v: %w", l.name, name, have, driver.ErrKernel)
	}
	f := driver.Function(v.handle())
	v.funcs[f] = &function{p: p, module: l.name, shared: max(0, 48<<10-p.shared)}
	l.funcs = append(l.funcs, f)
	return f, nil
}

// FuncInfo gives the emulator's registers: what a device takes, only its
// assembler knows.
func (v *Device) FuncInfo(h driver.Function) (driver.FuncInfo, error) {
	defer v.leave()
	if err := v.enter("FuncInfo"); err != nil {
		return driver.FuncInfo{}, err
	}
	f := v.funcs[h]
	if f == nil {
		return driver.FuncInfo{}, closed("FuncInfo", h)
	}
	return driver.FuncInfo{Registers: f.p.free32 + 2*f.p.free64, Local: f.p.local, Shared: f.p.shared, MaxThreads: f.p.maxThreads}, nil
}

// SetMaxShared allows a kernel more dynamic shared memory.
func (v *Device) SetMaxShared(h driver.Function, bytes int) error {
	defer v.leave()
	if err := v.enter("SetMaxShared"); err != nil {
		return err
	}
	f := v.funcs[h]
	switch {
	case f == nil:
		return closed("SetMaxShared", h)
	case bytes < 0 || bytes+f.p.shared > v.cfg.Shared:
		return fmt.Errorf("emu: SetMaxShared of kernel %s: %d bytes and %d static ones pass the device's %d: %w", f.p.name, bytes, f.p.shared, v.cfg.Shared, driver.ErrKernel)
	}
	f.shared = bytes
	return nil
}
