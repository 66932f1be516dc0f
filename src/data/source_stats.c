// SPDX-License-Identifier: Apache-2.0
#include "data/source_stats.h"

#include "base/checksum.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HASHES = 1 << 26, PAIRS = 1 << 16 };

/* The special tokens of a tokenizer, to be found in text. */
struct special_names {
    struct special_name {
        const char *text; /* borrowed */
        size_t len;
        int32_t id;
    } * names;
    size_t count;
    bool *begins; /* by the first two bytes: whether a name begins so */
};

struct taker {
    struct source_stats *stats;
    struct special_names special;
    uint64_t *hashes; /* of the documents whose hash ends in `num_zeros` zero bits */
    size_t count, capacity;
    int num_zeros;
};

static void add_name(struct special_names *s, const char *text, int32_t id)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t len = strlen(text);
    if (!len) return;
    s->names[s->count++] = (struct special_name){text, len, id};
    for (size_t second = 0; second < 256; second++)
        if (len == 1 || second == bytes[1]) s->begins[(size_t)bytes[0] << 8 | second] = true;
}

static void special_names_init(struct special_names *s, const struct tokenizer *t)
{
    int32_t size = tokenizer_vocab_size(t);
    *s = (struct special_names){.begins = heap(PAIRS * sizeof *s->begins)};
    for (int32_t id = 0; id < size; id++) s->count += tokenizer_special_name(t, id) != NULL;
    s->names = heap((s->count + 1) * sizeof *s->names);
    s->count = 0;
    for (int32_t id = 0; id < size; id++) {
        const char *name = tokenizer_special_name(t, id);
        if (name) add_name(s, name, id);
    }
}

static void special_names_release(struct special_names *s) { free(s->names), free(s->begins); }

/* The first special token whose text is in the document; -1: none. */
static int32_t find_name(const struct special_names *s, const struct document_text *d)
{
    const unsigned char *bytes = (const unsigned char *)d->bytes;
    for (size_t i = 0; i < d->len && s->count; i++) {
        size_t next = i + 1 < d->len ? bytes[i + 1] : 0;
        if (!s->begins[(size_t)bytes[i] << 8 | next]) continue;
        for (size_t k = 0; k < s->count; k++)
            if (s->names[k].len <= d->len - i &&
                !memcmp(bytes + i, s->names[k].text, s->names[k].len))
                return s->names[k].id;
    }
    return -1;
}

/* The first special token among the IDs of a document; -1: none. */
static int32_t find_id(const struct tokenizer *t, const struct token_list *ids)
{
    for (size_t i = 0; i < ids->count && t; i++) {
        int32_t id = ids->ids[i];
        bool is_frame =
            (i == 0 && id == tokenizer_bos(t)) || (i + 1 == ids->count && id == tokenizer_eos(t));
        if (id < tokenizer_vocab_size(t) && tokenizer_special_name(t, id) && !is_frame) return id;
    }
    return -1;
}

/* With too many hashes every second one is dropped, and all of its duplicates. */
static void add_hash(struct taker *k, uint64_t hash)
{
    size_t most = k->stats->max_hashes ? k->stats->max_hashes : MAX_HASHES;
    if (hash & ((UINT64_C(1) << k->num_zeros) - 1)) return;
    while (k->count == most && k->num_zeros < 63) {
        uint64_t bit = UINT64_C(1) << k->num_zeros++;
        size_t kept = 0;
        for (size_t i = 0; i < k->count; i++)
            if (!(k->hashes[i] & bit)) k->hashes[kept++] = k->hashes[i];
        k->count = kept;
        if (hash & bit) return;
    }
    if (k->count == k->capacity) {
        k->capacity = k->capacity ? 2 * k->capacity : 1 << 10;
        k->hashes = heap_grow(k->hashes, k->capacity, sizeof *k->hashes);
    }
    k->hashes[k->count++] = hash;
}

/* Keeps the first places, in the order of the source. */
static void add_place(struct source_stats *s, const struct special_place *place)
{
    size_t at = s->num_places;
    s->num_special++;
    while (at && s->places[at - 1].position > place->position) at--;
    if (at == SOURCE_STATS_PLACES) return;
    if (s->num_places < SOURCE_STATS_PLACES) s->num_places++;
    memmove(s->places + at + 1, s->places + at, (s->num_places - 1 - at) * sizeof *place);
    s->places[at] = *place;
}

static int bin_of(uint64_t tokens)
{
    int bin = tokens ? 64 - __builtin_clzll(tokens) : 0;
    return bin < SOURCE_STATS_BINS ? bin : SOURCE_STATS_BINS - 1;
}

static enum status take(void *context, const struct source_document *d, struct source_tokens *t,
                        const struct token_list *ids)
{
    struct taker *k = context;
    struct source_stats *s = k->stats;
    const struct source *from = s->scan.source;
    struct document_text text = {.bytes = (const char *)ids->ids,
                                 .len = ids->count * sizeof *ids->ids};
    if (!from->holds_ids) TRY(from->kind->text(from, d, t, &text));
    uint64_t hash = text.len ? checksum_hash64(0, text.bytes, text.len) : 0;
    int32_t id = from->holds_ids ? find_id(t->tokenizer, ids) : find_name(&k->special, &text);
#pragma omp critical(source_stats_take)
    {
        s->documents++;
        s->tokens += ids->count;
        s->text_bytes += from->holds_ids ? 0 : text.len;
        s->lengths[bin_of(ids->count)]++;
        if (ids->count > s->longest) s->longest = ids->count;
        if (text.len) add_hash(k, hash);
        if (id >= 0) add_place(s, &(struct special_place){d->position, d->file, d->at, id});
    }
    return STATUS_OK;
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

enum status source_stats_run(struct source_stats *s)
{
    struct taker k = {.stats = s};
    special_names_init(&k.special, s->scan.tokenizer);
    s->scan.take = take, s->scan.taker = &k;
    enum status st = source_scan_run(&s->scan);
    if (k.count) qsort(k.hashes, k.count, sizeof *k.hashes, compare_hashes);
    for (size_t i = 1; i < k.count; i++) s->duplicates += k.hashes[i] == k.hashes[i - 1];
    s->duplicates <<= k.num_zeros;
    s->is_estimated = k.num_zeros > 0;
    s->scan.taker = NULL;
    free(k.hashes);
    special_names_release(&k.special);
    return st;
}

void source_stats_bins(const struct source_stats *s, int *first, int *last)
{
    *first = 0, *last = SOURCE_STATS_BINS - 1;
    while (*first < *last && !s->lengths[*first]) ++*first;
    while (*last > *first && !s->lengths[*last]) --*last;
}

void source_stats_release(struct source_stats *s) { source_scan_release(&s->scan); }
