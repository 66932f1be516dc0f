// SPDX-License-Identifier: Apache-2.0
#include "base/activity.h"
#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/chunk_reader.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weights_source.h"
#include "model/value_check.h"
#include "tensor/element.h"
#include "tensor/queue.h"

#include <stdlib.h>

enum {
    VALUES = 4 << 20, /* elements that pass through `values` at a time */
    PART = 1 << 16,   /* elements that a thread reads from a mapped file at a time */
    MAX_RUNS = 8,     /* of a tensor; more are too short for reads of their own */
};

/* A flat buffer that is being loaded.  `is_staged`: f32 passes through `values` into it; else it is
 * read in place. */
struct destination {
    enum value_kind kind;
    struct store store;
    bool is_staged;
};

/* How the elements are read. */
static enum dtype read_dtype(const struct destination *d)
{
    return d->is_staged ? F32 : d->store.dtype;
}

/* A run of this rank's shard, and where it is in the files. */
struct extent {
    size_t index; /* of the file in the chunk reader */
    uint64_t offset;
    const struct safetensors *file;
    const struct safetensors_tensor *tensor;
    const struct destination *destination;
    struct shard_run run;
};

/* A load on one rank.  Runs are collected, sorted by their place in the files, and read. */
struct loading {
    const char *folder;
    const struct checkpoint_state *state; /* what is loaded */
    const struct layout *layout;
    struct chunk_reader reader;
    struct destination to[VALUE_KINDS];
    bool excludes_moments;
    bool is_quiet;          /* logs nothing about the state of other programs' checkpoints */
    struct extent *extents; /* owned, as is all that follows */
    size_t num_extents;
    struct model_files moments, ema;
    struct arena values_memory, scratch_memory;
    float *values; /* pinned if a GPU copies from them */
    void *scratch;
    struct failure bad_value; /* the first; checksums come before it, as they say why */
};

static enum status loading_open(struct loading *l, const char *folder,
                                const struct checkpoint_state *s, bool native)
{
    *l = (struct loading){.folder = folder, .state = s, .layout = s->layout};
    TRY(chunk_reader_open(&l->reader, folder, native, s->world));
    return STATUS_OK;
}

static void loading_close(struct loading *l)
{
    arena_release(&l->values_memory);
    arena_release(&l->scratch_memory);
    model_files_close(&l->moments);
    model_files_close(&l->ema);
    free(l->extents);
    chunk_reader_close(&l->reader);
}

/* Notes a bad value of a run. */
static void save_bad_value(struct loading *l, const struct shard_run *run,
                           const struct value_check *check)
{
    const struct bad_element element = {.kind = check->kind,
                                        .tensor = &l->layout->tensors[run->tensor],
                                        .element = run->first + check->element,
                                        .value = check->value};
    if (check->is_bad && !l->bad_value.status)
        status_save(&l->bad_value, value_check_fail(STATUS_DATA, l->folder, &element));
}

/* Elements of an extent that are read at once, into x. */
struct extent_read {
    const struct extent *extent;
    void *x;
    struct value_check check;
};

static void convert(enum safetensors_dtype from, const void *bytes, size_t n, enum dtype dtype,
                    void *x)
{
    enum { BATCH = 4096 };
    float batch[BATCH];
    if (dtype == F32) {
        safetensors_to_f32(from, bytes, n, x);
        return;
    }
    for (size_t at = 0; at < n; at += BATCH) {
        size_t len = n - at < BATCH ? n - at : BATCH;
        safetensors_to_f32(from, (const unsigned char *)bytes + at * safetensors_dtype_bytes(from),
                           len, batch);
        safetensors_from_f32(batch, len, SAFETENSORS_BF16, (bf16 *)x + at);
    }
}

/* Converts a part, and checks the values while they are in the cache. */
static void convert_part(void *context, uint64_t at, const void *bytes, size_t len)
{
    struct extent_read *read = context;
    enum dtype dtype = read->check.dtype;
    enum safetensors_dtype from = read->extent->tensor->dtype;
    size_t first = at / safetensors_dtype_bytes(from), n = len / safetensors_dtype_bytes(from);
    void *x = element(read->x, first, dtype);
    if (x != bytes) convert(from, bytes, n, dtype, x);
    value_check_part(&read->check, first, x, n);
}

/* Reads `run`, a part of the extent's. */
static enum status read_run(struct loading *l, const struct extent *e, const struct shard_run *run)
{
    const struct destination *d = e->destination;
    enum dtype dtype = read_dtype(d);
    struct extent_read read = {.extent = e, .check = {.kind = d->kind, .dtype = dtype}};
    enum safetensors_dtype from = e->tensor->dtype;
    size_t each = safetensors_dtype_bytes(from);
    bool is_direct = from == (dtype == F32 ? SAFETENSORS_F32 : SAFETENSORS_BF16);
    read.x = d->is_staged ? l->values : element(d->store.x, run->at, dtype);
    const struct chunk_target target = {is_direct ? read.x : NULL, convert_part, &read};
    uint64_t offset = e->offset + (run->first - e->run.first) * each;
    enum status st = chunk_reader_read(&l->reader, e->index, offset, run->count * each, &target);
    TRY(file_map_check_after(&e->file->map, st));
    save_bad_value(l, run, &read.check);
    if (d->is_staged) TRY(store_write(&d->store, run->at, run->count, l->values));
    return STATUS_OK;
}

static enum status read_extent(struct loading *l, const struct extent *e)
{
    size_t most = e->destination->is_staged ? VALUES : CHUNK_READER_MOST / sizeof(double);
    for (size_t done = 0, n; done < e->run.count; done += n) {
        n = e->run.count - done < most ? e->run.count - done : most;
        const struct shard_run part = {e->run.tensor, e->run.first + done, n, e->run.at + done};
        TRY(read_run(l, e, &part));
    }
    return STATUS_OK;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->index != y->index) return x->index < y->index ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* In the files' order, so that the checksum of a chunk with the end of one tensor and the beginning
 * of another is known, too. */
static enum status read_extents(struct loading *l)
{
    if (l->num_extents) qsort(l->extents, l->num_extents, sizeof *l->extents, compare_extents);
    for (size_t i = 0; i < l->num_extents; i++) TRY(read_extent(l, &l->extents[i]));
    return STATUS_OK;
}

static void add_extent(struct loading *l, const struct extent *tensor, const struct shard_run *run)
{
    l->extents = heap_grow(l->extents, l->num_extents + 1, sizeof *l->extents);
    struct extent *e = &l->extents[l->num_extents++];
    *e = *tensor;
    e->offset += run->first * safetensors_dtype_bytes(e->tensor->dtype);
    e->run = *run;
}

/* Elements [at, at + count) of the flat buffer, into which runs are read that follow each other
 * there. */
struct mapped_window {
    const struct tensor_reader *reader;
    const struct shard_run *runs;
    size_t num_runs, at, count;
    enum dtype dtype;
    void *x;                  /* of element `at` */
    struct value_check check; /* counts elements from `at` */
};

/* Reads elements [at, end) of the flat buffer. */
static enum status read_mapped_part(struct mapped_window *w, struct tensor_reader *r, size_t at,
                                    size_t end)
{
    for (size_t i = 0; i < w->num_runs && at < end; i++) {
        const struct shard_run *p = &w->runs[i];
        if (p->at + p->count <= at) continue;
        size_t n = p->at + p->count < end ? p->at + p->count - at : end - at;
        void *x = element(w->x, at - w->at, w->dtype);
        TRY(tensor_reader_read(r, p->first + (at - p->at), n, w->dtype, x));
        value_check_part(&w->check, at - w->at, x, n);
        at += n;
    }
    return STATUS_OK;
}

/* Each thread reads from a mapped file, of any format. */
static enum status read_window(struct mapped_window *w)
{
    struct failure failure = {0};
    size_t num_parts = (w->count + PART - 1) / PART;
#pragma omp parallel if (num_parts > 1)
    {
        struct tensor_reader own = *w->reader; /* for the pages that this thread read */
#pragma omp for schedule(static)
        for (size_t i = 0; i < num_parts; i++) {
            size_t at = w->at + i * PART, end = w->at + w->count;
            enum status st = read_mapped_part(w, &own, at, end - at < PART ? end : at + PART);
#pragma omp critical(read_window)
            status_save(&failure, st);
        }
        tensor_reader_close(&own);
    }
    return status_restore(&failure);
}

/* The run that has element `at` of the flat buffer. */
static struct shard_run find_run(const struct mapped_window *w, size_t at)
{
    const struct shard_run *p = w->runs;
    while (p->at + p->count <= at) p++;
    return *p;
}

/* Reads runs that follow each other in the flat buffer: a matrix that tensor parallelism divides by
 * columns has one for each row, and a GPU should not copy every row by itself. */
static enum status read_adjacent(struct loading *l, const struct tensor_reader *r,
                                 const struct shard_run *runs, size_t num_runs,
                                 const struct destination *d)
{
    const struct shard_run *last = &runs[num_runs - 1];
    struct mapped_window w = {.reader = r, .runs = runs, .num_runs = num_runs};
    size_t end = last->at + last->count;
    w.dtype = read_dtype(d);
    for (w.at = runs->at; w.at < end; w.at += w.count) {
        w.count = end - w.at < VALUES ? end - w.at : VALUES;
        w.x = d->is_staged ? l->values : element(d->store.x, w.at, w.dtype);
        w.check = (struct value_check){.kind = d->kind, .dtype = w.dtype};
        TRY(read_window(&w));
        if (w.check.is_bad) {
            size_t bad = w.at + w.check.element;
            struct shard_run run = find_run(&w, bad);
            w.check.element = bad - run.at;
            save_bad_value(l, &run, &w.check);
        }
        if (d->is_staged) TRY(store_write(&d->store, w.at, w.count, l->values));
    }
    return STATUS_OK;
}

static enum status read_mapped(struct loading *l, const struct tensor_reader *r,
                               const struct shard_run *runs, size_t num_runs,
                               const struct destination *d)
{
    for (size_t i = 0, end; i < num_runs; i = end) {
        for (end = i + 1; end < num_runs; end++)
            if (runs[end].at != runs[end - 1].at + runs[end - 1].count) break;
        TRY(read_adjacent(l, r, &runs[i], end - i, d));
    }
    return STATUS_OK;
}

/* What a GPU copies is read into pinned memory.  In host memory only INT8 needs scratch. */
static enum status alloc_values(struct loading *l, struct destination *d)
{
    const struct store *s = &d->store;
    const struct allocator *shared = queue_shared_allocator(s->queue);
    d->is_staged = shared || s->low || s->dtype == INT8;
    if (d->is_staged && !l->values) {
        TRY(arena_init(&l->values_memory, VALUES * sizeof *l->values, shared));
        l->values = arena_alloc(&l->values_memory, VALUES, sizeof *l->values);
    }
    bool needs_scratch = s->dtype == INT8 || (shared && s->dtype != F32);
    if (needs_scratch && !l->scratch) {
        TRY(arena_init(&l->scratch_memory, STORE_SCRATCH_BYTES, shared));
        l->scratch = arena_alloc(&l->scratch_memory, STORE_SCRATCH_BYTES, 1);
    }
    if (needs_scratch) d->store.scratch = l->scratch;
    return STATUS_OK;
}

/* Reads this rank's shard of the tensors that have an origin in the files, or adds it to the
 * extents; `o` may be released then, but the files stay open. */
static enum status load_buffer(struct loading *l, const struct tensor_origins *o,
                               enum value_kind kind, struct store flat)
{
    struct destination *d = &l->to[kind];
    const struct shard *shard = checkpoint_shard(l->state, kind);
    *d = (struct destination){.kind = kind, .store = flat};
    TRY(alloc_values(l, d));
    for (size_t f = 0, file; f < o->files->count; f++) /* all ranks note the same files */
        chunk_reader_use(&l->reader, o->files->files[f].path, o->files->files[f].map.size, &file);
    for (size_t i = 0, end; i < shard->count; i = end) {
        const struct shard_run *p = &shard->runs[i];
        struct tensor_reader *r = &o->readers[p->tensor];
        struct extent tensor = {.file = r->file, .tensor = r->tensor, .destination = d};
        for (end = i + 1; end < shard->count && shard->runs[end].tensor == p->tensor; end++) {
        }
        if (!tensor_reader_is_open(r)) continue;
        bool is_mapped =
            end - i > MAX_RUNS || !chunk_reader_find(&l->reader, r, &tensor.index, &tensor.offset);
        if (is_mapped) TRY(read_mapped(l, r, p, end - i, d));
        for (size_t k = i; k < end && !is_mapped; k++) add_extent(l, &tensor, &shard->runs[k]);
        activity_tick_io();
    }
    return STATUS_OK;
}

/* Finds the tensors of a kind other than the weights, and loads them. */
static enum status load_kind(struct loading *l, const struct model_files *files,
                             enum value_kind kind, struct store to,
                             const struct tensor_rules *rules)
{
    struct tensor_origins o;
    const char *suffix = kind == VALUE_EMA       ? ""
                         : kind == VALUE_EXP_AVG ? tensor_name_suffix(TENSOR_EXP_AVG)
                                                 : tensor_name_suffix(TENSOR_EXP_AVG_SQ);
    TRY(tensor_origins_find(&o, files, l->layout, suffix, rules));
    enum status st = load_buffer(l, &o, kind, to);
    tensor_origins_release(&o);
    return st;
}

/* Loads the weights' moving average, if the folder has it. */
static enum status load_ema(struct loading *l, const struct checkpoint_state *s,
                            const struct tensor_rules *rules, bool *found)
{
    TRY(model_files_open_ema(&l->ema, l->folder));
    *found = !model_files_are_empty(&l->ema);
    if (*found) TRY(load_kind(l, &l->ema, VALUE_EMA, checkpoint_ema(s), rules));
    return STATUS_OK;
}

/* Reads step and trainer's state from state.json, or from torch files. */
static enum status load_state(const char *folder, const struct torch_state *torch,
                              struct checkpoint_found *found)
{
    TRY(torch_state_or_file(torch, folder, &found->state));
    TRY(json_get_int(found->state, "step", 0, JSON_MAX_INT, &found->step));
    const struct json *train = json_get(found->state, "train");
    found->train = json_is_object(train) ? train : NULL;
    return STATUS_OK;
}

/* A checkpoint of ours has a manifest. */
static enum status find_manifest(const char *folder, int64_t *native)
{
    char *manifest = file_join(folder, MANIFEST_NAME), *state = file_join(folder, "state.json");
    enum status st = STATUS_OK;
    *native = file_exists(manifest);
    if (!*native && file_exists(state))
        FAIL_OUT(DATA, "%s: incomplete checkpoint: %s is missing", folder, MANIFEST_NAME);
out:
    free(manifest), free(state);
    return st;
}

/* Rank 0 checks for a manifest, and broadcasts the result. */
static enum status agree_on_native(const char *folder, const struct comm *world, bool *native)
{
    int64_t answer = 0;
    TRY(comm_agree(world, world->rank ? STATUS_OK : find_manifest(folder, &answer)));
    TRY(comm_broadcast_bytes(world, 0, &answer, sizeof answer));
    *native = answer;
    return STATUS_OK;
}

enum status checkpoint_check_native(const char *folder, bool *native)
{
    TRY(agree_on_native(folder, comm_self(), native));
    if (*native) TRY(manifest_verify(folder, NULL));
    return STATUS_OK;
}

/* Loads moments, moving average and training state.  Torch files without moments have neither. */
static enum status load_training_state(struct loading *l, const struct checkpoint_state *state,
                                       bool native, const struct tensor_rules *rules,
                                       struct checkpoint_found *found)
{
    const char *folder = l->folder;
    struct torch_state torch;
    struct tensor_rules exp_avg_sq = *rules;
    enum status st = STATUS_OK;
    torch_state_init(&torch);
    if (!native && nxdt_files_have_optimizer(folder))
        FAIL_OUT(UNSUPPORTED,
                 "%s: NxD Training's optimizer state (ZeRO-1 shards in optim/) is not supported: "
                 "load only the weights with checkpoint.initial_load_model_only=true",
                 folder);
    TRY_OUT(model_files_open_moments_any(&l->moments, folder, state->shape, &torch));
    found->has_moments = !model_files_are_empty(&l->moments);
    bool log = state->world->rank == 0 && !l->is_quiet;
    if (!found->has_moments && log) torch_state_warn(&torch, folder);
    if (!native && !found->has_moments) goto out;
    if (!l->excludes_moments) TRY_OUT(torch_state_check_moments(&torch, folder));
    TRY_OUT(load_state(folder, &torch, found));
    if (!state->exp_avg || !found->has_moments) goto out;
    if (!l->excludes_moments) {
        TRY_OUT(load_kind(l, &l->moments, VALUE_EXP_AVG, checkpoint_exp_avg(state), rules));
        exp_avg_sq.omitted = state->first_moment_only;
        /* Another optimizer's may lack tensors: the caller rejects them all. */
        if (!exp_avg_sq.omitted && json_get(found->train, "optimizer")) exp_avg_sq.partial = true;
        TRY_OUT(
            load_kind(l, &l->moments, VALUE_EXP_AVG_SQ, checkpoint_exp_avg_sq(state), &exp_avg_sq));
    }
    if (!native && log) torch_state_log(&torch, folder, !l->excludes_moments);
    if (state->ema) TRY_OUT(load_ema(l, state, rules, &found->has_ema));
out:
    torch_state_release(&torch);
    return st;
}

/* Whether a run resumes with all of its tensors, which is not worth a line of the log. */
static bool is_resumed_whole(const struct weights_source *o, const struct checkpoint_state *s)
{
    return s->exp_avg && tensor_origins_count(&o->origins, ORIGIN_FILE) == s->layout->num_tensors;
}

/* Reads what is not read yet.  The end of a load on all ranks: `st` is that of its beginning. */
static enum status finish_load(struct loading *l, const struct comm *world, enum status st)
{
    if (!st) st = read_extents(l);
    TRY(comm_agree(world, st));
    TRY(chunk_reader_finish(&l->reader, world));
    TRY(comm_agree(world, status_restore(&l->bad_value)));
    return STATUS_OK;
}

/* Of a run's own checkpoint, too: its rules have only parts. */
static bool excludes_moments(const struct load_rules *rules)
{
    return rules && rules->exclude && option_list_contains(rules->exclude, "optimizer");
}

/* On this rank alone. */
static enum status load_on_rank(struct loading *l, struct weights_source *o,
                                const struct checkpoint_state *state,
                                const struct load_rules *rules, struct checkpoint_found *found)
{
    bool native = l->reader.has_checksums;
    bool log = state->world->rank == 0; /* one line is enough */
    l->excludes_moments = excludes_moments(rules);
    TRY(weights_source_open(o, l->folder, state, rules, log));
    if (log && rules && !is_resumed_whole(o, state)) weights_source_log(o);
    TRY(load_buffer(l, &o->origins, VALUE_WEIGHT, checkpoint_weights(state)));
    if (native || state->exp_avg) TRY(load_training_state(l, state, native, &o->rules, found));
    return STATUS_OK;
}

enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct load_rules *rules, struct checkpoint_found *found)
{
    struct loading l;
    struct weights_source o = {0};
    bool native;
    *found = (struct checkpoint_found){0};
    TRY(agree_on_native(folder, state->world, &native));
    enum status st = loading_open(&l, folder, state, native);
    if (!st) st = finish_load(&l, state->world, load_on_rank(&l, &o, state, rules, found));
    /* After the checksums: a head that is damaged differs, too. */
    if (!st) st = comm_agree(state->world, weights_source_check_head(&o));
    weights_source_close(&o);
    loading_close(&l);
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

/* A head that is damaged differs from the embedding, too. */
static enum status check_head(const struct weights_source *o, bool native)
{
    struct failure differs = {0};
    if (!status_save(&differs, weights_source_check_head(o))) return STATUS_OK;
    if (native) TRY(manifest_verify(o->folder, NULL));
    return status_restore(&differs);
}

enum status checkpoint_check_shapes(const char *folder, const struct checkpoint_state *state,
                                    const struct load_rules *rules, bool log)
{
    struct weights_source o;
    int64_t native, step;
    TRY(find_manifest(folder, &native));
    if (native) TRY(manifest_check(folder, &step));
    enum status st = weights_source_open(&o, folder, state, rules, log);
    if (!st && log) weights_source_log(&o);
    if (!st) st = check_head(&o, native);
    weights_source_close(&o);
    return st;
}

enum status checkpoint_read_state(const char *folder, const struct checkpoint_state *state,
                                  const struct load_rules *rules, bool log,
                                  struct checkpoint_found *found)
{
    const struct tensor_rules all = {0};
    const struct checkpoint_state only = {.shape = state->shape, .world = state->world};
    struct loading l = {.folder = folder, .is_quiet = !log, .reader = {.fd = -1}};
    int64_t native;
    *found = (struct checkpoint_found){0};
    l.excludes_moments = !rules || excludes_moments(rules);
    enum status st = find_manifest(folder, &native);
    if (!st) st = load_training_state(&l, &only, native, &all, found);
    loading_close(&l);
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights)
{
    const struct store to = {.x = weights, .dtype = dtype, .queue = state->queue};
    struct weights_source o = {0};
    struct loading l;
    bool native;
    TRY(agree_on_native(folder, state->world, &native));
    enum status st = loading_open(&l, folder, state, native);
    if (!st) {
        st = weights_source_open(&o, folder, state, NULL, state->world->rank == 0);
        if (!st) st = load_buffer(&l, &o.origins, VALUE_WEIGHT, to);
        st = finish_load(&l, state->world, st);
    }
    weights_source_close(&o);
    loading_close(&l);
    return st;
}
