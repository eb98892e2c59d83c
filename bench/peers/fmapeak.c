// The float32 FMA peak: independent chains in registers. Prints one JSON line.
//   gcc -O3 -march=native -ffp-contract=off -pthread fmapeak.c -o fmapeak && ./fmapeak THREADS SECONDS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
typedef float vec __attribute__((vector_size(LANES * 4)));
#define CHAINS 12
#define STEPS 100000

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static double limit;

// One repetition: CHAINS chains of STEPS fused steps.
static float rep(void) {
    vec a[CHAINS], x, y;
    for (int i = 0; i < LANES; i++) { x[i] = 0.999999f; y[i] = 1e-6f; }
    for (int c = 0; c < CHAINS; c++) {
        a[c] = x;
        __asm__ volatile("" : "+m"(a[c])); // else the compiler makes one of them all
    }
    for (int s = 0; s < STEPS; s++)
        for (int c = 0; c < CHAINS; c++) {
#ifdef __AVX512F__
            a[c] = (vec)__builtin_ia32_vfmaddps512_mask(a[c], x, y, (unsigned short)-1, 4);
#elif defined(__FMA__)
            a[c] = (vec)__builtin_ia32_vfmaddps256(a[c], x, y);
#else
            for (int i = 0; i < LANES; i++) a[c][i] = __builtin_fmaf(a[c][i], x[i], y[i]);
#endif
        }
    float r = 0;
    for (int c = 0; c < CHAINS; c++) r += a[c][0];
    return r;
}

struct result { double best, median; };

static int ascending(const void *x, const void *y) { return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y); }

static void *work(void *out) {
    enum { MOST = 1 << 20 };
    double *took = malloc(MOST * sizeof *took), end = now() + limit;
    int n = 0;
    float sink = 0;
    if (!took) exit(1);
    while (n == 0 || (n < MOST && now() < end)) {
        double t = now();
        sink += rep();
        took[n++] = now() - t;
    }
    qsort(took, n, sizeof *took, ascending);
    double flops = sink == 12345 ? 0 : 2.0 * LANES * CHAINS * STEPS / 1e9;
    *(struct result *)out = (struct result){flops / took[0], flops / took[n / 2]};
    free(took);
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    limit = argc > 2 ? atof(argv[2]) : 1;
    pthread_t id[64];
    struct result got[64], sum = {0, 0};
    if (threads < 1 || threads > 64) return 2;
    for (int i = 0; i < threads; i++) pthread_create(&id[i], 0, work, &got[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], 0);
        sum.best += got[i].best;
        sum.median += got[i].median;
    }
    printf("{\"test\":\"fma\",\"threads\":%d,\"gflops_best\":%.1f,\"gflops_median\":%.1f}\n", threads, sum.best, sum.median);
}
