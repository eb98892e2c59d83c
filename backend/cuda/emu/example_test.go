package emu_test

import (
	"errors"
	"fmt"
	"log"

	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
)

// A kernel runs on the emulator as on a device. This one reads one word too far,
// which a device would most likely not notice.
func Example() {
	const ptx = `.version 7.0
.target sm_75
.address_size 64
.visible .entry double(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %l<3>;
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %l1, %r1, 4;
	ld.param.u64 %l2, [p];
	add.s64 %l1, %l1, %l2;
	ld.global.u32 %r2, [%l1];
	add.u32 %r2, %r2, %r2;
	st.global.u32 [%l1], %r2;
	ret;
}
`
	ctx, err := emu.New(emu.Config{}).Open(0)
	if err != nil {
		log.Fatal(err)
	}
	stream, _ := ctx.NewStream()
	mod, err := ctx.LoadModule("example", []byte(ptx))
	if err != nil {
		log.Fatal(err)
	}
	double, err := ctx.Function(mod, "double")
	if err != nil {
		log.Fatal(err)
	}
	mem, _ := ctx.Alloc(12)
	host, _ := ctx.AllocHost(12)
	copy(host, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3})
	run := func(threads uint32) error {
		var p driver.Params
		launch := driver.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1}}
		return errors.Join(ctx.CopyIn(stream, mem, host), ctx.Launch(stream, double, launch, p.Ptr(mem).Bytes()), ctx.CopyOut(stream, host, mem), ctx.Sync(stream))
	}
	fmt.Println(run(3), host)
	fmt.Println(run(4))
	// Output:
	// <nil> [2 0 0 0 4 0 0 0 6 0 0 0]
	// emu: kernel double, PTX line 12 (ld.global.u32 %r2, [%l1];), block [0 0 0], thread [3 0 0]: out of bounds: 4 bytes: 0 bytes past the end of an allocation of 12 bytes at 0x200000000
}
