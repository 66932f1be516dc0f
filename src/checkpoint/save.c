// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include "base/activity.h"
#include "base/arena.h"
#include "base/byte_size.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/content.h"
#include "checkpoint/copier.h"
#include "checkpoint/folder.h"
#include "checkpoint/staging.h"
#include "tensor/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct checkpointer {
    char *folder;
    int keep_latest_k, lock;
    bool async;
    struct staging staging;
    struct comm ranks;     /* the ranks that save */
    struct copier *copier; /* of rank 0; NULL: none */
    /* A pending save; the save thread owns these until it is joined. */
    bool running, is_inline; /* is_inline: no thread could be started, so it is already done */
    pthread_t thread;
    struct checkpoint_state state;
    struct text config_toml;
    struct failure failure; /* of the last save */
    double thread_s;        /* how long the save thread took; owned by it, too */
    double save_s;          /* the last save whose end is known */
};

enum { VALUES_BYTES = TENSOR_SOURCE_ELEMENTS * sizeof(float) };

/* Size of the buffers that convert a state to f32; 0: it is f32 in host memory.  In host memory
 * only INT8 passes through scratch. */
static size_t conversion_bytes(bool on_gpu, bool is_split, enum dtype moments)
{
    bool is_f32 = !is_split && moments == F32;
    if (is_f32 && !on_gpu) return 0;
    return VALUES_BYTES + (moments == INT8 || (on_gpu && !is_f32) ? STORE_SCRATCH_BYTES : 0);
}

/* Two blocks of f32, a byte per element of one, with several ranks a send and a receive buffer, and
 * the memory of struct save_sources. */
size_t checkpoint_save_bytes(int ranks, bool on_gpu, bool is_split, enum dtype moments)
{
    size_t buffers = ranks > 1 ? 4 : 2;
    return buffers * VALUES_BYTES + TENSOR_SOURCE_ELEMENTS +
           conversion_bytes(on_gpu, is_split, moments);
}

static enum status open_copier(struct checkpointer *c, const struct checkpointer_options *o)
{
    const struct copier_options copy = {.folder = c->folder,
                                        .destination = o->copy_to,
                                        .load_step = o->load_step,
                                        .stop_timeout_s = o->copy_stop_timeout_s,
                                        .read_only = o->load_only};
    TRY(copier_open(&c->copier, &copy));
    return STATUS_OK;
}

enum status checkpointer_open(struct checkpointer **out, const struct checkpointer_options *o)
{
    struct checkpointer *c = heap(sizeof *c);
    *c = (struct checkpointer){.folder = heap_strdup(o->folder),
                               .keep_latest_k = o->keep_latest_k,
                               .async = o->async,
                               .staging = {.memory = o->staging}};
    c->lock = -1;
    *out = c;
    enum status st = STATUS_OK;
    TRY_OUT(comm_split(o->world, 0, o->world->rank, &c->ranks));
    if (c->ranks.rank == 0) st = folder_lock(c->folder, &c->lock);
    if (c->ranks.rank == 0 && !st && o->copy_to && o->copy_to[0]) st = open_copier(c, o);
    TRY_OUT(comm_agree(&c->ranks, st));
out:
    if (st) {
        checkpointer_close(c, true);
        *out = NULL;
    }
    return st;
}

/* The buffers of a state; `stored` are those that the host cannot read as f32. */
struct save_sources {
    struct stored_source stored[VALUE_KINDS];
    struct stored_window window;
    struct moved_source moved; /* exp_avg_sq with a shard of its own */
    struct checked_source checked[VALUE_KINDS];
    struct arena memory; /* conversion_bytes, pinned if the state is in a GPU's memory; owned */
    float *values;       /* in it, as is `scratch`; NULL: all buffers are f32 in host memory */
    void *scratch;       /* NULL: no store needs it */
};

static enum status alloc_values(struct save_sources *s, const struct checkpoint_state *state)
{
    const struct allocator *shared = queue_shared_allocator(state->queue);
    size_t bytes = conversion_bytes(shared, state->low, state->moments);
    if (!bytes) return STATUS_OK;
    TRY(arena_init(&s->memory, bytes, shared));
    s->values = arena_alloc(&s->memory, VALUES_BYTES, 1);
    if (bytes > VALUES_BYTES) s->scratch = arena_alloc(&s->memory, bytes - VALUES_BYTES, 1);
    return STATUS_OK;
}

static struct tensor_source read_flat(struct save_sources *s, enum value_kind kind,
                                      struct store flat, const struct shard *shard)
{
    if (store_host_f32(&flat)) return tensor_source_flat(store_host_f32(&flat));
    flat.scratch = s->scratch;
    s->stored[kind] = (struct stored_source){flat, s->values, &s->window, shard};
    return tensor_source_stored(&s->stored[kind]);
}

/* `shard`: what `flat` holds. */
static struct tensor_source make_source(struct save_sources *s, const struct content *c,
                                        enum value_kind kind, struct store flat,
                                        const struct shard *shard)
{
    struct tensor_source from = read_flat(s, kind, flat, shard);
    if (shard != c->shard) {
        s->moved = (struct moved_source){from, shard};
        from = tensor_source_moved(&s->moved);
    }
    s->checked[kind] = (struct checked_source){
        .from = from, .layout = c->layout, .kind = kind, .rank = c->ranks->rank};
    return tensor_source_checked(&s->checked[kind]);
}

/* DIVERGED: a value that was written is bad. */
static enum status check_sources(const struct save_sources *s)
{
    for (enum value_kind i = 0; i < VALUE_KINDS; i++) TRY(tensor_source_check(&s->checked[i]));
    return STATUS_OK;
}

static struct content content_from_state(const struct checkpoint_state *s,
                                         struct save_sources *from, const struct comm *ranks)
{
    struct content c = {
        .shape = s->shape,
        .layout = s->layout,
        .shard = s->shard,
        .ranks = ranks,
        .dtype = s->dtype,
        .first_moment_only = s->first_moment_only,
        .step = s->step,
        .train = s->train.len ? s->train.data : NULL,
        .bos = s->tokenizer ? tokenizer_bos(s->tokenizer) : -1,
        .eos = s->tokenizer ? tokenizer_eos(s->tokenizer) : -1,
        .tokenizer = s->tokenizer,
        .objective = s->objective,
        .config_toml = s->config_toml,
    };
    c.weights = make_source(from, &c, VALUE_WEIGHT, checkpoint_weights(s), s->shard);
    if (s->ema) c.ema = make_source(from, &c, VALUE_EMA, checkpoint_ema(s), s->shard);
    if (s->exp_avg) {
        c.exp_avg = make_source(from, &c, VALUE_EXP_AVG, checkpoint_exp_avg(s), s->shard);
        c.exp_avg_sq = make_source(from, &c, VALUE_EXP_AVG_SQ, checkpoint_exp_avg_sq(s),
                                   checkpoint_shard(s, VALUE_EXP_AVG_SQ));
    }
    return c;
}

static enum status make_empty_folder(const char *folder)
{
    TRY(file_remove_tree(folder));
    TRY(file_make_dirs(folder));
    return STATUS_OK;
}

static enum status commit(const struct checkpointer *c, struct manifest *m,
                          const struct checkpoint_state *s)
{
    int64_t step = s->step;
    TRY(manifest_finish(m));
    TRY(folder_commit(c->folder, m->folder, step));
    if (c->copier) copier_add(c->copier, step); /* before deleting: a copy must not begin then */
    int64_t busy = c->copier ? copier_busy(c->copier) : -1;
    folder_retain(c->folder, c->keep_latest_k, step, busy, s->keep_before);
    return STATUS_OK;
}

/* The whole save, on the calling thread. */
static enum status write_checkpoint(const struct checkpointer *c, const struct checkpoint_state *s)
{
    const struct comm *ranks = &c->ranks;
    bool is_root = ranks->rank == 0;
    double begin = clock_monotonic_s();
    char *final = folder_step_path(c->folder, s->step);
    char *temporary = folder_temporary_path(c->folder, s->step);
    struct manifest m = {.folder = temporary, .step = s->step};
    struct save_sources sources = {0};
    enum status st = alloc_values(&sources, s);
    struct content content = content_from_state(s, &sources, ranks);
    TRY_OUT(comm_agree(ranks, is_root && !st ? make_empty_folder(temporary) : st));
    TRY_OUT(content_write(&content, &m));
    TRY_OUT(comm_agree(ranks, check_sources(&sources)));
    bool is_async = s == &c->state;
    if (is_async) st = staging_check(&c->staging, s, ranks->rank);
    TRY_OUT(comm_agree(ranks, st));
    if (is_root) st = commit(c, &m, s);
    TRY_OUT(comm_agree(ranks, st));
    double bytes = (double)manifest_bytes(&m);
    if (is_root)
        log_line(LOG_INFO, "checkpoint %s saved: %.3g %s in %.1f s", final,
                 bytes < 1e9 ? bytes / 1e6 : bytes / 1e9, bytes < 1e9 ? "MB" : "GB",
                 clock_monotonic_s() - begin);
out:
    if (st && is_root) file_discard_tree(temporary); /* leave nothing behind */
    manifest_release(&m);
    arena_release(&sources.memory);
    free(final), free(temporary);
    return st;
}

static void *save_thread(void *context)
{
    struct checkpointer *c = context;
    activity_help(ACTIVITY_saving);
    double begin = clock_monotonic_s();
    status_save(&c->failure, write_checkpoint(c, &c->state));
    c->thread_s = clock_monotonic_s() - begin;
    return NULL;
}

static void release_staged_state(struct checkpointer *c)
{
    text_release(&c->state.train);
    text_release(&c->config_toml);
}

enum status checkpointer_wait(struct checkpointer *c)
{
    if (!c->running) return STATUS_OK;
    if (!c->is_inline) pthread_join(c->thread, NULL);
    c->running = false;
    c->save_s = c->thread_s;
    release_staged_state(c);
    return status_restore(&c->failure);
}

static void log_lost(const struct checkpointer *c, enum status st)
{
    if (st && comm_logs_failure(&c->ranks, st))
        log_line(LOG_WARN, "the checkpoint of step %lld was not written: %s",
                 (long long)c->state.step, status_message());
}

enum status checkpointer_drain(struct checkpointer *c)
{
    enum status st = checkpointer_wait(c);
    log_lost(c, st);
    return st;
}

enum status checkpointer_save(struct checkpointer *c, const struct checkpoint_state *s)
{
    enum status lost = checkpointer_wait(c); /* the previous save failed; this one need not */
    bool is_final = lost == STATUS_DIVERGED || lost == STATUS_DEVICE;
    if (is_final && !status_is_remote())
        status_prefix(lost, "the checkpoint of step %lld", (long long)c->state.step);
    if (is_final) return lost;
    log_lost(c, lost);
    if (!c->async) {
        double begin = clock_monotonic_s();
        TRY(write_checkpoint(c, s));
        c->save_s = clock_monotonic_s() - begin;
        return STATUS_OK;
    }
    TRY(staging_fill(&c->staging, s, &c->state));
    c->state.train = (struct text){0};
    text_add(&c->state.train, s->train.data, s->train.len);
    if (s->config_toml) {
        text_add(&c->config_toml, s->config_toml->data, s->config_toml->len);
        c->state.config_toml = &c->config_toml;
    }
    c->failure = (struct failure){0};
    c->running = true;
    c->is_inline = thread_start_background(&c->thread, save_thread, c) != STATUS_OK;
    if (c->is_inline) save_thread(c); /* other ranks' save threads wait for this one */
    return STATUS_OK;
}

/* On rank 0.  Copies stop first, as they read the folders that are moved. */
static enum status set_aside(const struct checkpointer *c, int64_t step, const char *keep,
                             struct text *branch)
{
    struct folder_steps l;
    text_clear(branch);
    TRY(folder_steps_read(&l, c->folder));
    bool has_later = l.count && l.steps[l.count - 1] > step;
    folder_steps_release(&l);
    if (!has_later) return STATUS_OK;
    if (c->copier) copier_abandon(c->copier, step);
    TRY(folder_abandon(c->folder, step, keep, branch));
    log_line(LOG_INFO,
             "moved the checkpoints after step %lld to %s; the run never deletes those in "
             "%s/abandoned-*, which take %s",
             (long long)step, branch->data, c->folder,
             byte_size_format(folder_abandoned_bytes(c->folder)).text);
    return STATUS_OK;
}

enum status checkpointer_abandon(struct checkpointer *c, int64_t step, const char *keep,
                                 struct text *branch)
{
    struct text unused = {0};
    BUG_IF(c->running);
    enum status st = STATUS_OK;
    if (c->ranks.rank == 0) st = set_aside(c, step, keep, branch ? branch : &unused);
    text_release(&unused);
    return comm_agree(&c->ranks, st);
}

double checkpointer_save_seconds(const struct checkpointer *c) { return c->save_s; }

enum status checkpointer_close(struct checkpointer *c, bool failed)
{
    if (!c) return STATUS_OK;
    enum status st = checkpointer_wait(c);
    struct failure first = {0};
    status_save(&first, st);
    copier_close(c->copier, failed || st);
    if (st) status_restore(&first);
    folder_unlock(c->lock);
    comm_release(&c->ranks);
    free(c->folder);
    free(c);
    return st;
}
