package main

import (
	"fmt"
	"text/tabwriter"

	"samebit/backend/opencl"
)

// accelerator is a device beside the processor that doctor knows of.
type accelerator struct {
	Device  string `json:"device"` // for --device
	Model   string `json:"model,omitempty"`
	Problem string `json:"problem,omitempty"` // why it cannot be used
}

// accelerators lists what the drivers of this machine offer. Every device is opened
// once, which runs its probes.
func accelerators() []accelerator {
	list, err := opencl.Devices()
	if err != nil {
		return []accelerator{{Device: "opencl", Problem: err.Error()}}
	}
	l := []accelerator{}
	for i, f := range list {
		a := accelerator{Device: "opencl", Model: f.Model + ", " + f.Platform}
		if i > 0 {
			a.Device = fmt.Sprintf("opencl:%d", i)
		}
		err := f.Err
		if err == nil {
			var d *opencl.Device
			if d, err = opencl.New(opencl.Config{Device: i}); err == nil {
				err = d.Close()
			}
		}
		if err != nil {
			a.Problem = err.Error()
		}
		l = append(l, a)
	}
	if len(l) == 0 {
		_, err := opencl.New(opencl.Config{})
		l = append(l, accelerator{Device: "opencl", Problem: fmt.Sprint(err)})
	}
	return l
}

func printAccelerators(w *tabwriter.Writer, l []accelerator) {
	for _, a := range l {
		switch {
		case a.Problem != "":
			fmt.Fprintf(w, "device %s\t%s\n", a.Device, a.Problem)
		default:
			fmt.Fprintf(w, "device %s\t%s: exact in all probes\n", a.Device, a.Model)
		}
	}
}
