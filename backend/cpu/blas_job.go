package cpu

// blasJob is one operation of BLAS with its scratch memory; the operands lie in
// it so that handing them to the workers allocates nothing.
type blasJob struct {
	blas *BLAS
	body func(j *blasJob, worker, chunk int)
	blasArgs

	x, y []float32 // strided vectors side by side
	pa   []float32 // rows in tile order, one block of rows after the other
	work []blasWork
}

// blasArgs are the operands of the operation under way.
type blasArgs struct {
	alpha, beta float32
	vx, vy      strided
	c           []float32
	ldc, rows   int
	prod        blasProduct
}

// blasWork is the scratch memory of one worker.
type blasWork struct {
	pack  []float32 // panels
	tiles []float32 // for gemm.Panels
	out   []float32 // results before they are merged into C
	buf   []float32 // gathered elements
}

// Do is called by the workers.
func (j *blasJob) Do(worker, chunk int) { j.body(j, worker, chunk) }

// run calls body for every chunk, on all workers unless the work is so small
// that waking them costs more.
func (j *blasJob) run(chunks int, small bool, body func(j *blasJob, worker, chunk int)) {
	if small || chunks == 1 || len(j.work) == 1 {
		for c := range chunks {
			body(j, 0, c)
		}
		return
	}
	j.body = body
	j.blas.dev.pool.Run(j, chunks)
}

// done gives the job back, without holding on to the caller's memory.
func (j *blasJob) done() {
	j.blasArgs = blasArgs{}
	j.blas.jobs.Put(j)
}
