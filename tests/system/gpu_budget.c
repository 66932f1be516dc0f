// SPDX-License-Identifier: Apache-2.0
#include "system/gpu_budget.h"

#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
#include "base/rng.h"
#include "machine/machine.h"

#include <string.h>

#define BATCH(rows, tokens)                                                                        \
    "training.local_batch_size=" rows, "training.global_batch_size=" rows,                         \
        "training.seq_len=" tokens
#define BFLOAT16 "training.mixed_precision_param=bfloat16"
#define LEAN     "optimizer.state_dtype=bfloat16", "optimizer.master_weights=split"
#define LLAMA_8B                                                                                   \
    "model.name=llama3.1", "model.flavor=8B", "model.vocab_size=128256", BATCH("1", "8192")
#define KEEP_ALL "activation_checkpoint.mode=none", "training.dataset_path=none"
#define EAGER    "device.graphs=false"

const struct budget_case budget_cases[BUDGET_CASES] = {
    {"small",
     "A Llama with two layers of 256, 4 query heads and 1 key/value head of 64, a feed-forward "
     "layer of 1024 and 2048 tokens\nin its tied vocabulary; bf16, 2 rows of 512 tokens",
     true,
     {"model.dim=256", "model.n_layers=2", "model.n_heads=4", "model.n_kv_heads=1",
      "model.ffn_hidden=1024", "model.vocab_size=2048", "model.tie_embeddings=true",
      BATCH("2", "512"), BFLOAT16, KEEP_ALL, EAGER},
     0,
     0},
    {"1B",
     "Llama 3.2 1B, bf16, 4 rows of 4096 tokens, f32 moments and master weights",
     false,
     {"model.name=llama3.2", "model.flavor=1B", "model.vocab_size=128256", BATCH("4", "4096"),
      BFLOAT16, KEEP_ALL},
     0,
     0},
    {"8B",
     "Llama 3.1 8B, bf16, 1 row of 8192 tokens, bf16 moments, split master weights",
     false,
     {LLAMA_8B, BFLOAT16, LEAN, KEEP_ALL},
     0,
     0},
    {"8B FP8",
     "The same in FP8",
     false,
     {LLAMA_8B, BFLOAT16, LEAN, KEEP_ALL, "model.converters=[\"float8\"]"},
     0,
     0},
    {"8B FP8, TP 2",
     "The same on each of two tensor-parallel ranks; before: SwiGLU stored its results, and bf16 "
     "was gathered. Transfers are\nnot in the table: per block eight of activations, four of them "
     "in FP8, and the amaxes of eight tensors and four weights",
     false,
     {LLAMA_8B, BFLOAT16, LEAN, KEEP_ALL, "model.converters=[\"float8\"]",
      "parallelism.tensor_parallel_degree=2"},
     0,
     2},
    {"135M",
     "A model of the size of SmolLM2 135M, bf16, 8 rows of 2048 tokens; before: without a graph "
     "(`device.graphs = false`)",
     false,
     {"model.dim=576", "model.n_layers=30", "model.n_heads=9", "model.n_kv_heads=3",
      "model.ffn_hidden=1536", "model.vocab_size=49152", "model.tie_embeddings=true",
      BATCH("8", "2048"), BFLOAT16, KEEP_ALL, "device.graphs=true"},
     2,
     0},
};

static struct budget *counted; /* NULL: nothing is counted now */
static const struct budget_hooks *current_hooks;
struct budget_row *budget_current;

static struct budget_kernel *find_kernel(struct budget_row *row, const char *name)
{
    struct budget_kernel *k = row->kernels;
    for (; k < row->kernels + row->num_kernels; k++)
        if (!strcmp(k->name, name)) return k;
    BUG_IF(row->num_kernels == BUDGET_KERNELS);
    row->num_kernels++;
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

/* "(gemm_kernel<T, 4>)" to "gemm_kernel". */
static void base_name(const char *kernel, char name[48])
{
    kernel += *kernel == '(';
    snprintf(name, 48, "%.*s", (int)strcspn(kernel, "<)"), kernel);
}

static void on_work(enum emulator_work work, const char *kernel, size_t bytes)
{
    char name[48];
    struct budget_row *row = budget_current;
    if (work == EMULATOR_WAIT) {
        row->waits++;
        return;
    }
    static const char *const names[] = {
        [EMULATOR_COPY] = "copy", [EMULATOR_MEMSET] = "memset", [EMULATOR_GRAPH] = "graph"};
    base_name(work == EMULATOR_KERNEL ? kernel : names[work], name);
    find_kernel(row, name)->launches++;
    if (work == EMULATOR_KERNEL && current_hooks && current_hooks->launch) current_hooks->launch();
    if (work == EMULATOR_GRAPH) return;
    if (work != EMULATOR_KERNEL) row->written += bytes;
    if (work == EMULATOR_COPY) row->read += bytes;
    if (work != EMULATOR_KERNEL && budget_current == &counted->rows[OP_COUNT])
        row->model += (double)bytes * (work == EMULATOR_COPY ? 2 : 1);
}

static void begin_call(const struct op_call *c)
{
    struct op_work w;
    budget_current = &counted->rows[c->op];
    op_work(c, &w);
    budget_current->calls++;
    budget_current->model += w.bytes;
}

#define OP(name, what_type, io_type)                                                               \
    static enum status count_##name(const struct what_type *what, const struct io_type *io,        \
                                    struct queue *queue)                                           \
    {                                                                                              \
        if (counted) begin_call(&(struct op_call){.op = OP_##name, .what.name = *what});           \
        enum status st = gpu_emu32_ops.name(what, io, queue);                                      \
        if (counted) budget_current = &counted->rows[OP_COUNT];                                    \
        return st;                                                                                 \
    }
#include "ops/ops.def"
#undef OP

static struct ops counting_ops(void)
{
    struct ops ops = gpu_emu32_ops;
#define OP(name, what, io) ops.name = count_##name;
#include "ops/ops.def"
#undef OP
    return ops;
}

static void fill_batch(struct batch *b, int V)
{
    size_t tokens = (size_t)b->B * (size_t)b->T;
    for (size_t n = 0; n < tokens; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, 0, n);
        b->labels_BT[n] = (b->ids_BT[n] * 7 + 3) % V;
        b->start_BT[n] = 0, b->end_BT[n] = b->T;
    }
    b->valid = (int64_t)tokens;
}

static enum status count_step(struct trainer *t, const struct budget_case *c,
                              const struct budget_hooks *hooks, struct budget *out)
{
    struct step_result result;
    fill_batch(&t->batch, t->shape.V);
    for (int i = 0; i < c->warmup; i++) TRY(trainer_train_batch(t, &result));
    counted = out, budget_current = &out->rows[OP_COUNT], current_hooks = hooks;
    if (hooks && hooks->begin) hooks->begin(t);
    emulator_observe(on_work);
    enum status st = trainer_train_batch(t, &result);
    emulator_observe(NULL);
    if (hooks && hooks->end) hooks->end();
    counted = NULL, budget_current = NULL;
    TRY(st);
    BUG_IF(result.skipped);
    return STATUS_OK;
}

/* --- ranks that do what this one does --- */

enum { MAX_RANKS = 8, MAX_GATHERED = 1 << 12 };

static enum status move_nothing(const struct comm *c, struct transfer *t)
{
    (void)c, (void)t;
    return STATUS_OK;
}

static enum status wait_for_nothing(struct transfer *t)
{
    (void)t;
    return STATUS_OK;
}

static enum status repeat_own(const struct comm *c, const void *mine, size_t bytes,
                              const void **all)
{
    static char parts[MAX_RANKS * MAX_GATHERED];
    BUG_IF(c->size > MAX_RANKS || bytes > MAX_GATHERED);
    for (int r = 0; r < c->size; r++) memcpy(parts + (size_t)r * bytes, mine, bytes);
    *all = parts;
    return STATUS_OK;
}

static enum status split_off(const struct comm *c, int color, int key, struct comm *out)
{
    (void)c, (void)color, (void)key;
    *out = *comm_self();
    return STATUS_OK;
}

static void release_nothing(struct comm *c) { (void)c; }

static enum status imitate_ranks(struct machine *m, const struct config *c, int num_ranks)
{
    static const struct transport imitation = {.name = "imitation",
                                               .split = split_off,
                                               .release = release_nothing,
                                               .start = move_nothing,
                                               .wait = wait_for_nothing,
                                               .gather = repeat_own};
    TRY(mesh_resolve(&m->mesh, &c->parallelism, 0, num_ranks));
    groups_close(&m->groups);
    groups_init_simulated(&m->groups, &m->mesh);
    for (int g = 0; g < GROUP_COUNT; g++) m->groups.of[g].transport = &imitation;
    m->world = m->groups.of[GROUP_world];
    return STATUS_OK;
}

enum status budget_count(const struct budget_case *c, const struct budget_hooks *hooks,
                         struct budget *out)
{
    struct config config = {0};
    struct model_shape shape;
    struct machine m = {0};
    struct trainer t = {0};
    const struct ops ops = counting_ops();
    int settings = 0;
    enum status st = STATUS_OK;
    while (settings < BUDGET_SETTINGS && c->settings[settings]) settings++;
    *out = (struct budget){0};
    emulator_set_dry(!c->executes);
    emulator_set_relaxed(true); /* each operation's work is executed while it is counted */
    TRY_OUT(machine_alone(&m));
    TRY_OUT(gpu_emu32_open(&m.queue, 0));
    ((struct gpu_queue *)m.queue)->native_fp8 = true;
    m.ops = &ops;
    TRY_OUT(config_load(&config, NULL, c->settings, settings));
    if (c->num_ranks) TRY_OUT(imitate_ranks(&m, &config, c->num_ranks));
    TRY_OUT(model_shape_resolve(&shape, &config.model, 0));
    if (shape.max_context < config.training.seq_len)
        shape.max_context = (int)config.training.seq_len;
    TRY_OUT(trainer_open(&t, &config, &shape, &m));
    if (c->executes) TRY_OUT(trainer_init_weights(&t, 1));
    TRY_OUT(trainer_sync_weights(&t));
    TRY_OUT(count_step(&t, c, hooks, out));
out:
    trainer_close(&t);
    gpu_emu32_close(m.queue);
    groups_close(&m.groups);
    config_release(&config);
    emulator_set_relaxed(false);
    emulator_set_dry(false);
    return st;
}

/* --- tables --- */

uint64_t budget_launches(const struct budget_row *row)
{
    uint64_t sum = 0;
    for (int i = 0; i < row->num_kernels; i++) sum += row->kernels[i].launches;
    return sum;
}

static const char *row_name(size_t row) { return row < OP_COUNT ? op_name(row) : "outside"; }

static bool is_counted(const struct budget_row *row) { return row->calls || row->num_kernels; }

static struct budget_row total_of(const struct budget *b)
{
    struct budget_row sum = {.num_kernels = 1};
    for (size_t i = 0; i <= OP_COUNT; i++) {
        const struct budget_row *r = &b->rows[i];
        sum.calls += r->calls, sum.waits += r->waits, sum.model += r->model;
        sum.read += r->read, sum.written += r->written, sum.requested += r->requested;
        sum.kernels[0].launches += budget_launches(r);
    }
    return sum;
}

static void record_row(const char *name, const char *row, const struct budget_row *r,
                       struct text *out)
{
    text_addf(out, "%s|%s|%llu|%.0f|%llu|%llu\n", name, row, (unsigned long long)budget_launches(r),
              r->model, (unsigned long long)(r->read + r->written), (unsigned long long)r->waits);
}

void budget_record(const struct budget_case *c, const struct budget *b, struct text *out)
{
    struct budget_row total = total_of(b);
    for (size_t i = 0; i <= OP_COUNT; i++)
        if (is_counted(&b->rows[i])) record_row(c->name, row_name(i), &b->rows[i], out);
    record_row(c->name, "total", &total, out);
}

/* What a recorded row holds. */
struct recorded {
    unsigned long long launches, moved, waits;
    double model;
};

/* Returns false if the record has no such row. */
static bool find_recorded(const char *record, const char *name, const char *row, struct recorded *r)
{
    char key[96];
    int length = snprintf(key, sizeof key, "%s|%s|", name, row);
    for (const char *at = record; at && *at; at = strchr(at, '\n'), at += at ? 1 : 0)
        if (!strncmp(at, key, (size_t)length))
            return sscanf(at + length, "%llu|%lf|%llu|%llu", &r->launches, &r->model, &r->moved,
                          &r->waits) == 4;
    *r = (struct recorded){0};
    return false;
}

static void add_kernels(const struct budget_row *r, struct text *out)
{
    for (int i = 0; i < r->num_kernels; i++) {
        size_t length = strlen(r->kernels[i].name), suffix = strlen("_kernel");
        bool named = length > suffix && !strcmp(r->kernels[i].name + length - suffix, "_kernel");
        text_addf(out, "%s%.*s", i ? ", " : "", (int)(named ? length - suffix : length),
                  r->kernels[i].name);
        if (r->kernels[i].launches != r->calls)
            text_addf(out, " %llu", (unsigned long long)r->kernels[i].launches);
    }
}

static void add_row(const struct budget_case *c, const char *name, const struct budget_row *r,
                    const struct recorded *old, struct text *out)
{
    double unit = c->executes ? 1e6 : 1e9;
    text_addf(out, "| %s | ", name);
    if (strcmp(name, "total") != 0) add_kernels(r, out);
    if (r->calls)
        text_addf(out, " | %llu", (unsigned long long)r->calls);
    else
        text_adds(out, " | ");
    text_addf(out, " | %llu | %llu | %.2f | %.2f", old->launches,
              (unsigned long long)budget_launches(r), old->model / unit, r->model / unit);
    if (c->executes) {
        double moved = (double)(r->read + r->written);
        text_addf(out, " | %.2f | %.2f | %.2f", (double)old->moved / unit, (double)r->read / unit,
                  (double)r->written / unit);
        if (r->requested && r->calls && strcmp(name, "total") != 0)
            text_addf(out, " | %.2f | %.2f", moved / r->model, (double)r->requested / moved);
        else
            text_adds(out, " |  | ");
    }
    text_adds(out, " |\n");
}

void budget_print(const struct budget_case *c, const struct budget *b, const char *before,
                  struct text *out)
{
    struct budget_row total = total_of(b);
    struct recorded old;
    const char *unit = c->executes ? "MB" : "GB";
    text_addf(out, "## %s\n\n%s.\n\n", c->name, c->description);
    text_addf(
        out, "| operation | kernels | calls | launches before | now | %s by the model before | now",
        unit);
    if (c->executes)
        text_adds(out, " | MB counted before | MB read now | MB written | counted / model | "
                       "requested / counted");
    text_adds(out, " |\n|---|---|---|---|---|---|---");
    text_adds(out, c->executes ? "|---|---|---|---|---|\n" : "|\n");
    for (size_t i = 0; i <= OP_COUNT; i++) {
        const struct budget_row *r = &b->rows[i];
        bool was = find_recorded(before, c->name, row_name(i), &old);
        if (was || is_counted(r)) add_row(c, row_name(i), r, &old, out);
    }
    find_recorded(before, c->name, "total", &old);
    add_row(c, "total", &total, &old, out);
    text_addf(out, "\nThe host waits for the device %llu times a step; before, %llu.\n\n",
              (unsigned long long)total.waits, old.waits);
}
