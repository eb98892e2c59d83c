//go:build amd64

package cl

import "golang.org/x/sys/windows"

// libraries are the names of the ICD loader.
var libraries = []string{"OpenCL.dll"}

func open(name string) (uintptr, error) {
	h, err := windows.LoadLibraryEx(name, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	return uintptr(h), err
}

func symbol(lib uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(lib), name)
}
