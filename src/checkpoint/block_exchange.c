// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/block_exchange.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static int compare_runs(const void *a, const void *b)
{
    const struct shard_run *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static uint64_t mix_fingerprint(uint64_t sum, uint64_t x)
{
    sum = (sum ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ sum >> 29;
}

/* Fingerprints the runs that this rank holds of each tensor.  Adjacent runs count as one. */
static void compute_fingerprints(const struct block_exchange *x, uint64_t *fingerprints)
{
    for (size_t i = 0, next; i < x->num_runs; i = next) {
        const struct shard_run *p = &x->runs[i];
        size_t end = p->first + p->count;
        for (next = i + 1; next < x->num_runs; next++) {
            if (p[next - i].tensor != p->tensor || p[next - i].first != end) break;
            end += p[next - i].count;
        }
        fingerprints[p->tensor] =
            mix_fingerprint(mix_fingerprint(fingerprints[p->tensor] + 1, p->first), end) | 1;
    }
}

struct holder {
    uint64_t fingerprint;
    int rank;
};

static int compare_holders(const void *a, const void *b)
{
    const struct holder *x = a, *y = b;
    if (x->fingerprint != y->fingerprint) return x->fingerprint < y->fingerprint ? -1 : 1;
    return x->rank - y->rank;
}

/* The lowest of the ranks that hold the same runs of a tensor sends them. */
static void choose_senders(struct block_exchange *x, size_t size)
{
    size_t n = (size_t)x->layout->num_tensors;
    struct holder *holders = heap(size * sizeof *holders);
    for (size_t t = 0; t < n; t++) {
        for (size_t r = 0; r < size; r++)
            holders[r] = (struct holder){x->fingerprints[r * n + t], (int)r};
        qsort(holders, size, sizeof *holders, compare_holders);
        for (size_t r = 0; r < size; r++) {
            bool first = r == 0 || holders[r - 1].fingerprint != holders[r].fingerprint;
            x->sends[(size_t)holders[r].rank * n + t] = first && holders[r].fingerprint;
        }
    }
    free(holders);
}

static enum status gather_fingerprints(struct block_exchange *x)
{
    size_t size = (size_t)x->ranks->size, n = (size_t)x->layout->num_tensors;
    x->fingerprints = heap(size * n * sizeof *x->fingerprints);
    x->sends = heap(size * n * sizeof *x->sends);
    compute_fingerprints(x, x->fingerprints + (size_t)x->ranks->rank * n);
    TRY(comm_all_gather_bytes(x->ranks, x->fingerprints, n * sizeof *x->fingerprints));
    choose_senders(x, size);
    return STATUS_OK;
}

enum status block_exchange_open(struct block_exchange *x, const struct layout *l,
                                const struct shard *p, const struct comm *ranks)
{
    *x = (struct block_exchange){.layout = l, .ranks = ranks};
    x->runs = heap(p->count * sizeof *x->runs);
    x->filled = heap(TENSOR_SOURCE_ELEMENTS);
    for (size_t i = 0; i < p->count; i++)
        if (p->runs[i].count) x->runs[x->num_runs++] = p->runs[i];
    qsort(x->runs, x->num_runs, sizeof *x->runs, compare_runs);
    for (size_t i = 1; i < x->num_runs; i++) {
        const struct shard_run *a = &x->runs[i - 1];
        BUG_IF(a->tensor == a[1].tensor && a->first + a->count > a[1].first);
    }
    TRY(gather_fingerprints(x));
    return STATUS_OK;
}

void block_exchange_close(struct block_exchange *x)
{
    free(x->runs);
    free(x->fingerprints), free(x->sends);
    free(x->out), free(x->in);
    free(x->filled);
    *x = (struct block_exchange){0};
}

/* Whether rank `from` sends elements of this tensor to rank `to`. */
static bool sends_tensor(const struct block_exchange *x, int from, int to, int tensor)
{
    size_t n = (size_t)x->layout->num_tensors;
    size_t i = (size_t)from * n + (size_t)tensor, j = (size_t)to * n + (size_t)tensor;
    return x->sends[i] && x->fingerprints[i] != x->fingerprints[j];
}

/* Both ranks evaluate this alike, so that neither waits for a message that the other does not
 * send. */
static bool sends_any(const struct block_exchange *x, int from, int to, const struct file_block *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (sends_tensor(x, from, to, b->spans[i].tensor)) return true;
    return false;
}

/* This rank's first run that ends after the beginning of the span (binary search). */
static size_t first_run(const struct block_exchange *x, const struct block_span *s)
{
    size_t low = 0, high = x->num_runs;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct shard_run *p = &x->runs[middle];
        if (p->tensor < s->tensor || (p->tensor == s->tensor && p->first + p->count <= s->first))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Sets *run to what the i-th run of this rank holds of the span; false: nothing. */
static bool intersect(const struct block_exchange *x, const struct block_span *s, size_t i,
                      struct block_span *run)
{
    if (i >= x->num_runs) return false;
    const struct shard_run *p = &x->runs[i];
    size_t from = p->first, to = p->first + p->count, end = s->first + s->count;
    if (from < s->first) from = s->first;
    if (to > end) to = end;
    if (p->tensor != s->tensor || from >= to) return false;
    *run = *s;
    run->first = from, run->count = to - from, run->at = s->at + (from - s->first);
    return true;
}

/* Where this rank assembles its block. */
struct block_buffer {
    enum safetensors_dtype dtype;
    void *bytes;
};

static void store_values(struct block_exchange *x, const struct block_buffer *to, size_t at,
                         size_t count, const float *values)
{
    BUG_IF(at > TENSOR_SOURCE_ELEMENTS || count > TENSOR_SOURCE_ELEMENTS - at);
    safetensors_from_f32(values, count, to->dtype,
                         (char *)to->bytes + at * safetensors_dtype_bytes(to->dtype));
    memset(x->filled + at, 1, count);
}

/* Fills this rank's block from its own shard. */
static enum status copy_own_runs(struct block_exchange *x, const struct file_block *b,
                                 const struct block_buffer *to)
{
    for (size_t s = 0; s < b->count; s++) {
        const struct block_span *span = &b->spans[s];
        struct block_span run;
        for (size_t i = first_run(x, span); intersect(x, span, i, &run); i++) {
            const float *values;
            TRY(run.source->read(run.source->context, &x->runs[i], run.first, run.count, &values));
            store_values(x, to, run.at, run.count, values);
        }
    }
    return STATUS_OK;
}

static uint32_t *reserve_words(uint32_t **words, size_t *capacity, size_t count)
{
    if (count > *capacity) {
        *capacity = count + count / 4;
        *words = heap_grow(*words, *capacity, sizeof **words);
    }
    return *words;
}

/* Message: for each run its position in the block, its number of elements, and the elements. */
static enum status pack_runs(struct block_exchange *x, const struct file_block *b, int to,
                             uint32_t *count)
{
    size_t n = 0;
    *count = 0;
    for (size_t s = 0; s < b->count; s++) {
        const struct block_span *span = &b->spans[s];
        struct block_span run;
        if (!sends_tensor(x, x->ranks->rank, to, span->tensor)) continue;
        for (size_t i = first_run(x, span); intersect(x, span, i, &run); i++) {
            const float *values;
            TRY(run.source->read(run.source->context, &x->runs[i], run.first, run.count, &values));
            uint32_t *words = reserve_words(&x->out, &x->out_capacity, n + 2 + run.count) + n;
            words[0] = (uint32_t)run.at, words[1] = (uint32_t)run.count;
            memcpy(words + 2, values, run.count * sizeof *values);
            n += 2 + run.count;
        }
    }
    *count = (uint32_t)n;
    return STATUS_OK;
}

static void unpack_runs(struct block_exchange *x, size_t count, const struct block_buffer *to)
{
    for (size_t n = 0; n < count;) {
        const uint32_t *words = x->in + n;
        BUG_IF(count - n < 2 || count - n - 2 < words[1]);
        store_values(x, to, words[0], words[1], (const float *)(const void *)(words + 2));
        n += 2 + (size_t)words[1];
    }
}

/* Words to send to, or to receive from, another rank. */
struct word_message {
    int peer; /* -1: none */
    uint32_t *words;
    size_t count;
};

/* As MPI_Sendrecv. */
static enum status send_receive(const struct block_exchange *x, struct word_message out,
                                struct word_message in)
{
    struct transfer send = {
        .kind = TRANSFER_send, .x = out.words, .peer = out.peer, .is_bytes = true};
    struct transfer receive = {
        .kind = TRANSFER_receive, .x = in.words, .peer = in.peer, .is_bytes = true};
    send.count = out.count * sizeof *out.words, receive.count = in.count * sizeof *in.words;
    bool sends = out.peer >= 0 && out.count, receives = in.peer >= 0 && in.count;
    if (receives) TRY(comm_start(x->ranks, &receive));
    if (sends) TRY(comm_start(x->ranks, &send));
    if (sends) TRY(comm_wait(&send));
    if (receives) TRY(comm_wait(&receive));
    return STATUS_OK;
}

/* Instead of a number of words: the sender has failed, and sends none. */
static const uint32_t sender_failed = UINT32_MAX;

static size_t count_words(uint32_t announced) { return announced < sender_failed ? announced : 0; }

/* Sends x->out, `out` words, and receives x->in, *in words; either may be sender_failed. */
static enum status exchange_words(struct block_exchange *x, int to, uint32_t out, int from,
                                  uint32_t *in)
{
    *in = 0;
    TRY(send_receive(x, (struct word_message){to, &out, 1}, (struct word_message){from, in, 1}));
    size_t count = count_words(*in);
    reserve_words(&x->in, &x->in_capacity, count);
    return send_receive(x, (struct word_message){to, x->out, count_words(out)},
                        (struct word_message){from, x->in, count});
}

static enum status check_filled(const struct block_exchange *x, const struct file_block *b)
{
    for (size_t s = 0; s < b->count; s++) {
        const struct block_span *span = &b->spans[s];
        const unsigned char *from = x->filled + span->at, *hole = memchr(from, 0, span->count);
        char name[96];
        if (!hole) continue;
        layout_tensor_name(&x->layout->tensors[span->tensor], true, name);
        FAIL(SHAPE, "tensor %s: no rank holds element %zu", name,
             span->first + (size_t)(hole - from));
    }
    return STATUS_OK;
}

enum status block_exchange_fill(struct block_exchange *x, const struct file_block *blocks,
                                enum safetensors_dtype dtype, void *bytes)
{
    int size = x->ranks->size, rank = x->ranks->rank;
    const struct file_block *mine = &blocks[rank];
    const struct block_buffer buffer = {dtype, bytes};
    struct failure first = {0};
    bool lacks_words = false;
    memset(x->filled, 0, TENSOR_SOURCE_ELEMENTS);
    status_save(&first, copy_own_runs(x, mine, &buffer));
    /* In step k each rank sends to the rank k above it (mod size), which spreads the load. */
    for (int k = 1; k < size; k++) {
        int to = (rank + k) % size, from = (rank + size - k) % size;
        uint32_t out = 0, in = 0;
        if (!sends_any(x, rank, to, &blocks[to])) to = -1;
        if (!sends_any(x, from, rank, mine)) from = -1;
        if (to >= 0 && status_save(&first, pack_runs(x, &blocks[to], to, &out)))
            out = sender_failed;
        enum status st = exchange_words(x, to, out, from, &in);
        status_save(&first, st);
        if (st) break; /* COMM */
        lacks_words |= in == sender_failed;
        unpack_runs(x, count_words(in), &buffer);
    }
    TRY(status_restore(&first));
    if (!lacks_words) TRY(check_filled(x, mine));
    return STATUS_OK;
}
