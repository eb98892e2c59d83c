package qwen3

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"sync"

	"samebit/backend"
	"samebit/tensor"
)

// sumBytes is how much of a tensor has a checksum of its own.
const sumBytes = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
		c.sums[b] = crc32.Checksum(c.data[b*sumBytes:min((b+1)*sumBytes, len(c.data))], castagnoli)
	}
}

// all computes every sum, on all cores.
func (c *checksums) all() {
	workers := min(runtime.GOMAXPROCS(0), (len(c.sums)+15)/16)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(c.sums); i += workers {
				c.part(i*sumBytes, (i+1)*sumBytes)
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

// readPacker is a device that tells which bytes it has just read, so that the file
// comes from memory once; see Device.PackRead of package cpu.
type readPacker interface {
	PackRead(t tensor.Tensor, use backend.Use, read func(i, j int)) (backend.Weight, error)
}
