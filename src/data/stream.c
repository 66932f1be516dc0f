// SPDX-License-Identifier: Apache-2.0
#include "data/stream.h"

#include "base/rng.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT_IDS = 1 << 18 }; /* IDs: larger buffers are freed between documents */

void stream_init(struct stream *s, const struct stream_rules *rules, uint64_t number)
{
    *s = (struct stream){.rules = rules, .number = number, .source = -1, .carry = -1};
    s->partitions = heap(rules->num_sources * sizeof *s->partitions);
    for (size_t i = 0; i < rules->num_sources; i++) {
        struct partition *p = &s->partitions[i];
        p->range = source_part(&rules->sources[i], number, rules->num_streams);
        p->window_begin = p->range.position;
    }
}

static void partition_release(struct partition *p, uint64_t window)
{
    for (uint64_t i = 0; p->window && i < window; i++) text_release(&p->window[i].text);
    source_reader_close(&p->reader);
    free(p->window);
    free(p->order);
}

void stream_release(struct stream *s)
{
    for (size_t i = 0; s->partitions && i < s->rules->num_sources; i++)
        partition_release(&s->partitions[i], s->rules->window);
    free(s->partitions);
    token_list_release(&s->tokens);
}

static uint64_t mix_bits(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static bool is_held_out(const struct stream_rules *r, size_t source, uint64_t position)
{
    return r->validation_share > 0 && rng_uniform(0, RNG_VALIDATION, r->identities[source].place,
                                                  position) < r->validation_share;
}

/* A scan for documents that the rules let the streams read. */
struct document_scan {
    const struct stream_rules *rules;
    size_t source;
    struct source_reader reader;
    struct source_document found;
};

static enum status find_allowed(struct document_scan *scan, struct source_range *c, bool *none)
{
    const struct stream_rules *r = scan->rules;
    const struct source *s = &r->sources[scan->source];
    do {
        TRY(source_find(s, &scan->reader, c, &scan->found, none));
    } while (!*none && is_held_out(r, scan->source, scan->found.position) != r->held_out);
    return STATUS_OK;
}

/* Counts the partitions of a compressed source that have a document: reads each file once, from its
 * start, for all of its partitions. */
static enum status count_compressed(struct document_scan *scan, uint64_t streams, uint64_t *filled)
{
    const struct source *s = &scan->rules->sources[scan->source];
    unsigned char *seen = heap(streams);
    uint64_t groups = s->num_files < streams ? s->num_files : streams;
    enum status st = STATUS_OK;
    *filled = 0;
    for (uint64_t group = 0; group < groups; group++) {
        struct source_range range = source_part(s, group, groups);
        uint64_t left = (streams - group + groups - 1) / groups;
        for (bool none = false; left;) {
            TRY_OUT(find_allowed(scan, &range, &none));
            if (none) goto out; /* one partition is empty: the answer is known */
            uint64_t part = source_compressed_part(s, scan->found.position, streams);
            left -= !seen[part], *filled += !seen[part];
            seen[part] = 1;
        }
    }
out:
    free(seen);
    return st;
}

/* Counts the partitions before the first one that has no document. */
static enum status count_seekable(struct document_scan *scan, uint64_t streams, uint64_t *filled)
{
    const struct source *s = &scan->rules->sources[scan->source];
    bool none = false;
    for (*filled = 0; *filled < streams; ++*filled) {
        struct source_range range = source_part(s, *filled, streams);
        TRY(find_allowed(scan, &range, &none));
        if (none) break;
    }
    return STATUS_OK;
}

enum status stream_can_partition(const struct stream_rules *r, size_t source, uint64_t streams,
                                 bool *can)
{
    struct document_scan scan = {.rules = r, .source = source};
    uint64_t filled = 0;
    bool seeks = r->sources[source].kind->seeks;
    enum status st = (seeks ? count_seekable : count_compressed)(&scan, streams, &filled);
    if (!st) *can = filled == streams;
    source_reader_close(&scan.reader);
    text_release(&scan.found.text);
    return st;
}

/* Fisher-Yates, with counter-based random numbers. */
static void shuffle(const struct stream *s, size_t source, struct partition *p)
{
    const struct stream_rules *r = s->rules;
    const struct source_identity *id = &r->identities[source];
    uint64_t step = (s->number * id->count + id->place) & 0xFFFFFFFFFF;
    uint64_t key = mix_bits(p->epoch ^ mix_bits(p->window_begin));
    for (uint64_t i = 0; i < p->count; i++) p->order[i] = (uint32_t)i;
    for (uint64_t i = p->count; i > 1 && !r->once; i--) {
        uint64_t j = rng_below(i, r->seed, RNG_SHUFFLE, step, key + i);
        uint32_t kept = p->order[i - 1];
        p->order[i - 1] = p->order[j];
        p->order[j] = kept;
    }
}

/* Finds the documents of the window at p->window_begin. */
static enum status load_window(struct stream *s, size_t source, struct partition *p)
{
    const struct stream_rules *r = s->rules;
    bool none = false;
    if (!p->window) {
        p->window = heap(r->window * sizeof *p->window);
        p->order = heap(r->window * sizeof *p->order);
    }
    struct source_range range = p->range;
    range.position = p->window_begin;
    for (p->count = 0; p->count < r->window;) {
        struct source_document *f = &p->window[p->count];
        TRY(source_find(&r->sources[source], &p->reader, &range, f, &none));
        if (none) break;
        p->count += is_held_out(r, source, f->position) == r->held_out;
    }
    p->after = range.position;
    source_reader_trim(&p->reader);
    if (r->sources[source].is_changed && p->used > p->count) p->used = p->count;
    shuffle(s, source, p);
    p->loaded = true;
    return STATUS_OK;
}

/* The next window, or the first one of the next epoch; in a single pass *none is set at the end of
 * the partition. */
static enum status next_window(struct stream *s, size_t source, struct partition *p, bool *none)
{
    const struct stream_rules *r = s->rules;
    p->window_begin = p->after;
    p->used = 0;
    TRY(load_window(s, source, p));
    *none = false;
    if (p->count) return STATUS_OK;
    *none = r->once;
    if (r->once) return STATUS_OK;
    /* The first empty epoch may be partial, after a resume; the second one is complete. */
    if (p->empty_epochs++)
        FAIL(DATA, "%s: all documents of stream %llu of %llu are empty or bad; lower data.streams",
             r->sources[source].config->path, (unsigned long long)s->number,
             (unsigned long long)r->num_streams);
    p->epoch++;
    p->window_begin = p->range.position;
    return load_window(s, source, p);
}

static size_t choose_source(const struct stream *s)
{
    const struct stream_rules *r = s->rules;
    double total = 0, at = rng_uniform(r->seed, RNG_SOURCE, s->number, (uint64_t)s->draws);
    for (size_t i = 0; i < r->num_sources; i++) total += r->sources[i].config->weight;
    at *= total;
    size_t last = 0;
    for (size_t i = 0; i < r->num_sources; i++) {
        double weight = r->sources[i].config->weight;
        at -= weight;
        if (weight > 0) last = i;
        if (at < 0 && weight > 0) break;
    }
    return last;
}

static enum status read_document(struct stream *s, struct source_tokens *t)
{
    struct partition *p = &s->partitions[s->source];
    if (t->bad) t->bad->is_repeat = s->needs_reread || p->epoch > 0;
    if (!p->loaded) TRY(load_window(s, (size_t)s->source, p));
    if (s->tokens.capacity > MAX_KEPT_IDS) token_list_release(&s->tokens);
    s->tokens.count = 0;
    s->needs_reread = false;
    if (!p->used && s->rules->sources[s->source].is_changed) return STATUS_OK;
    if (p->used < 1 || p->used > p->count)
        FAIL(DATA, "%s: the data position points outside its shuffle window: the data has changed",
             s->rules->sources[s->source].config->path);
    TRY(source_read(&s->rules->sources[s->source], &p->window[p->order[p->used - 1]], t,
                    &s->tokens));
    if (s->tokens.count) p->empty_epochs = 0;
    return STATUS_OK;
}

/* Draws documents until one has tokens, or a single pass ends. */
static enum status draw_document(struct stream *s, struct source_tokens *t)
{
    const struct stream_rules *r = s->rules;
    for (s->tokens.count = 0; !s->tokens.count;) {
        bool none = false;
        if (r->once)
            s->source = s->source < 0 ? 0 : s->source;
        else
            s->source = (int64_t)choose_source(s);
        struct partition *p = &s->partitions[s->source];
        if (!p->loaded) TRY(load_window(s, (size_t)s->source, p));
        if (p->used == p->count) TRY(next_window(s, (size_t)s->source, p, &none));
        if (none && s->source + 1 == (int64_t)r->num_sources) {
            s->ended = true;
            return STATUS_OK;
        }
        if (none) {
            s->source++;
            continue;
        }
        p->used++;
        s->draws++;
        s->offset = 0;
        TRY(read_document(s, t));
    }
    return STATUS_OK;
}

/* Notes that the row has tokens of the current document, from `first` on. */
static void add_span(const struct stream *s, struct token_row *row, struct token_span span)
{
    const struct partition *p = s->source < 0 ? NULL : &s->partitions[s->source];
    if (!row->spans || !p || p->used < 1 || p->used > p->count) return;
    const struct source_document *d = &p->window[p->order[p->used - 1]];
    span.source = (size_t)s->source, span.file = d->file, span.at = d->at;
    token_spans_add(row->spans, &span);
}

enum status stream_row(struct stream *s, struct source_tokens *t, struct token_row *row)
{
    int n = 0, need = row->need;
    memset(row->begins, 0, (size_t)need);
    if (row->spans) row->spans->count = 0;
    if (s->needs_reread) TRY(read_document(s, t));
    if (s->rules->overlap && s->carry >= 0) {
        add_span(s, row, (struct token_span){.count = 1, .first = (uint64_t)s->offset - 1});
        row->ids[n++] = (int32_t)s->carry;
    }
    while (n < need) {
        if ((size_t)s->offset >= s->tokens.count) {
            TRY(draw_document(s, t));
            if (s->ended) break;
            row->begins[n] = TOKEN_BEGINS;
        }
        size_t left = s->tokens.count - (size_t)s->offset, room = (size_t)(need - n);
        size_t count = left < room ? left : room;
        memcpy(row->ids + n, s->tokens.ids + s->offset, count * sizeof *row->ids);
        add_span(
            s, row,
            (struct token_span){.begin = n, .count = (int)count, .first = (uint64_t)s->offset});
        n += (int)count;
        s->offset += (int64_t)count;
    }
    if (n == need && s->rules->overlap) s->carry = row->ids[need - 1];
    s->rows++;
    row->filled = n;
    return STATUS_OK;
}

void stream_save(const struct stream *s, int64_t *ints)
{
    const int64_t own[STREAM_INTS] = {s->rows, s->draws, s->source, s->offset, s->carry};
    memcpy(ints, own, sizeof own);
    for (size_t i = 0; i < s->rules->num_sources; i++) {
        const struct partition *p = &s->partitions[i];
        const int64_t partition[PARTITION_INTS] = {(int64_t)p->epoch, (int64_t)p->window_begin,
                                                   (int64_t)p->used};
        memcpy(ints + STREAM_INTS + PARTITION_INTS * i, partition, sizeof partition);
    }
}

static enum status fail_damaged(const struct stream *s)
{
    FAIL(DATA, "the data position of stream %llu is damaged", (unsigned long long)s->number);
}

/* The position in one source, from its saved integers. */
static bool load_partition(struct partition *p, const struct source *source, const int64_t *ints)
{
    if (ints[0] < 0 || ints[1] < 0 || ints[2] < 0) return false;
    p->epoch = (uint64_t)ints[0], p->window_begin = (uint64_t)ints[1];
    p->used = (uint64_t)ints[2];
    p->loaded = false;
    if (source->is_changed && p->window_begin < p->range.position)
        p->window_begin = p->range.position;
    return p->window_begin >= p->range.position;
}

enum status stream_load(struct stream *s, const int64_t *ints, const struct stream_sources *from)
{
    const struct stream_rules *r = s->rules;
    int64_t num_saved = (int64_t)(from ? from->num_saved : r->num_sources);
    int64_t reads = ints[2]; /* the saved source of the document that it is in */
    bool good = ints[0] >= 0 && ints[1] >= 0 && ints[3] >= 0 && ints[4] >= -1;
    good &= reads >= -1 && reads < num_saved;
    s->rows = ints[0], s->draws = ints[1], s->source = -1;
    s->offset = ints[3], s->carry = r->overlap ? ints[4] : -1;
    for (size_t i = 0; i < r->num_sources && good; i++) {
        size_t saved = from ? from->saved[i] : i;
        if (saved == SIZE_MAX) continue;
        const int64_t *own = ints + STREAM_INTS + PARTITION_INTS * saved;
        good &= load_partition(&s->partitions[i], &r->sources[i], own);
        if ((int64_t)saved == reads) s->source = (int64_t)i;
    }
    if (!good) return fail_damaged(s);
    s->tokens.count = 0;
    if (from && from->drops_documents) s->source = s->carry = -1;
    if (s->source < 0) s->offset = 0;
    /* `used` is 0 at the end of a single pass */
    s->needs_reread = s->source >= 0 && s->draws > 0 && s->partitions[s->source].used > 0;
    return STATUS_OK;
}
