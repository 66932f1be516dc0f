// SPDX-License-Identifier: Apache-2.0
#include "train/integrity.h"

#include "base/checksum.h"
#include "base/host.h"
#include "base/log.h"
#include "tensor/element.h"

#include <stddef.h>
#include <stdlib.h>

enum { CHUNK = 64 * CHECKSUM_PIECE, MAX_NAMED = 8 };

static const char *const buffer_names[STATE_COUNT] = {
    [STATE_WEIGHTS] = "weights",
    [STATE_LOW] = "weights (low halves)",
    [STATE_COMPUTE_WEIGHTS] = "compute weights",
    [STATE_EXP_AVG] = "exp_avg",
    [STATE_EXP_AVG_SQ] = "exp_avg_sq",
    [STATE_EMA] = "moving average",
};

/* All ranks learn of a failure of any.  `good`: the last step whose state it leaves in no doubt. */
static enum status agree(struct integrity *g, enum status mine, int64_t good)
{
    enum status st = comm_agree(&g->groups->of[GROUP_world], mine);
    if (st == STATUS_DEVICE) g->is_suspect = true, g->good = good;
    return st;
}

/* --- fingerprints --- */

static const void *buffer_of(const struct optim *o, enum state_buffer i, enum dtype *dtype)
{
    const void *buffers[STATE_COUNT] = {
        [STATE_WEIGHTS] = o->weights,       [STATE_LOW] = o->low,
        [STATE_COMPUTE_WEIGHTS] = o->copy,  [STATE_EXP_AVG] = o->exp_avg,
        [STATE_EXP_AVG_SQ] = o->exp_avg_sq, [STATE_EMA] = o->ema};
    const enum dtype dtypes[STATE_COUNT] = {[STATE_WEIGHTS] = F32,
                                            [STATE_LOW] = BF16,
                                            [STATE_COMPUTE_WEIGHTS] = o->copy_dtype,
                                            [STATE_EXP_AVG] = o->moments,
                                            [STATE_EXP_AVG_SQ] = o->moments,
                                            [STATE_EMA] = F32};
    *dtype = dtypes[i];
    return buffers[i];
}

/* Continues *crc with a buffer of the device, or of the host without one. */
static enum status add_bytes(const struct integrity *g, const void *x, size_t bytes, uint32_t *crc)
{
    int threads = g->queue->num_threads;
    bool copies = queue_device_allocator(g->queue);
    if (!copies) *crc = checksum_pieces(*crc, x, bytes, threads);
    for (size_t at = 0; copies && at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        TRY(queue_copy(g->queue, g->chunk, (const char *)x + at, n));
        *crc = checksum_pieces(*crc, g->chunk, n, threads);
    }
    return STATUS_OK;
}

/* Continues *crc with elements [at, at + count) of a moment in INT8, as f32. */
static enum status add_quantized(const struct integrity *g, enum state_buffer i, size_t at,
                                 size_t count, uint32_t *crc)
{
    const struct optim *o = g->optim;
    size_t second = i == STATE_EXP_AVG_SQ, most = CHUNK / sizeof(float);
    struct store s = {.x = second ? o->exp_avg_sq : o->exp_avg,
                      .dtype = INT8,
                      .queue = g->queue,
                      .blocks = o->moment_blocks + second};
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < most ? count - done : most;
        TRY(store_read(&s, at + done, n, (float *)(void *)g->chunk));
        *crc = checksum_pieces(*crc, g->chunk, n * sizeof(float), g->queue->num_threads);
    }
    return STATUS_OK;
}

/* Continues *crc with elements [at, at + count) of a buffer. */
static enum status add_elements(const struct integrity *g, enum state_buffer i, size_t at,
                                size_t count, uint32_t *crc)
{
    enum dtype dtype;
    const char *x = buffer_of(g->optim, i, &dtype);
    if (dtype == INT8) return add_quantized(g, i, at, count, crc);
    return add_bytes(g, x + at * dtype_bytes(dtype), count * dtype_bytes(dtype), crc);
}

/* The elements that r's group replicates, or with r NULL this rank's whole shard. */
static enum status take_fingerprint(const struct integrity *g, const struct replicas *r,
                                    struct fingerprint *f)
{
    *f = (struct fingerprint){.world_rank = g->groups->of[GROUP_world].rank};
    host_name(f->host, sizeof f->host);
    TRY(queue_wait(g->queue));
    for (enum state_buffer i = 0; i < STATE_COUNT; i++) {
        enum dtype dtype;
        const struct shard *shard =
            i == STATE_EXP_AVG_SQ ? g->optim->exp_avg_sq_shard : g->optim->shard;
        if (!buffer_of(g->optim, i, &dtype)) continue;
        if (!r) TRY(add_elements(g, i, 0, shard->elements, &f->crc[i]));
        for (size_t k = 0; r && k < shard->count; k++) {
            const struct shard_run *run = &shard->runs[k];
            if (!replicas_include(r, run)) continue;
            TRY(add_elements(g, i, run->at, run->count, &f->crc[i]));
        }
    }
    return STATUS_OK;
}

/* --- ranks that hold the same elements --- */

/* The CRC that most ranks have; false if no CRC has a majority. */
static bool find_majority(const struct integrity *g, int size, enum state_buffer i, uint32_t *crc)
{
    for (int r = 0; r < size; r++) {
        int same = 0;
        for (int k = 0; k < size; k++) same += g->all[k].crc[i] == g->all[r].crc[i];
        *crc = g->all[r].crc[i];
        if (2 * same > size) return true;
    }
    return false;
}

static void add_rank(struct text *t, int index, const struct fingerprint *f)
{
    if (index < MAX_NAMED)
        text_addf(t, "%srank %d on %s", index ? ", " : "", f->world_rank, f->host);
    else if (index == MAX_NAMED)
        text_adds(t, ", ...");
}

static void add_advice(struct text *t, int64_t good)
{
    text_addf(
        t,
        "suspected hardware fault: exclude the node; the run resumes from a checkpoint of step "
        "%lld or earlier, later ones are set aside",
        (long long)good);
}

/* Compares one buffer; a rank without the majority's CRC fails; without a majority every rank. */
static enum status compare_buffer(const struct integrity *g, const struct comm *c,
                                  enum state_buffer i, int64_t step)
{
    uint32_t majority, mine = g->all[c->rank].crc[i];
    struct text ranks = {0}, advice = {0};
    int same = 0, named = 0;
    enum status st = STATUS_OK;
    for (int r = 0; r < c->size; r++) same += g->all[r].crc[i] == mine;
    if (same == c->size) return STATUS_OK;
    bool has_majority = find_majority(g, c->size, i, &majority);
    if (has_majority && mine == majority) return STATUS_OK; /* those that differ fail */
    for (int r = 0; r < c->size; r++)
        if (!has_majority || g->all[r].crc[i] != majority) add_rank(&ranks, named++, &g->all[r]);
    add_advice(&advice, g->trusted);
    if (has_majority)
        FAIL_OUT(DEVICE,
                 "after step %lld %s differ from those of the other %d ranks that hold the same "
                 "elements (%s): %s; %s",
                 (long long)step, buffer_names[i], c->size - named, comm_name(c), ranks.data,
                 advice.data);
    FAIL_OUT(DEVICE,
             "after step %lld %s differ among ranks that hold the same elements (%s), one of which "
             "is wrong: %s; %s",
             (long long)step, buffer_names[i], comm_name(c), ranks.data, advice.data);
out:
    text_release(&ranks), text_release(&advice);
    return st;
}

static enum status compare_ranks(const struct integrity *g, const struct comm *c,
                                 const struct fingerprint *mine, int64_t step)
{
    if (c->size == 1) return STATUS_OK;
    g->all[c->rank] = *mine;
    TRY(comm_all_gather_bytes(c, g->all, sizeof *g->all));
    for (enum state_buffer i = 0; i < STATE_COUNT; i++) TRY(compare_buffer(g, c, i, step));
    return STATUS_OK;
}

/* Takes this rank's fingerprint; compares whole shards with the replicas', and replicated
 * parameters with other ranks'.  Every rank takes part in all comparisons; the first failure
 * counts. */
static enum status compare_all(struct integrity *g, int64_t step)
{
    struct failure first = {0};
    status_save(&first, take_fingerprint(g, NULL, &g->mine));
    status_save(&first, compare_ranks(g, &g->groups->of[GROUP_replicate], &g->mine, step));
    for (int i = 0; i < REPLICATED_COUNT; i++) {
        const struct replicas *r = &g->replicas[i];
        struct fingerprint f;
        if (r->group->size == 1) continue;
        status_save(&first, take_fingerprint(g, r, &f));
        status_save(&first, compare_ranks(g, r->group, &f, step));
    }
    return status_restore(&first);
}

enum status integrity_record(struct integrity *g, int64_t step)
{
    g->is_current = g->guard->hash_every && step % g->guard->hash_every == 0;
    if (!g->is_current) return STATUS_OK;
    g->step = step;
    TRY(agree(g, compare_all(g, step), g->trusted));
    if (g->groups->of[GROUP_replicate].size > 1) g->trusted = step;
    return STATUS_OK;
}

static enum status check_memory(const struct integrity *g, int64_t done)
{
    struct fingerprint now;
    struct text names = {0}, advice = {0};
    enum status st = STATUS_OK;
    TRY(take_fingerprint(g, NULL, &now));
    for (enum state_buffer i = 0; i < STATE_COUNT; i++)
        if (now.crc[i] != g->mine.crc[i])
            text_addf(&names, "%s%s", names.len ? ", " : "", buffer_names[i]);
    if (!names.len) return STATUS_OK;
    add_advice(&advice, g->step - 1);
    FAIL_OUT(DEVICE,
             "rank %d on %s: %s changed in memory after the update of step %lld, before that of "
             "step %lld; %s",
             now.world_rank, now.host, names.data, (long long)g->step, (long long)done + 1,
             advice.data);
out:
    text_release(&names), text_release(&advice);
    return st;
}

enum status integrity_check(struct integrity *g, int64_t done)
{
    if (g->trusted < 0) g->trusted = done; /* what the run starts with */
    if (!g->is_current) return STATUS_OK;
    TRY(agree(g, check_memory(g, done), g->step - 1));
    g->trusted = g->step;
    return STATUS_OK;
}

void integrity_forget(struct integrity *g)
{
    g->is_current = g->is_suspect = false;
    g->trusted = g->replayed = -1;
}

/* --- replay --- */

static enum status see_gradients(struct gradient_observer *o, const float *x, size_t count)
{
    struct integrity *g = (struct integrity *)((char *)o - offsetof(struct integrity, observer));
    TRY(queue_wait(g->queue));
    TRY(add_bytes(g, x, count * sizeof *x, &g->passes[g->pass].own));
    return STATUS_OK;
}

bool integrity_is_replayed(const struct integrity *g, int64_t step)
{
    return g->guard->replay_every && step % g->guard->replay_every == 0;
}

struct gradient_observer *integrity_begin_pass(struct integrity *g, int pass)
{
    g->pass = pass;
    g->passes[pass] = (struct pass_digest){0};
    return &g->observer;
}

enum status integrity_end_pass(struct integrity *g, const float *losses, int num_losses,
                               const void *gradients)
{
    struct pass_digest *d = &g->passes[g->pass];
    TRY(queue_wait(g->queue));
    if (losses) d->losses = checksum_crc32c(0, losses, (size_t)num_losses * sizeof *losses);
    size_t bytes = g->optim->shard->elements * dtype_bytes(g->optim->gradients);
    TRY(add_bytes(g, gradients, bytes, &d->reduced));
    return STATUS_OK;
}

/* `own`: this rank computed something else; otherwise only what it received differs. */
static enum status report_replay(const struct integrity *g, bool own, const char *others,
                                 int64_t step)
{
    const struct pass_digest *a = &g->passes[0], *b = &g->passes[1];
    char host[64];
    host_name(host, sizeof host);
    const char *what = !own                     ? "sums of gradients over ranks"
                       : a->losses == b->losses ? "gradients"
                       : a->own == b->own       ? "losses"
                                                : "losses and gradients";
    FAIL(DEVICE,
         "rank %d on %s: the replay of step %lld gave other %s for the same batch and weights%s%s; "
         "suspected hardware fault: exclude the node; to be safe, resume from a checkpoint of step "
         "%lld or earlier (checkpoint.load_step), as the fault may be older",
         g->groups->of[GROUP_world].rank, host, (long long)step, what, others,
         own ? "" : ", though each rank's own gradients were equal: the network or a reduction",
         (long long)g->replayed);
}

/* The lowest suspect reports all. */
static enum status report_suspects(const struct integrity *g, bool is_mine, bool own, int64_t step)
{
    const struct comm *world = &g->groups->of[GROUP_world];
    char *suspects = heap((size_t)world->size);
    struct text others = {0};
    int named = 0;
    enum status st = STATUS_OK;
    suspects[world->rank] = is_mine;
    text_adds(&others, "");
    TRY_OUT(comm_all_gather_bytes(world, suspects, 1));
    for (int r = 0; r < world->size; r++) {
        if (!suspects[r] || r == world->rank) continue;
        if (named < MAX_NAMED) text_addf(&others, "%s %d", named ? "," : ", and so did ranks", r);
        if (named++ == MAX_NAMED) text_adds(&others, ", ...");
    }
    if (is_mine) st = report_replay(g, own, others.data, step);
out:
    text_release(&others);
    free(suspects);
    return st;
}

enum status integrity_compare_passes(struct integrity *g, int64_t step)
{
    const struct pass_digest *a = &g->passes[0], *b = &g->passes[1];
    int64_t own = a->losses != b->losses || a->own != b->own, reduced = a->reduced != b->reduced;
    int64_t any[] = {own, reduced};
    if (g->replayed < 0) g->replayed = step - 1; /* what the run starts with */
    TRY(comm_all_reduce_int64(&g->groups->of[GROUP_world], REDUCE_MAX, any, 2));
    bool is_mine = any[0] ? own : reduced;
    if (any[0] || any[1]) TRY(agree(g, report_suspects(g, is_mine, own, step), step));
    g->replayed = step;
    return STATUS_OK;
}

void integrity_abandon(const struct integrity *g, struct checkpointer *c)
{
    if (!g->is_suspect) return;
    if (checkpointer_abandon(c, g->good, NULL, NULL) && !status_is_remote())
        log_line(LOG_WARN, "cannot set aside the checkpoints after step %lld: %s",
                 (long long)g->good, status_message());
}

void integrity_alloc(struct integrity *g, struct arena *shared)
{
    int most = g->groups->of[GROUP_replicate].size;
    for (int i = 0; i < REPLICATED_COUNT; i++)
        if (g->replicas[i].group->size > most) most = g->replicas[i].group->size;
    bool is_used = g->guard->hash_every || g->guard->replay_every;
    bool copies = is_used && (queue_device_allocator(g->queue) || g->optim->moments == INT8);
    g->all = g->guard->hash_every ? arena_alloc(shared, (size_t)most, sizeof *g->all) : NULL;
    g->chunk = copies ? arena_alloc(shared, CHUNK, 1) : NULL;
    g->observer = (struct gradient_observer){see_gradients};
    integrity_forget(g);
}
