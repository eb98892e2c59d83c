// What the archive ops share (docs/numerics.md 16): the state of a sequence's window and
// archive, and reductions by one work item.

// Parts of a bank, in the order of backend.ArchiveBank.
enum { NUM, DEN, LAST, LAND_KEY, LAND_VALUE, LAND_SCORE, TABLE_KEY, TABLE_VALUE, TABLE_SCORE, TABLE_AGE, TABLE_NEXT, READ_QUERY, READ_VALUE, READ_MARK, BANK };

// Archive belongs to a segment: first page slot of the pass, first plane of addresses, first
// of its pages in the list, and per part the floats of a layer and where it lies.
typedef struct {
    uint slot, raw, pages, pad;
    uint len[16];
    ulong in[BANK], out[BANK];
} Archive;

#define ARCHIVES TABLES, ulong archives_at, ulong windows_at
#define ARCHIVE(seg) (((__global const Archive *)AT(archives_at))[seg])

// OUT is a layer's part of the bank that this pass changes.
#define OUT(seg, part) (FLOATS(ARCHIVE(seg).out[part]) + (ulong)layer * ARCHIVE(seg).len[part])

// WINDOW is what a plane of the window pages holds of key head h at page slot j.
#define WINDOW(seg, plane, h, j) \
    (FLOATS(((__global const ulong *)AT(windows_at))[ARCHIVE(seg).pages + (j) / PAGE]) + (((ulong)(plane) * heads + (h)) * PAGE + (j) % PAGE) * D)

// KEY, CONTENT and ADDRESS are of the event of row r of a segment that begins at row first.
#define EVENT(first, r) (ARCHIVE(seg).slot + (uint)((r) - (first)) - window)
#define KEY(h, first, r) WINDOW(seg, 2 * layer, h, EVENT(first, r))
#define CONTENT(h, first, r) WINDOW(seg, 2 * layer + 1, h, EVENT(first, r))
#define ADDRESS(h, first, r) WINDOW(seg, ARCHIVE(seg).raw > 0 ? ARCHIVE(seg).raw + layer : 2 * layer, h, EVENT(first, r))

// events is the number of events up to the row at a slot.
uint events(uint slot, uint window, uint sinks) { return slot + 1 > window + sinks ? slot + 1 - window - sinks : 0; }

enum { NONE, PERSISTENT, PREFIX, PAIR };

// Landmark names the events whose key and value a slot holds after a row, as rows of
// the part of the pass from 1, or 0 for those from before.
typedef struct {
    int key, value;
    float score;
} Landmark;

// place is slot m after the e-th event, of row own, whose scores are given.
Landmark place(Landmark x, int own, uint e, uint m, uint M, uint mode, int gated, float threshold, __global const float *score) {
    if (mode == PERSISTENT && score[m] > x.score && !(gated && score[m] < threshold)) x.key = own, x.value = own, x.score = score[m];
    if (mode >= PREFIX && e <= M) {
        if (m == e - 1) {
            x.key = own, x.value = own, x.score = -INFINITY;
            for (uint i = 0; i < M; i++) x.score = greater(x.score, score[i]);
        }
        if (mode == PAIR && m + 2 == e) x.value = own;
    }
    return x;
}

float alone(float *lane) {
    for (uint h = LANES / 2; h >= 1; h /= 2)
        for (uint i = 0; i < h; i++) lane[i] = lane[i] + lane[i + h];
    return lane[0];
}

// RSUM_ALONE is RSUM by one work item.
#define RSUM_ALONE(total, i, n, step)                              \
    for (uint i##_b = 0; i##_b < (n); i##_b += 1024) {              \
        float lanes_[LANES];                                        \
        for (uint i = 0; i < LANES; i++) lanes_[i] = 0.0f;          \
        for (uint i = i##_b; i < min(i##_b + 1024, (n)); i++) {     \
            float lane = lanes_[i % LANES];                         \
            lanes_[i % LANES] = (step);                             \
        }                                                           \
        total = total + alone(lanes_);                              \
    }

float squares_alone(__global const float *x, uint n) {
    float total = 0.0f;
    RSUM_ALONE(total, i, n, fma(x[i], x[i], lane))
    return total;
}

void softmax_alone(__global float *x, uint n) {
    float m = -INFINITY, total = 0.0f;
    for (uint i = 0; i < n; i++) m = greater(m, x[i]);
    for (uint i = 0; i < n; i++) x[i] = exp_(x[i] - m);
    RSUM_ALONE(total, i, n, lane + x[i])
    total = 1.0f / total;
    for (uint i = 0; i < n; i++) x[i] = x[i] * total;
}

float cosine(__global const float *x, __global const float *y, uint n) {
    return dot_(x, y, n) / greater(sqrt(squares_alone(x, n)) * sqrt(squares_alone(y, n)), 1e-12f);
}

// dot_rows is DOT of x with a column of a matrix.
float dot_rows(__global const float *x, uint n, __global const float *y, uint stride) {
    float total = 0.0f;
    for (uint b = 0; b < n; b += KB) {
        float acc = 0.0f;
        for (uint k = b; k < min(b + KB, n); k++) acc = fma(x[k], y[(ulong)k * stride], acc);
        total = total + acc;
    }
    return total;
}

// ATTEND is attention (docs/numerics.md 7) by a group of 64 work items over the slots in
// some key blocks that are visible, to d[0..D). It declares mass, the log mass.
#define ATTEND(blocks, VISIBLE, KEYS_, VALUES_)                                                     \
    float top = -INFINITY, sum = 0.0f;                                                              \
    bool seen = false;                                                                              \
    EACH(c, j, PAGE, D) d[c] = 0.0f;                                                                \
    for (uint b = 0; b < (blocks); b++) {                                                           \
        uint slot = b * PAGE + j, count = 0;                                                        \
        bool visible = VISIBLE(slot);                                                               \
        /* all work items go through the loops of dot_, EACH says why */                            \
        float score = dot_(q, KEYS_(slot), D) * scale;                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        live[j] = visible;                                                                          \
        s[j] = visible && score == score ? score : -INFINITY;                                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        for (uint i = 0; i < PAGE; i++) count += live[i];                                           \
        for (uint i = PAGE / 2; i >= 1; i /= 2) {                                                   \
            if (j < i && s[j + i] > s[j]) s[j] = s[j + i];                                          \
            barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        }                                                                                           \
        float mb = s[0];                                                                            \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        p[j] = visible ? exp_(score - mb) : 0.0f;                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        if (j < LANES) s[j] = (0.0f + p[j]) + p[j + LANES];                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
        for (uint i = LANES / 2; i >= 1; i /= 2) {                                                  \
            if (j < i) s[j] = s[j] + s[j + i];                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                           \
        }                                                                                           \
        if (count > 0) {                                                                            \
            seen = true;                                                                            \
            float m = greater(top, mb), al = exp_(top - m), be = exp_(mb - m);                      \
            sum = fma(0.0f + s[0], be, sum * al);                                                   \
            top = m;                                                                                \
            EACH(c, j, PAGE, D) {                                                                   \
                float acc = 0.0f;                                                                   \
                for (uint i = 0; i < PAGE; i++)                                                     \
                    if (live[i]) acc = fma(p[i], VALUES_(b * PAGE + i)[c], acc);                    \
                d[c] = fma(0.0f + acc, be, d[c] * al); /* a chain may end at -0 */                  \
            }                                                                                       \
        }                                                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                               \
    }                                                                                               \
    float mass = top;                                                                               \
    if (seen) {                                                                                     \
        float k = 1.0f / sum;                                                                       \
        EACH(c, j, PAGE, D) d[c] = d[c] * k;                                                        \
        mass = top + log_(sum);                                                                     \
    }
