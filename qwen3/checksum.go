package qwen3

import (
	"encoding/binary"
	"runtime"
	"sync"

	"samebit/backend"
	"samebit/internal/crc32c"
	"samebit/tensor"
)

// sumBytes is how much of a tensor has a checksum of its own.
const sumBytes = 64 << 10

// checksums are the CRC-32C of each 64 KiB of a tensor: reading the file once at
// memory speed is part of loading, hashing it with SHA-256 is not.
type checksums struct {
	data []byte
	sums []uint32
}

func newChecksums(data []byte) *checksums {
	return &checksums{data, make([]uint32, (len(data)+sumBytes-1)/sumBytes)}
}

// part computes the sums of what begins in [i, j). Calls for different parts may
// overlap in time.
func (c *checksums) part(i, j int) {
	for b := (i + sumBytes - 1) / sumBytes; b*sumBytes < j; b++ {
		c.sums[b] = crc32c.Checksum(c.data[b*sumBytes : min((b+1)*sumBytes, len(c.data))])
	}
}

// all computes every sum.
func (c *checksums) all() { readSide(len(c.data), c.part) }

// readSide calls read for parts of n bytes on all cores.
func readSide(n int, read func(i, j int)) {
	workers := min(runtime.GOMAXPROCS(0), (n+16*sumBytes-1)/(16*sumBytes))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w * sumBytes; i < n; i += workers * sumBytes {
				read(i, min(i+sumBytes, n))
			}
		})
	}
	wg.Wait()
}

// appendTo adds the sums to a digest.
func (c *checksums) appendTo(digest []byte) []byte {
	for _, s := range c.sums {
		digest = binary.LittleEndian.AppendUint32(digest, s)
	}
	return digest
}

// packQueuer is a device that packs weights together and tells which bytes it has just
// read, so that the file comes from memory once; see Device.PackQueue of package cpu.
type packQueuer interface {
	PackQueue() (add func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error), pack func() error)
}

// packers is PackQueue for any device; others read first and pack at once.
func packers(dev backend.Device) (add func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error), pack func() error) {
	if q, ok := dev.(packQueuer); ok {
		return q.PackQueue()
	}
	return func(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error) {
		if read != nil {
			readSide(t.Dim(0)*t.DType().Bytes(t.Dim(1)), read)
		}
		return dev.Pack(t, use)
	}, func() error { return nil }
}
