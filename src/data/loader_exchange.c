// SPDX-License-Identifier: Apache-2.0
#include "data/loader_exchange.h"

#include "data/loader_rows.h"

#include <stdlib.h>
#include <string.h>

enum { ROUND_BYTES = 16 << 20 };

/* A record: the number of tokens, the tokens, their flags. */
static size_t record_bytes(const struct loader *l)
{
    size_t need = (size_t)(l->options.seq_len + !l->masked);
    return (sizeof(int32_t) + need * (sizeof(int32_t) + 1) + 7) / 8 * 8;
}

static size_t rows_in_round(const struct loader *l)
{
    size_t rows = ROUND_BYTES / (record_bytes(l) * l->split.readers);
    return rows ? rows : 1;
}

int64_t loader_exchange_bytes(const struct loader *l)
{
    if (!loader_rows_are_exchanged(l)) return 0;
    return (int64_t)(rows_in_round(l) * record_bytes(l) * l->split.readers);
}

static void pack(const struct token_row *t, unsigned char *record)
{
    int32_t filled = t->filled;
    size_t ids = (size_t)t->need * sizeof *t->ids;
    memcpy(record, &filled, sizeof filled);
    memcpy(record + sizeof filled, t->ids, ids);
    memcpy(record + sizeof filled + ids, t->begins, (size_t)t->need);
}

static void unpack(const unsigned char *record, struct token_row *t)
{
    int32_t filled;
    size_t ids = (size_t)t->need * sizeof *t->ids;
    memcpy(&filled, record, sizeof filled);
    memcpy(t->ids, record + sizeof filled, ids);
    memcpy(t->begins, record + sizeof filled + ids, (size_t)t->need);
    t->filled = filled;
}

/* The rows of one exchange. */
struct exchange {
    struct loader *loader;
    struct batch *batch;
    uint64_t begin, end; /* positions */
    uint64_t *read;      /* rows that each reader has read of those before a position */
    size_t room;         /* rows of a reader in a round */
};

/* Reads this reader's rows of the round into its part of the buffer. */
static enum status read_own(const struct exchange *x, uint64_t own)
{
    struct loader *l = x->loader;
    size_t bytes = record_bytes(l);
    unsigned char *part = l->exchange + (size_t)l->options.reader * x->room * bytes;
    for (uint64_t i = 0; i < own && i < x->room; i++) {
        struct loader_row *r;
        TRY(loader_rows_take(l, &r));
        pack(&r->tokens, part + i * bytes);
        loader_rows_release(l);
    }
    return STATUS_OK;
}

/* Copies the rows of the round that this reader trains on to the batch. */
static void copy_received(const struct exchange *x, uint64_t round)
{
    struct loader *l = x->loader;
    uint64_t reader = (uint64_t)l->options.reader;
    int place = 0;
    memset(x->read, 0, l->split.readers * sizeof *x->read);
    for (uint64_t p = x->begin; p < x->end; p++) {
        uint64_t from = loader_rows_reader(l, p), k = x->read[from]++;
        if (row_split_reader(&l->split, p) != reader) continue;
        int i = place++;
        if (k / x->room != round) continue;
        unpack(l->exchange + (from * x->room + k % x->room) * record_bytes(l), &l->received.tokens);
        l->received.number = loader_rows_number(l, p);
        loader_rows_build(l, &l->received);
        batch_copy_row(x->batch, loader_rows_place(l, i), &l->received.row);
    }
}

enum status loader_exchange_rows(struct loader *l, struct batch *b, uint64_t begin, uint64_t end)
{
    const struct comm *readers = l->options.readers;
    enum status st = STATUS_OK;
    uint64_t most = 0;
    struct exchange x = {l, b, begin, end, NULL, rows_in_round(l)};
    BUG_IF(!readers || (uint64_t)readers->size != l->split.readers);
    if (!l->exchange) l->exchange = heap((size_t)loader_exchange_bytes(l));
    x.read = heap(l->split.readers * sizeof *x.read);
    for (uint64_t p = begin; p < end; p++) {
        uint64_t count = ++x.read[loader_rows_reader(l, p)];
        if (count > most) most = count;
    }
    uint64_t own = x.read[l->options.reader];
    for (uint64_t round = 0; round * x.room < most; round++) {
        uint64_t done = round * x.room;
        TRY_OUT(comm_agree(readers, read_own(&x, own > done ? own - done : 0)));
        TRY_OUT(comm_all_gather_bytes(readers, l->exchange, x.room * record_bytes(l)));
        copy_received(&x, round);
    }
out:
    free(x.read);
    return st;
}
