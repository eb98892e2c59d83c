// Times prefill, decode and batched decode of llama.cpp on the CPU through its C API (the calls that llama-bench makes).
//
//   llama_perf -m FILE.gguf [-t 2] [-p 128,512] [-n 32] [-d 0,2048] [-r 5]
//              [--loads 1] [--nseq 1,4] [--fa -1|0|1] [--kv f16|f32] [--ub 512] [--fakedepth 1] [--state FILE]
//              [--settings default,fa0-f16,fa0-f32,fa1-f16,fa1-f32]
//   llama_perf --quantize IN.gguf OUT.gguf f32|f16|bf16|q8_0|q4_0|q4_k_m [THREADS]
//
// --settings does all tests once for each, in one process: flash attention off or on, and the type of the cache; default
// is the library's own (--fa -1 --kv f16). --fakedepth fills depths beyond a block with copies of one block of 128 tokens
// and sequences that decode together with copies of one (attention models only; hybrid ones are filled for real).
//
// --loads loads the model several times; the last counts.
//
// One JSON line per test. CPU seconds stand beside wall seconds, and "other_cpu" is how many cores the rest of the
// machine used during the best repetition, so that a busy machine shows in the result.
#include "llama.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Options {
    std::string model, state, kv = "f16", setting;
    std::vector<std::string> settings;
    std::vector<int> prompts, depths{0}, nseqs;
    int threads = 2, loads = 1, steps = 32, reps = 5, ubatch = 512, flash = -1, fakedepth = 0;
};

// One repetition: wall and process CPU seconds, and the cores that other processes used meanwhile.
struct Rep { double wall, cpu, other; };

static double seconds(clockid_t c) {
    timespec t;
    clock_gettime(c, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Busy seconds of the whole machine since boot (user, nice, system, irq, softirq, steal).
static double machine_busy() {
    std::ifstream f("/proc/stat");
    std::string cpu;
    double v[8] = {};
    f >> cpu;
    for (double & x : v) f >> x;
    return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / 100.0;
}

template <class F> static Rep timed(F && f) {
    double b = machine_busy(), w = seconds(CLOCK_MONOTONIC), c = seconds(CLOCK_PROCESS_CPUTIME_ID);
    f();
    Rep r{seconds(CLOCK_MONOTONIC) - w, seconds(CLOCK_PROCESS_CPUTIME_ID) - c, 0};
    r.other = std::max(0.0, (machine_busy() - b - r.cpu) / r.wall);
    return r;
}

[[noreturn]] static void die(const std::string & what) {
    fprintf(stderr, "llama_perf: %s\n", what.c_str());
    exit(1);
}

static void check(bool ok, const char * what) {
    if (!ok) die(what);
}

class Bench {
public:
    Bench(const Options & o) : o_(o), name_(o.model.substr(o.model.rfind('/') + 1)) {
        Rep load;
        for (int i = 0; i < o.loads; i++) {
            if (model_) llama_model_free(model_);
            load = timed([&] { model_ = llama_model_load_from_file(o.model.c_str(), llama_model_default_params()); });
            check(model_, "cannot load the model");
        }
        copies_ = o.fakedepth && !llama_model_is_recurrent(model_) && !llama_model_is_hybrid(model_);
        vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        printf("{\"peer\":\"llama.cpp\",\"model\":\"%s\",\"test\":\"load\",\"wall\":%.3f,\"cpu\":%.3f,\"params\":%llu,\"bytes\":%llu,\"system\":\"%s\"}\n",
               name_.c_str(), load.wall, load.cpu, (unsigned long long) llama_model_n_params(model_),
               (unsigned long long) llama_model_size(model_), llama_print_system_info());
        fflush(stdout);
    }
    ~Bench() { llama_model_free(model_); }

    // Takes a setting of --settings: default, or fa0 or fa1 and the cache's type.
    void use(const std::string & setting) {
        o_.setting = setting;
        if (setting == "default") o_.flash = -1, o_.kv = "f16";
        else if (setting.size() == 7 && setting.substr(0, 2) == "fa" && (setting[2] == '0' || setting[2] == '1') &&
                 (setting.substr(3) == "-f16" || setting.substr(3) == "-f32")) o_.flash = setting[2] - '0', o_.kv = setting.substr(4);
        else die("unknown setting " + setting + " (default, fa0-f16, fa0-f32, fa1-f16, fa1-f32)");
    }

    void prefill() {
        if (o_.prompts.empty()) return;
        llama_context * c = context(*std::max_element(o_.prompts.begin(), o_.prompts.end()) + 64, 1, false);
        feed(c, 0, 16);                                        // warm-up
        for (int p : o_.prompts) {
            std::vector<Rep> reps;
            for (int i = 0; i < o_.reps; i++) {
                llama_memory_clear(llama_get_memory(c), true);
                reps.push_back(timed([&] { feed(c, 0, p); }));
            }
            report("prefill", p, 0, 1, p, reps);
        }
        llama_free(c);
    }

    void decode(int depth) {
        const bool fake = copies_ && depth > block;
        llama_context * c = context(depth + o_.steps * (o_.reps + 1) + 64, fake ? depth / block + 1 : 1, fake);
        int pos = fake ? fill_fake(c, depth) : fill(c, std::max(1, depth));
        feed(c, pos++, 1);                                     // warm-up
        std::vector<Rep> reps;
        for (int i = 0; i < o_.reps; i++) {
            reps.push_back(timed([&] {
                for (int k = 0; k < o_.steps; k++) call([&] { feed(c, pos + k, 1); });
            }));
            // Back to the same depth; a recurrent state cannot be cut back, then the next repetition goes on from here.
            if (!llama_memory_seq_rm(llama_get_memory(c), 0, pos, -1)) pos += o_.steps;
        }
        report("decode", o_.steps, depth, 1, o_.steps, reps);
        llama_free(c);
    }

    void batched(int nseq, int depth) {
        llama_context * c = context((depth + o_.steps * o_.reps + 64) * nseq, nseq, false);
        int pos = std::max(1, depth);
        feed(c, 0, pos, 0);
        std::vector<uint8_t> past;
        if (copies_) past = saved(c, 0);
        for (int q = 1; q < nseq; q++) {
            if (copies_) check(llama_state_seq_set_data(c, past.data(), past.size(), q), "cannot copy a sequence");
            else feed(c, 0, pos, q);
        }
        llama_batch b = llama_batch_init(nseq, 0, 1);
        auto step = [&] {
            b.n_tokens = nseq;
            for (int q = 0; q < nseq; q++) set(b, q, pos, q, true);
            check(llama_decode(c, b) == 0, "llama_decode failed");
            llama_synchronize(c);
            pos++;
        };
        step();                                                // warm-up
        std::vector<Rep> reps;
        for (int i = 0; i < o_.reps; i++)
            reps.push_back(timed([&] {
                for (int k = 0; k < o_.steps; k++) call(step);
            }));
        report("batched-decode", o_.steps, depth, nseq, (double) o_.steps * nseq, reps);
        llama_batch_free(b);
        llama_free(c);
    }

private:
    enum { block = 128 };                                      // tokens that are run to fill a cache with copies

    Options o_;
    std::string name_;
    llama_model * model_ = nullptr;
    int vocab_ = 0;
    bool copies_ = false;
    uint64_t rng_ = 1;
    std::vector<double> calls_;                                // seconds of single decode calls

    llama_context * context(int n_ctx, int nseq, bool unified) {
        auto p = llama_context_default_params();
        p.n_ctx = n_ctx;
        p.n_batch = 2048;
        p.n_ubatch = o_.ubatch;
        p.n_seq_max = nseq;
        p.kv_unified = unified;
        p.n_threads = p.n_threads_batch = o_.threads;
        p.flash_attn_type = (llama_flash_attn_type) o_.flash;
        if (o_.kv == "f32") p.type_k = p.type_v = GGML_TYPE_F32;
        llama_context * c = llama_init_from_model(model_, p);
        check(c, "cannot make a context");
        return c;
    }

    void set(llama_batch & b, int i, int pos, int seq, bool logits) {
        rng_ ^= rng_ << 13, rng_ ^= rng_ >> 7, rng_ ^= rng_ << 17;
        b.token[i] = (llama_token) ((rng_ >> 33) % vocab_);
        b.pos[i] = pos;
        b.n_seq_id[i] = 1;
        b.seq_id[i][0] = seq;
        b.logits[i] = logits;
    }

    // Decodes n random tokens from position pos in calls of at most 2048, logits of the last token of a call only.
    void feed(llama_context * c, int pos, int n, int seq = 0) {
        for (; n > 0;) {
            int k = std::min(n, 2048);
            llama_batch b = llama_batch_init(k, 0, 1);
            b.n_tokens = k;
            for (int i = 0; i < k; i++) set(b, i, pos + i, seq, i == k - 1);
            check(llama_decode(c, b) == 0, "llama_decode failed");
            llama_batch_free(b);
            pos += k, n -= k;
        }
        llama_synchronize(c);
    }

    // Fills the context with depth tokens, or takes them from the state file of this depth; returns the next position.
    int fill(llama_context * c, int depth) {
        std::string file = o_.state + "." + o_.setting + "." + std::to_string(depth);
        std::vector<llama_token> tokens(depth + 64);
        size_t got = 0;
        if (!o_.state.empty() && std::ifstream(file).good() &&
            llama_state_seq_load_file(c, file.c_str(), 0, tokens.data(), tokens.size(), &got)) return depth;
        feed(c, 0, depth);
        if (!o_.state.empty()) llama_state_seq_save_file(c, file.c_str(), 0, tokens.data(), depth);
        return depth;
    }

    static std::vector<uint8_t> saved(llama_context * c, int seq) {
        std::vector<uint8_t> v(llama_state_seq_get_size(c, seq));
        v.resize(llama_state_seq_get_data(c, v.data(), v.size(), seq));
        return v;
    }

    // Fills the cache with depth/128 copies of one real block of 128 tokens: as many cells and the same attention work
    // in a fraction of the time.
    int fill_fake(llama_context * c, int depth) {
        llama_memory_t mem = llama_get_memory(c);
        feed(c, 0, block);
        std::vector<uint8_t> one = saved(c, 0);
        for (int k = 1; k < depth / block; k++) {
            check(llama_state_seq_set_data(c, one.data(), one.size(), k), "cannot copy a cache block");
            llama_memory_seq_cp(mem, k, 0, -1, -1);
        }
        return block;
    }

    template <class F> void call(F && f) {
        double t = seconds(CLOCK_MONOTONIC);
        f();
        calls_.push_back(seconds(CLOCK_MONOTONIC) - t);
    }

    static void print_list(const char * key, const std::vector<double> & v) {
        printf(",\"%s\":[", key);
        for (size_t i = 0; i < v.size(); i++) printf("%s%.4f", i ? "," : "", v[i]);
        printf("]");
    }

    // tps_cpu: tokens per second if the threads had never been interrupted, from the least CPU time of a repetition.
    void report(const char * test, int n, int depth, int nseq, double tokens, const std::vector<Rep> & reps) {
        std::vector<double> wall, cpu;
        for (auto & r : reps) wall.push_back(r.wall), cpu.push_back(r.cpu);
        auto sorted = wall;
        std::sort(sorted.begin(), sorted.end());
        double other = 0;
        for (auto & r : reps) if (r.wall == sorted[0]) other = r.other;
        printf("{\"peer\":\"llama.cpp\",\"model\":\"%s\",\"setting\":\"%s\",\"threads\":%d,\"test\":\"%s\",\"n\":%d,\"depth\":%d,\"nseq\":%d,"
               "\"tps_best\":%.2f,\"tps_median\":%.2f,\"tps_cpu\":%.2f,\"other_cpu\":%.2f",
               name_.c_str(), o_.setting.c_str(), o_.threads, test, n, depth, nseq, tokens / sorted[0], tokens / sorted[sorted.size() / 2],
               tokens * o_.threads / *std::min_element(cpu.begin(), cpu.end()), other);
        print_list("wall", wall);
        print_list("cpu", cpu);
        if (!calls_.empty()) {
            std::sort(calls_.begin(), calls_.end());
            printf(",\"call_ms_best\":%.3f,\"call_ms_median\":%.3f", 1e3 * calls_[0], 1e3 * calls_[calls_.size() / 2]);
            calls_.clear();
        }
        rusage u;
        getrusage(RUSAGE_SELF, &u);
        printf(",\"peak_mib\":%ld}\n", u.ru_maxrss / 1024);
        fflush(stdout);
    }
};

static int quantize(const char * in, const char * out, const std::string & type, int threads) {
    const std::pair<const char *, llama_ftype> types[] = {
        {"f32", LLAMA_FTYPE_ALL_F32},          {"f16", LLAMA_FTYPE_MOSTLY_F16},   {"bf16", LLAMA_FTYPE_MOSTLY_BF16},
        {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},     {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0}, {"q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M}};
    auto p = llama_model_quantize_default_params();
    p.nthread = threads;
    p.allow_requantize = true;
    for (auto & t : types) {
        if (type != t.first) continue;
        p.ftype = t.second;
        return (int) llama_model_quantize(in, out, &p);
    }
    die("unknown type " + type + " (f32, f16, bf16, q8_0, q4_0, q4_k_m)");
}

static std::vector<int> ints(const char * s) {
    std::vector<int> v;
    std::stringstream ss(s);
    for (std::string x; std::getline(ss, x, ',');) v.push_back(atoi(x.c_str()));
    return v;
}

static std::vector<std::string> words(const char * s) {
    std::vector<std::string> v;
    std::stringstream ss(s);
    for (std::string x; std::getline(ss, x, ',');) v.push_back(x);
    return v;
}

static Options parse(int argc, char ** argv) {
    Options o;
    for (int i = 1; i < argc; i += 2) {
        std::string a = argv[i];
        if (i + 1 == argc) die("no value after " + a);
        const char * v = argv[i + 1];
        if (a == "-m") o.model = v;
        else if (a == "-t") o.threads = atoi(v);
        else if (a == "-p") o.prompts = ints(v);
        else if (a == "-n") o.steps = atoi(v);
        else if (a == "-d") o.depths = ints(v);
        else if (a == "-r") o.reps = std::max(1, atoi(v));
        else if (a == "--loads") o.loads = std::max(1, atoi(v));
        else if (a == "--ub") o.ubatch = atoi(v);
        else if (a == "--fa") o.flash = atoi(v);
        else if (a == "--nseq") o.nseqs = ints(v);
        else if (a == "--kv") o.kv = v;
        else if (a == "--settings") o.settings = words(v);
        else if (a == "--state") o.state = v;
        else if (a == "--fakedepth") o.fakedepth = atoi(v);
        else die("unknown option " + a + "; the options are at the top of llama_perf.cpp");
    }
    if (o.model.empty()) die("no model: -m FILE.gguf");
    return o;
}

int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level l, const char * t, void *) { if (l >= GGML_LOG_LEVEL_ERROR) fputs(t, stderr); }, nullptr);
    if (argc >= 5 && !strcmp(argv[1], "--quantize")) return quantize(argv[2], argv[3], argv[4], argc > 5 ? atoi(argv[5]) : 2);
    Options o = parse(argc, argv);
    Bench b(o);
    auto all = [&] {
        b.prefill();
        for (int d : o.depths) {
            if (o.steps > 0 && o.nseqs.empty()) b.decode(d);
            for (int n : o.nseqs) b.batched(n, d);
        }
    };
    if (o.settings.empty()) all();
    for (auto & s : o.settings) {
        b.use(s);
        all();
    }
}
