package host

import "golang.org/x/sys/unix"

func (f *Facts) read() {
	f.Processor, _ = unix.Sysctl("machdep.cpu.brand_string") // what is not told stays zero
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		f.Memory = int64(n)
	}
	if n, err := unix.SysctlUint32("hw.ncpu"); err == nil {
		f.Installed = int(n)
	}
}
