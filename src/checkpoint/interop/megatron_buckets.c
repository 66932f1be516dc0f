// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_buckets.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Skips `prefix` and, with `number`, the digits after it. */
static bool skip(const char **at, const char *prefix, int *number)
{
    enum { DIGITS = 6 };
    size_t len = strlen(prefix);
    if (strncmp(*at, prefix, len)) return false;
    *at += len;
    if (!number) return true;
    int digits = 0;
    for (*number = 0; isdigit((unsigned char)**at) && digits < DIGITS; digits++)
        *number = 10 * *number + *(*at)++ - '0';
    return digits > 0;
}

bool megatron_buckets_parse(const char *name, struct bucket_piece *p, enum megatron_source *source)
{
    *p = (struct bucket_piece){0};
    skip(&name, "chained_0.", NULL);
    if (!skip(&name, "optimizer.distributed.dp_group_idx_", &p->group) ||
        !skip(&name, ".gbuf_idx_", &p->buffer) || !skip(&name, ".dtype_", NULL) ||
        !(name = strstr(name, ".bucket_idx_")) || !skip(&name, ".bucket_idx_", &p->bucket) ||
        !skip(&name, ".", NULL))
        return false;
    *source = megatron_tensor_source(name, strlen(name));
    return *source != MEGATRON_MODEL;
}

void megatron_buckets_add(struct megatron_buckets *b, const struct bucket_piece *p)
{
    if (b->count == b->capacity) {
        b->capacity = b->capacity ? 2 * b->capacity : 256;
        b->all = heap_grow(b->all, b->capacity, sizeof *b->all);
    }
    b->all[b->count++] = *p;
}

void megatron_buckets_release(struct megatron_buckets *b)
{
    for (size_t i = 0; i < b->count; i++) free(b->all[i].tensor.name);
    free(b->all);
    *b = (struct megatron_buckets){0};
}

static int compare_pieces(const void *left, const void *right)
{
    const struct bucket_piece *a = left, *b = right;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
    if (a->bucket != b->bucket) return a->bucket < b->bucket ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* A pass over the pieces, in their order. */
struct placement {
    const struct megatron_buckets *buckets;
    const struct megatron_state *state;
    const struct megatron_sizes *sizes;
    struct tensor_slices *slices; /* NULL: only check */
    enum megatron_source source;
    size_t at;     /* the next piece */
    size_t placed; /* parameters */
};

/* The pieces of a bucket. */
struct bucket {
    const struct bucket_piece *all;
    size_t count;
    size_t next;       /* piece to place */
    int64_t used;      /* elements up to the end of the last parameter */
    int64_t shard_gcd; /* of the ends of pieces within a parameter: multiples of the shard's size */
};

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Takes the pieces of the bucket, which must cover it in succession; none: count 0. */
static enum status take_bucket(struct placement *p, int group, int buffer, int bucket,
                               struct bucket *out)
{
    const struct bucket_piece *first = p->buckets->all + p->at;
    int64_t end = 0;
    *out = (struct bucket){.all = first};
    for (; p->at < p->buckets->count; p->at++) {
        const struct bucket_piece *o = &p->buckets->all[p->at];
        if (o->group != group || o->buffer != buffer || o->bucket != bucket) break;
        if (o->tensor.num_dims != 1 || o->offset != end || o->total != first->total ||
            o->tensor.shape[0] < 1 || o->tensor.shape[0] > o->total - end)
            FAIL(DATA, "%s: a piece at element %lld, expected one at %lld, of %lld in all",
                 o->tensor.name, (long long)o->offset, (long long)end, (long long)first->total);
        end += o->tensor.shape[0];
        out->count++;
    }
    if (out->count && end != first->total)
        FAIL(DATA, "%s: pieces end at element %lld of %lld", first->tensor.name, (long long)end,
             (long long)first->total);
    return STATUS_OK;
}

/* Adds the pieces of the parameter at [start, end), whose ends must be theirs. */
static enum status place_param(struct placement *p, struct bucket *b,
                               const struct megatron_shard *s, int64_t start)
{
    int64_t end = start + s->rows * s->columns, at = start;
    struct megatron_shard shard = *s;
    shard.tensor.source = p->source;
    while (b->next < b->count && b->all[b->next].offset < start) b->next++; /* padding */
    for (; b->next < b->count && b->all[b->next].offset == at && at < end; b->next++) {
        const struct bucket_piece *piece = &b->all[b->next];
        const struct file_slice flat = {&piece->tensor, piece->map, at - start, 0};
        if (piece->tensor.shape[0] > end - at) break;
        if (at > start) b->shard_gcd = gcd(b->shard_gcd, at);
        at += piece->tensor.shape[0];
        if (p->slices && !s->is_copy)
            TRY(megatron_shard_add_flat(p->slices, p->sizes, &shard, &flat));
    }
    if (at != end)
        FAIL(UNSUPPORTED, "%s: no pieces have elements %lld to %lld, where %s is expected",
             b->all->tensor.name, (long long)start, (long long)end, s->name);
    b->used = end;
    p->placed++;
    return STATUS_OK;
}

/* All shards but the last are equal: so each multiple of their size is the end of a piece. */
static bool has_equal_shards(const struct bucket *b)
{
    int64_t ends = 0, size = b->shard_gcd;
    for (size_t i = 0; i < b->count && size; i++) ends += b->all[i].offset % size == 0;
    return !size || ends == (b->all->total - 1) / size + 1;
}

/* Fills the buckets of a model chunk with its parameters.  A bucket ends with its last parameter
 * or, before that of a shared embedding, where the next would begin. */
static enum status place_chunk(struct placement *p, const struct megatron_shards *shards, int group,
                               int buffer)
{
    size_t left = shards->count;
    for (int bucket = 0; left; bucket++) {
        struct bucket b;
        TRY(take_bucket(p, group, buffer, bucket, &b));
        int64_t total = b.count ? b.all->total : 0;
        for (; left; left--) {
            const struct megatron_shard *s = &shards->all[left - 1];
            int64_t start = megatron_shard_align(b.used);
            if (start > total || s->rows * s->columns > total - start) break;
            TRY(place_param(p, &b, s, start));
        }
        if (!b.used || (total != b.used && total != megatron_shard_align(b.used)) ||
            !has_equal_shards(&b))
            FAIL(UNSUPPORTED,
                 "dp_group_idx_%d.gbuf_idx_%d.bucket_idx_%d has %lld elements, but its "
                 "parameters end at element %lld",
                 group, buffer, bucket, (long long)total, (long long)b.used);
    }
    return STATUS_OK;
}

static enum status place_all(struct placement *p, bool has_fused_norms)
{
    const struct megatron_state *m = p->state;
    p->at = p->placed = 0;
    for (int pp = 0; pp < m->pp; pp++)
        for (int tp = 0; tp < m->tp; tp++)
            for (int chunk = 0; chunk < m->chunks; chunk++) {
                const struct megatron_chunk c = {tp, pp, chunk, has_fused_norms};
                struct megatron_shards shards;
                enum status st = megatron_shards_list(&shards, m, p->sizes, &c);
                if (!st) st = place_chunk(p, &shards, tp + m->tp * pp, chunk);
                megatron_shards_release(&shards);
                TRY(st);
            }
    if (p->at < p->buckets->count)
        FAIL(UNSUPPORTED, "%s holds no parameter of the model", p->buckets->all[p->at].tensor.name);
    return STATUS_OK;
}

/* Layers are those of Transformer Engine or megatron-core's own: the order differs.  If neither
 * fits, the failure is that of the order in which more parameters fit. */
static enum status place_in_order(struct placement *p, struct tensor_slices *slices)
{
    TRY(megatron_state_require_args(p->state));
    struct failure fused = {0};
    status_save(&fused, place_all(p, true));
    size_t placed_fused = p->placed;
    enum status st = place_all(p, false);
    if (!fused.status && !st)
        FAIL(UNSUPPORTED, "the pieces fit both orders of layers, Transformer Engine's and "
                          "megatron-core's");
    if (fused.status && st && placed_fused > p->placed) st = status_restore(&fused);
    if (fused.status) TRY(st);
    p->slices = slices;
    TRY(place_all(p, !fused.status));
    return STATUS_OK;
}

enum status megatron_buckets_place(struct megatron_buckets *b, enum megatron_source source,
                                   const struct megatron_state *m, const struct megatron_sizes *z,
                                   struct tensor_slices *slices)
{
    struct placement p = {.buckets = b, .state = m, .sizes = z, .source = source};
    if (!b->count) return STATUS_OK;
    qsort(b->all, b->count, sizeof *b->all, compare_pieces);
    TRY_PREFIX(place_in_order(&p, slices), "%s: the optimizer's buckets", slices->path);
    return STATUS_OK;
}
