package host

import "golang.org/x/sys/cpu"

func instructions() map[string]bool {
	a := &cpu.ARM64
	return map[string]bool{"asimd": a.HasASIMD, "fphp": a.HasFPHP, "asimddp": a.HasASIMDDP, "sve": a.HasSVE, "sve2": a.HasSVE2}
}
