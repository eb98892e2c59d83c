package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func (f *Facts) read() {
	info, _ := os.ReadFile("/proc/cpuinfo") // what is not told stays zero
	text := string(info)
	for _, name := range []string{"model name", "Model", "Processor", "cpu model", "uarch"} {
		if f.Processor = field(text, name); f.Processor != "" {
			break
		}
	}
	f.Installed = strings.Count("\n"+text, "\nprocessor")
	mem, _ := os.ReadFile("/proc/meminfo")
	f.Memory, f.Available = kib(field(string(mem), "MemTotal")), kib(field(string(mem), "MemAvailable"))
	for dir := range groups() {
		f.group(dir)
	}
}

// groups lists the folders of this process's control group and of those around
// it, of version 2.
func groups() map[string]bool {
	dirs := map[string]bool{}
	own, _ := os.ReadFile("/proc/self/cgroup")
	const root = "/sys/fs/cgroup"
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for dir := filepath.Join(root, filepath.Clean("/"+path)); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

// group keeps the tightest limits.
func (f *Facts) group(dir string) {
	if b, err := os.ReadFile(filepath.Join(dir, "cpu.max")); err == nil {
		if q := quota(string(b)); q > 0 && (f.Quota == 0 || q < f.Quota) {
			f.Quota = q
		}
	}
	limit := number(filepath.Join(dir, "memory.max"))
	if limit <= 0 {
		return
	}
	used := number(filepath.Join(dir, "memory.current"))
	// Pages of files count as used but are given back when memory is short.
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		if n, ok := strings.CutPrefix(line, "inactive_file "); ok {
			v, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			used -= v
		}
	}
	left := max(limit-max(used, 0), 0)
	if f.MemoryLimit == 0 || left < f.LimitLeft {
		f.MemoryLimit, f.LimitLeft = limit, left
	}
}

// number reads a file with one number; 0 for others.
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
