// SPDX-License-Identifier: Apache-2.0
#include "base/activity.h"
#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weights_source.h"
#include "model/value_check.h"
#include "tensor/element.h"
#include "tensor/queue.h"

#include <stdlib.h>

/* Checks what was just read of a tensor: elements [run->first, run->first + n). */
static enum status check_values(const struct tensor_origins *o, const struct shard_run *run,
                                enum value_kind kind, enum dtype dtype, const void *x)
{
    size_t bad = value_check_find(kind, dtype, x, run->count);
    if (bad == run->count) return STATUS_OK;
    float value = dtype == F32 ? ((const float *)x)[bad] : bf16_to_f32(((const bf16 *)x)[bad]);
    return value_check_fail(STATUS_DATA, o->files->folder,
                            &(struct bad_element){.kind = kind,
                                                  .tensor = &o->layout->tensors[run->tensor],
                                                  .element = run->first + bad,
                                                  .value = (double)value});
}

enum { CHUNK = 1 << 18 }; /* elements that are read at a time */

/* A flat buffer that is being loaded.  `values`: f32 that a chunk passes through; NULL: it is read
 * in place. */
struct destination {
    enum value_kind kind;
    struct store store;
    float *values;
};

/* Reads a run of this rank's shard, and checks the values while they are in the cache. */
static enum status read_run(struct tensor_origins *o, const struct shard_run *p,
                            const struct destination *d)
{
    const struct store *to = &d->store;
    enum dtype dtype = d->values ? F32 : to->dtype;
    for (size_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < CHUNK ? p->count - done : CHUNK;
        struct shard_run part = {p->tensor, p->first + done, n, p->at + done};
        void *x = d->values ? d->values : element(to->x, part.at, dtype);
        TRY(tensor_reader_read(&o->readers[p->tensor], part.first, n, dtype, x));
        TRY(check_values(o, &part, d->kind, dtype, x));
        if (d->values) TRY(store_write(to, part.at, n, d->values));
    }
    return STATUS_OK;
}

/* Fills this rank's shard of the tensors that have an origin in the files.  What a GPU copies is
 * read into pinned memory.  In host memory only INT8 passes through scratch. */
static enum status load_buffer(struct tensor_origins *o, const struct shard *shard,
                               enum value_kind kind, struct store flat)
{
    const struct allocator *shared = queue_shared_allocator(flat.queue);
    struct destination d = {.kind = kind, .store = flat};
    struct arena memory = {0};
    struct tensor_reader *last = NULL;
    enum status st = STATUS_OK;
    size_t scratch = flat.dtype == INT8 || (shared && flat.dtype != F32) ? STORE_SCRATCH_BYTES : 0;
    if (shared || flat.low || flat.dtype == INT8) {
        TRY_OUT(arena_init(&memory, CHUNK * sizeof *d.values + scratch, shared));
        d.values = arena_alloc(&memory, CHUNK, sizeof *d.values);
        if (scratch) d.store.scratch = arena_alloc(&memory, scratch, 1);
    }
    for (size_t i = 0; i < shard->count; i++) {
        const struct shard_run *p = &shard->runs[i];
        struct tensor_reader *r = &o->readers[p->tensor];
        if (!tensor_reader_is_open(r)) continue;
        if (last && last != r) tensor_reader_close(last);
        last = r;
        TRY_OUT(read_run(o, p, &d));
        activity_tick_io();
    }
    if (last) tensor_reader_close(last);
out:
    arena_release(&memory);
    return st;
}

static enum status load_moment(const struct model_files *files, const struct checkpoint_state *s,
                               enum tensor_kind kind, const struct tensor_rules *rules)
{
    struct tensor_origins o;
    bool is_first = kind == TENSOR_EXP_AVG;
    struct store to = is_first ? checkpoint_exp_avg(s) : checkpoint_exp_avg_sq(s);
    TRY(tensor_origins_find(&o, files, s->layout, tensor_name_suffix(kind), rules));
    enum status st = load_buffer(&o, s->shard, is_first ? VALUE_EXP_AVG : VALUE_EXP_AVG_SQ, to);
    tensor_origins_release(&o);
    return st;
}

/* Loads the weights' moving average, if the folder has it. */
static enum status load_ema(const char *folder, const struct checkpoint_state *s,
                            const struct tensor_rules *rules, bool *found)
{
    struct model_files files;
    struct tensor_origins o = {0};
    TRY(model_files_open_ema(&files, folder));
    enum status st = STATUS_OK;
    *found = !model_files_are_empty(&files);
    if (!*found) goto out;
    TRY_OUT(tensor_origins_find(&o, &files, s->layout, "", rules));
    TRY_OUT(load_buffer(&o, s->shard, VALUE_EMA, checkpoint_ema(s)));
out:
    tensor_origins_release(&o);
    model_files_close(&files);
    return st;
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

enum status checkpoint_check_native(const char *folder, const struct comm *world, bool *native)
{
    int64_t answer = 0;
    enum status st = world->rank == 0 ? find_manifest(folder, &answer) : STATUS_OK;
    TRY(comm_agree(world, st));
    TRY(comm_broadcast_bytes(world, 0, &answer, sizeof answer));
    *native = answer;
    if (!*native) return STATUS_OK;
    st = manifest_verify_part(folder, world->rank, world->size);
    TRY(comm_agree(world, st));
    return STATUS_OK;
}

/* Loads moments and training state.  Torch files without moments have neither. */
static enum status load_training_state(const char *folder, const struct checkpoint_state *state,
                                       bool native, const struct tensor_rules *rules,
                                       struct checkpoint_found *found)
{
    struct model_files moments = {0};
    struct torch_state torch;
    enum status st = STATUS_OK;
    torch_state_init(&torch);
    if (!native && nxdt_files_have_optimizer(folder))
        FAIL_OUT(UNSUPPORTED,
                 "%s: NxD Training's optimizer state (ZeRO-1 shards in optim/) is not supported: "
                 "load only the weights with checkpoint.initial_load_model_only=true",
                 folder);
    TRY_OUT(model_files_open_moments_any(&moments, folder, state->shape, &torch));
    found->has_moments = !model_files_are_empty(&moments);
    if (!native && !found->has_moments) goto out;
    TRY_OUT(load_state(folder, &torch, found));
    if (!native && state->world->rank == 0) torch_state_log(&torch, folder);
    if (!state->exp_avg || !found->has_moments ||
        tensor_origins_excludes(rules->exclude, "optimizer"))
        goto out;
    TRY_OUT(load_moment(&moments, state, TENSOR_EXP_AVG, rules));
    TRY_OUT(load_moment(&moments, state, TENSOR_EXP_AVG_SQ, rules));
    if (state->ema) TRY_OUT(load_ema(folder, state, rules, &found->has_ema));
out:
    torch_state_release(&torch);
    model_files_close(&moments);
    return st;
}

/* Whether a run resumes with all of its tensors, which is not worth a line of the log. */
static bool is_resumed_whole(const struct weights_source *o, const struct checkpoint_state *s)
{
    return s->exp_avg && tensor_origins_count(&o->origins, ORIGIN_FILE) == s->layout->num_tensors;
}

/* On this rank alone. */
static enum status load_on_rank(const char *folder, const struct checkpoint_state *state,
                                bool native, const struct load_rules *rules,
                                struct checkpoint_found *found)
{
    struct weights_source o;
    enum status st = STATUS_OK;
    bool log = state->world->rank == 0; /* one line is enough */
    TRY_OUT(weights_source_open(&o, folder, state, rules, log));
    if (log && rules && !is_resumed_whole(&o, state)) weights_source_log(&o);
    TRY_OUT(weights_source_check_head(&o));
    TRY_OUT(load_buffer(&o.origins, state->shard, VALUE_WEIGHT, checkpoint_weights(state)));
    if (native || state->exp_avg)
        TRY_OUT(load_training_state(folder, state, native, &o.rules, found));
out:
    weights_source_close(&o);
    return st;
}

enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct load_rules *rules, struct checkpoint_found *found)
{
    bool native;
    *found = (struct checkpoint_found){0};
    TRY(checkpoint_check_native(folder, state->world, &native));
    enum status st = comm_agree(state->world, load_on_rank(folder, state, native, rules, found));
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
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
    if (!st) st = weights_source_check_head(&o);
    weights_source_close(&o);
    return st;
}

enum status checkpoint_read_state(const char *folder, const struct checkpoint_state *state,
                                  struct checkpoint_found *found)
{
    const struct tensor_rules rules = {0};
    const struct checkpoint_state only = {.shape = state->shape, .world = state->world};
    *found = (struct checkpoint_found){0};
    enum status st = load_training_state(folder, &only, true, &rules, found);
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

static enum status load_weights_on_rank(const char *folder, const struct checkpoint_state *state,
                                        enum dtype dtype, void *weights)
{
    struct weights_source o;
    struct store to = {.x = weights, .dtype = dtype, .queue = state->queue};
    enum status st = weights_source_open(&o, folder, state, NULL, state->world->rank == 0);
    if (!st) st = load_buffer(&o.origins, state->shard, VALUE_WEIGHT, to);
    weights_source_close(&o);
    return st;
}

enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights)
{
    TRY(checkpoint_check_native(folder, state->world, &(bool){false}));
    TRY(comm_agree(state->world, load_weights_on_rank(folder, state, dtype, weights)));
    return STATUS_OK;
}

static enum status check_tensor(const char *folder, struct model_tensor *t, float *chunk,
                                size_t size)
{
    static const enum value_kind kinds[] = {[TENSOR_WEIGHT] = VALUE_WEIGHT,
                                            [TENSOR_EXP_AVG] = VALUE_EXP_AVG,
                                            [TENSOR_EXP_AVG_SQ] = VALUE_EXP_AVG_SQ};
    enum value_kind kind = kinds[tensor_name_kind(t->is.name)];
    enum status st = STATUS_OK;
    for (uint64_t at = 0, n, bad; at < t->is.elements && !st; at += n) {
        n = t->is.elements - at < size ? t->is.elements - at : size;
        TRY_OUT(tensor_reader_read(&t->reader, at, n, F32, chunk));
        bad = value_check_find(kind, F32, chunk, n);
        if (bad < n)
            st = value_check_fail(STATUS_DATA, folder,
                                  &(struct bad_element){.kind = kind,
                                                        .name = t->is.name,
                                                        .element = at + bad,
                                                        .value = (double)chunk[bad]});
    }
out:
    tensor_reader_close(&t->reader);
    return st;
}

enum status checkpoint_check_values(const char *folder, bool moments)
{
    struct model_files files;
    float *chunk = heap(CHUNK * sizeof *chunk);
    enum status st = STATUS_OK;
    for (int part = 0; part < (moments ? 1 : 2) && !st; part++) {
        st = part      ? model_files_open_ema(&files, folder)
             : moments ? model_files_open_moments(&files, folder)
                       : model_files_open(&files, folder);
        for (size_t i = 0; !st && i < model_files_num_tensors(&files); i++) {
            struct model_tensor t = model_files_tensor(&files, i);
            st = check_tensor(folder, &t, chunk, CHUNK);
        }
        model_files_close(&files);
    }
    free(chunk);
    return st;
}

enum status checkpoint_verify(const char *folder)
{
    TRY(manifest_verify(folder, NULL));
    TRY(checkpoint_check_values(folder, false));
    TRY(checkpoint_check_values(folder, true));
    return STATUS_OK;
}
