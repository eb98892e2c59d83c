//go:build !linux && !darwin

package host

import "os"

func (f *Facts) read() { f.Processor = os.Getenv("PROCESSOR_IDENTIFIER") }
