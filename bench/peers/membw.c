// Read bandwidth of memory: the limit of decode, where every weight is read once per token.
//
//   gcc -O3 -march=native -pthread membw.c -o membw && ./membw [THREADS 2] [SECONDS 1.5]
//
// All threads start a round together; a round ends when the last one has read its 64 MiB, so the sum over threads is
// what they really had at the same time. One JSON line per number of threads (1..THREADS) and of streams per thread
// (one stream seldom reaches what four do). Rounds are short so that the best one fits into a scheduler slice.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vec __attribute__((vector_size(64)));

enum { ROUND = 64 << 20, MAX_THREADS = 64, MAX_ROUNDS = 1 << 16 };
static const size_t area = (size_t) 1 << 30;    // bytes per thread, well past any L3; a multiple of ROUND

static int threads, streams;
static double limit;
static pthread_barrier_t gate;
static atomic_int arrived, stop;
static double begun[MAX_THREADS], ended[MAX_THREADS], gbps[MAX_ROUNDS];
static int rounds;
static char * mem[MAX_THREADS];
static volatile float sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Sums ROUND bytes: `streams` pieces of equal length that lie area/streams apart, from offset off of each.
static float read_round(const char * p, size_t off) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    size_t len = ROUND / streams / sizeof(vec), apart = area / streams / sizeof(vec);
    const vec * q = (const vec *) (p + off / streams);
    if (streams == 4) {
        for (size_t i = 0; i < len; i++) {
            a += q[i];
            b += q[i + apart];
            c += q[i + 2 * apart];
            d += q[i + 3 * apart];
        }
    } else {
        for (size_t i = 0; i < len; i += 4) {
            a += q[i];
            b += q[i + 1];
            c += q[i + 2];
            d += q[i + 3];
        }
    }
    a += b + c + d;
    return a[0];
}

static void * reader(void * arg) {
    int id = (int) (size_t) arg;
    double deadline = 0;
    for (size_t off = 0;; off = (off + ROUND) % area) {
        pthread_barrier_wait(&gate);
        atomic_fetch_add(&arrived, 1);
        while (atomic_load(&arrived) % threads) {}    // start together: the barrier alone wakes the threads one by one
        begun[id] = now();
        sink = read_round(mem[id], off);
        ended[id] = now();
        pthread_barrier_wait(&gate);
        if (id == 0) {
            double b = begun[0], e = ended[0];
            for (int i = 1; i < threads; i++) {
                if (begun[i] < b) b = begun[i];
                if (ended[i] > e) e = ended[i];
            }
            gbps[rounds++] = (double) threads * ROUND / (e - b) / 1e9;
            if (deadline == 0) deadline = now() + limit;
            stop = now() > deadline || rounds == MAX_ROUNDS;
        }
        pthread_barrier_wait(&gate);
        if (stop) return 0;
    }
}

static int ascending(const void * a, const void * b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void run(void) {
    pthread_t t[MAX_THREADS];
    pthread_barrier_init(&gate, 0, threads);
    arrived = stop = rounds = 0;
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, reader, (void *) (size_t) i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    pthread_barrier_destroy(&gate);
    qsort(gbps, rounds, sizeof *gbps, ascending);
    printf("{\"test\":\"read\",\"threads\":%d,\"streams\":%d,\"rounds\":%d,\"gbps_best\":%.2f,\"gbps_median\":%.2f}\n", threads, streams, rounds,
           gbps[rounds - 1], gbps[rounds / 2]);
    fflush(stdout);
}

int main(int argc, char ** argv) {
    int most = argc > 1 ? atoi(argv[1]) : 2;
    limit = argc > 2 ? atof(argv[2]) : 1.5;
    if (most < 1 || most > MAX_THREADS) return fprintf(stderr, "membw: threads must be 1..%d\n", MAX_THREADS), 2;
    for (int i = 0; i < most; i++) {
        mem[i] = aligned_alloc(4096, area);
        if (!mem[i]) return fprintf(stderr, "membw: no memory for %d areas of 1 GiB\n", most), 1;
        memset(mem[i], 0, area);
    }
    for (threads = 1; threads <= most; threads++)
        for (streams = 1; streams <= 4; streams *= 4) run();
}
