/* A driver library without a device, for the tests of the binding. It writes
 * down every call with its arguments, does what a device with one queue would do
 * with memory, counts what is held, and fails at a chosen call.
 *
 *   gcc -shared -fPIC -o libfakecuda.so fakecuda.c
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void *H;

static char notes[1 << 20];
static size_t noted;
static int calls, fail_at, fail_with, version = 12040, devices = 1;
static long held[8]; /* contexts, modules, memory, host memory, streams, events, graphs, ready graphs */
static uintptr_t next_handle;
static H current;

void fake_reset(int at, int with) { noted = 0; notes[0] = 0; calls = 0; fail_at = at; fail_with = with; next_handle = 0x1000; memset(held, 0, sizeof held); current = 0; }
void fake_machine(int v, int n) { version = v; devices = n; }
long fake_held(int kind) { return held[kind]; }
long fake_notes(char *to, long n) { long k = (long)noted < n ? (long)noted : n; memcpy(to, notes, k); return k; }

static void note(const char *format, ...) {
	va_list a;
	va_start(a, format);
	int n = vsnprintf(notes + noted, sizeof notes - noted, format, a);
	va_end(a);
	if (n > 0 && noted + n < sizeof notes) noted += n;
}

static void hex(const unsigned char *p, size_t n) {
	for (size_t i = 0; i < n; i++) note("%02x", p[i]);
}

/* CALL notes a call and leaves if it is the one that must fail. */
#define CALL(...) do { note(__VA_ARGS__); note("\n"); if (++calls == fail_at) return fail_with; } while (0)
/* IN is CALL where a context must be current. */
#define IN(...) do { CALL(__VA_ARGS__); if (!current) return 201; } while (0)
#define MAKE(to, kind) (held[kind]++, *(to) = (H)(next_handle += 0x10))

R cuInit(unsigned flags) { CALL("cuInit %u", flags); return 0; }
R cuDriverGetVersion(int *v) { CALL("cuDriverGetVersion"); *v = version; return 0; }
R cuDeviceGetCount(int *n) { CALL("cuDeviceGetCount"); *n = devices; return 0; }
R cuDeviceGet(int *d, int i) { CALL("cuDeviceGet %d", i); if (i < 0 || i >= devices) return 101; *d = 7 + i; return 0; }
R cuDeviceGetName(char *s, int n, int d) { CALL("cuDeviceGetName %d %d", n, d); snprintf(s, n, "Fake %d", d); return 0; }
R cuDeviceTotalMem_v2(size_t *n, int d) { CALL("cuDeviceTotalMem %d", d); *n = (size_t)5 << 30; return 0; }
R cuDeviceGetAttribute(int *v, int a, int d) { CALL("cuDeviceGetAttribute %d %d", a, d); *v = 1000 + a; return 0; }
R cuDevicePrimaryCtxRetain(H *c, int d) { CALL("cuDevicePrimaryCtxRetain %d", d); MAKE(c, 0); return 0; }
R cuDevicePrimaryCtxRelease_v2(int d) { CALL("cuDevicePrimaryCtxRelease %d", d); held[0]--; return 0; }
R cuCtxSetCurrent(H c) { CALL("cuCtxSetCurrent %p", c); current = c; return 0; }
R cuMemGetInfo_v2(size_t *f, size_t *t) { IN("cuMemGetInfo"); *f = 3000; *t = 5000; return 0; }

R cuGetErrorName(int r, const char **s) {
	static char b[32];
	snprintf(b, sizeof b, "FAKE_ERROR_%d", r);
	*s = b;
	return 0;
}
R cuGetErrorString(int r, const char **s) { *s = r == 2 ? "no memory" : "it failed"; return 0; }

R cuModuleLoadDataEx(H *m, const char *image, unsigned n, int *option, void **value) {
	if (n == 2 && option[0] == 5 && option[1] == 6 && !strstr(image, ".entry")) snprintf(value[0], (size_t)value[1], "ptxas says no");
	IN("cuModuleLoadDataEx %u %d %d %zu [%s]", n, option[0], option[1], (size_t)value[1], image);
	if (!strstr(image, ".entry")) return 218;
	MAKE(m, 1);
	return 0;
}
R cuModuleUnload(H m) { IN("cuModuleUnload %p", m); held[1]--; return 0; }
R cuModuleGetFunction(H *f, H m, const char *name) { IN("cuModuleGetFunction %p %s", m, name); if (strcmp(name, "k")) return 500; *f = (H)0xf00; return 0; }
R cuFuncGetAttribute(int *v, int a, H f) { IN("cuFuncGetAttribute %d %p", a, f); *v = 10 * a + 1; return 0; }
R cuFuncSetAttribute(H f, int a, int v) { IN("cuFuncSetAttribute %p %d %d", f, a, v); return 0; }

R cuMemAlloc_v2(H *p, size_t n) { IN("cuMemAlloc %zu", n); if (n > (size_t)1 << 20) return 2; *p = malloc(n); held[2]++; return 0; }
R cuMemFree_v2(H p) { IN("cuMemFree"); free(p); held[2]--; return 0; }
R cuMemAllocHost_v2(H *p, size_t n) { IN("cuMemAllocHost %zu", n); *p = malloc(n); held[3]++; return 0; }
R cuMemFreeHost(H p) { IN("cuMemFreeHost"); free(p); held[3]--; return 0; }
R cuMemcpyHtoDAsync_v2(H d, const void *s, size_t n, H q) { IN("cuMemcpyHtoDAsync %zu %p", n, q); memcpy(d, s, n); return 0; }
R cuMemcpyDtoHAsync_v2(void *d, H s, size_t n, H q) { IN("cuMemcpyDtoHAsync %zu %p", n, q); memcpy(d, s, n); return 0; }
R cuMemcpyDtoDAsync_v2(H d, H s, size_t n, H q) { IN("cuMemcpyDtoDAsync %zu %p", n, q); memcpy(d, s, n); return 0; }
R cuMemsetD8Async(H d, unsigned char v, size_t n, H q) { IN("cuMemsetD8Async %d %zu %p", v, n, q); memset(d, v, n); return 0; }

R cuStreamCreate(H *q, unsigned flags) { IN("cuStreamCreate %u", flags); MAKE(q, 4); return 0; }
R cuStreamDestroy_v2(H q) { IN("cuStreamDestroy %p", q); held[4]--; return 0; }
R cuStreamSynchronize(H q) { IN("cuStreamSynchronize %p", q); return 0; }
R cuEventCreate(H *e, unsigned flags) { IN("cuEventCreate %u", flags); MAKE(e, 5); return 0; }
R cuEventDestroy_v2(H e) { IN("cuEventDestroy %p", e); held[5]--; return 0; }
R cuEventRecord(H e, H q) { IN("cuEventRecord %p %p", e, q); return 0; }
R cuEventElapsedTime(float *ms, H a, H b) { IN("cuEventElapsedTime %p %p", a, b); *ms = 1.5f; return 0; }

R cuLaunchKernel(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, H q, void **params, void **extra) {
	note("cuLaunchKernel %p grid %u %u %u block %u %u %u shared %u %p params ", f, gx, gy, gz, bx, by, bz, shared, q);
	if (!params && extra[0] == (void *)1 && extra[2] == (void *)2 && !extra[4]) hex(extra[1], *(size_t *)extra[3]);
	IN("%s", "");
	return 0;
}

R cuStreamBeginCapture_v2(H q, int mode) { IN("cuStreamBeginCapture %p %d", q, mode); return 0; }
R cuStreamEndCapture(H q, H *g) { IN("cuStreamEndCapture %p", q); MAKE(g, 6); return 0; }
R cuGraphInstantiateWithFlags(H *x, H g, unsigned long long flags) { IN("cuGraphInstantiateWithFlags %p %llu", g, flags); MAKE(x, 7); return 0; }
R cuGraphLaunch(H x, H q) { IN("cuGraphLaunch %p %p", x, q); return 0; }
R cuGraphDestroy(H g) { IN("cuGraphDestroy %p", g); held[6]--; return 0; }
R cuGraphExecDestroy(H x) { IN("cuGraphExecDestroy %p", x); held[7]--; return 0; }
