// SPDX-License-Identifier: Apache-2.0
#include "data/stream.h"

#include "base/rng.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT_IDS = 1 << 18 }; /* IDs: larger buffers are freed between documents */

static size_t num_ints(const struct stream *s)
{
    return STREAM_INTS + PARTITION_INTS * s->rules->num_sources;
}

/* The cursor where the stream has read up to. */
static void save_state(const struct stream *s, int64_t *ints)
{
    ints[STREAM_ROWS] = s->rows, ints[STREAM_DRAWS] = s->draws, ints[STREAM_SOURCE] = s->source;
    ints[STREAM_OFFSET] = s->offset, ints[STREAM_CARRY] = s->carry;
    for (size_t i = 0; i < s->rules->num_sources; i++) {
        const struct partition *p = &s->partitions[i];
        int64_t *own = ints + STREAM_INTS + PARTITION_INTS * i;
        own[PARTITION_EPOCH] = (int64_t)p->epoch;
        own[PARTITION_WINDOW] = (int64_t)p->window_begin, own[PARTITION_USED] = (int64_t)p->used;
    }
}

static void clear_tokens(struct stream *s)
{
    if (s->tokens.capacity > MAX_KEPT_IDS) token_list_release(&s->tokens);
    s->tokens.count = 0;
}

/* best_fit: the next row begins a group. */
static void begin_group(struct stream *s)
{
    s->offset = 0;
    clear_tokens(s);
    packing_clear(&s->group);
    save_state(s, s->group_start);
}

void stream_init(struct stream *s, const struct stream_rules *rules, uint64_t number)
{
    *s = (struct stream){.rules = rules, .number = number, .source = -1, .carry = -1};
    s->partitions = heap(rules->num_sources * sizeof *s->partitions);
    for (size_t i = 0; i < rules->num_sources; i++) {
        struct partition *p = &s->partitions[i];
        p->range = source_part(&rules->sources[i], number, rules->num_streams);
        p->window_begin = p->range.position;
    }
    if (!rules->best_fit) return;
    s->group.overlap = rules->overlap;
    s->group_start = heap(num_ints(s) * sizeof *s->group_start);
    begin_group(s);
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
    packing_release(&s->group);
    free(s->group_start);
}

/* Does not depend on data.seed, so that runs with different seeds hold out the same documents. */
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

/* The random numbers of a shuffle: those of `purpose` and `step` after position `key`. */
struct shuffle {
    uint64_t seed;
    enum rng_purpose purpose;
    uint64_t step, key;
};

/* Fisher-Yates, with counter-based random numbers. */
static void shuffle(const struct shuffle *s, uint32_t *order, uint64_t count)
{
    for (uint64_t i = count; i > 1; i--) {
        uint64_t j = rng_below(i, s->seed, s->purpose, s->step, s->key + i);
        uint32_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static void shuffle_window(const struct stream *s, size_t source, struct partition *p)
{
    const struct stream_rules *r = s->rules;
    const struct source_identity *id = &r->identities[source];
    const struct shuffle by = {.seed = r->seed,
                               .purpose = RNG_SHUFFLE,
                               .step = (s->number * id->count + id->place) & 0xFFFFFFFFFF,
                               .key = rng_mix(p->epoch ^ rng_mix(p->window_begin))};
    for (uint64_t i = 0; i < p->count; i++) p->order[i] = (uint32_t)i;
    if (!r->once) shuffle(&by, p->order, p->count);
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
    shuffle_window(s, source, p);
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

/* Appends the tokens of the document that was drawn last. */
static enum status read_document(struct stream *s, struct source_tokens *t)
{
    struct partition *p = &s->partitions[s->source];
    if (t->bad) t->bad->is_repeat = s->needs_reread || p->epoch > 0;
    if (!p->loaded) TRY(load_window(s, (size_t)s->source, p));
    if (!p->used && s->rules->sources[s->source].is_changed) return STATUS_OK;
    if (p->used < 1 || p->used > p->count)
        FAIL(DATA, "%s: the data position points outside its shuffle window: the data has changed",
             s->rules->sources[s->source].config->path);
    size_t before = s->tokens.count;
    TRY(source_read(&s->rules->sources[s->source], &p->window[p->order[p->used - 1]], t,
                    &s->tokens));
    if (s->tokens.count > before) p->empty_epochs = 0;
    return STATUS_OK;
}

/* Draws documents until one has tokens, which it appends, or a single pass ends. */
static enum status draw_document(struct stream *s, struct source_tokens *t)
{
    const struct stream_rules *r = s->rules;
    for (size_t before = s->tokens.count; s->tokens.count == before;) {
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
        TRY(read_document(s, t));
    }
    return STATUS_OK;
}

/* The document that was drawn last; NULL: it is unknown. */
static const struct source_document *current_document(const struct stream *s)
{
    const struct partition *p = s->source < 0 ? NULL : &s->partitions[s->source];
    return p && p->used >= 1 && p->used <= p->count ? &p->window[p->order[p->used - 1]] : NULL;
}

/* Notes that the row has tokens of the current document, from `first` on. */
static void add_span(const struct stream *s, struct token_row *row, struct token_span span)
{
    const struct source_document *d = current_document(s);
    if (!row->spans || !d) return;
    span.source = (size_t)s->source, span.file = d->file, span.at = d->at;
    token_spans_add(row->spans, &span);
}

/* Documents follow each other without padding. */
static enum status concatenated_row(struct stream *s, struct source_tokens *t,
                                    struct token_row *row)
{
    int n = 0, need = row->need;
    if (s->needs_reread) TRY(read_document(s, t));
    s->needs_reread = false;
    if (s->rules->overlap && s->carry >= 0) {
        add_span(s, row, (struct token_span){.count = 1, .first = (uint64_t)s->offset - 1});
        row->ids[n++] = (int32_t)s->carry;
    }
    while (n < need) {
        if ((size_t)s->offset >= s->tokens.count) {
            clear_tokens(s);
            TRY(draw_document(s, t));
            if (s->ended) break;
            s->offset = 0;
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
    row->filled = n;
    return STATUS_OK;
}

/* Accepted changes of the data may have left a group with fewer rows than were read of it. */
static enum status check_group(struct stream *s)
{
    if ((size_t)s->offset < s->group.num_rows) return STATUS_OK;
    if (!s->has_changed)
        FAIL(DATA,
             "the data position of stream %llu is after row %lld of a group of %zu rows: the data "
             "has changed",
             (unsigned long long)s->number, (long long)s->offset, s->group.num_rows);
    s->offset = (int64_t)s->group.num_rows - 1;
    return STATUS_OK;
}

/* Reads and packs the documents of a group, from its start. */
static enum status read_group(struct stream *s, struct source_tokens *t)
{
    const struct shuffle by = {.seed = s->rules->seed,
                               .purpose = RNG_PACKING,
                               .step = s->number,
                               .key = rng_mix((uint64_t)s->draws)};
    do {
        size_t before = s->tokens.count;
        TRY(draw_document(s, t));
        const struct source_document *d = current_document(s);
        const struct packing_origin origin = {(size_t)s->source, d->file, d->at};
        packing_add(&s->group, before, s->tokens.count - before, &origin);
    } while (!packing_complete(&s->group));
    s->needs_reread = false;
    uint32_t *order = heap(s->group.num_rows * sizeof *order);
    for (size_t i = 0; i < s->group.num_rows; i++) order[i] = (uint32_t)i;
    shuffle(&by, order, s->group.num_rows);
    packing_reorder(&s->group, order);
    free(order);
    return check_group(s);
}

/* The next row of the group. */
static enum status packed_row(struct stream *s, struct source_tokens *t, struct token_row *row)
{
    struct packing *p = &s->group;
    if (!p->num_rows) {
        p->row_tokens = (uint32_t)row->need;
        TRY(read_group(s, t));
    }
    BUG_IF(p->row_tokens != (uint32_t)row->need);
    const struct packing_piece *piece = packing_row(p, (uint32_t)s->offset);
    const struct packing_piece *end = p->pieces + p->num_pieces;
    int n = 0;
    for (; piece < end && piece->row == s->offset; piece++) {
        memcpy(row->ids + n, s->tokens.ids + piece->at, piece->length * sizeof *row->ids);
        row->begins[n] = TOKEN_PIECE | (piece->offset ? 0 : TOKEN_BEGINS);
        if (row->spans)
            token_spans_add(row->spans, &(struct token_span){.begin = n,
                                                             .count = (int)piece->length,
                                                             .source = piece->origin.source,
                                                             .file = piece->origin.file,
                                                             .at = piece->origin.at,
                                                             .first = piece->offset});
        n += (int)piece->length;
    }
    row->filled = n;
    if ((size_t)++s->offset == p->num_rows) begin_group(s);
    return STATUS_OK;
}

enum status stream_row(struct stream *s, struct source_tokens *t, struct token_row *row)
{
    memset(row->begins, 0, (size_t)row->need);
    if (row->spans) row->spans->count = 0;
    TRY((s->rules->best_fit ? packed_row : concatenated_row)(s, t, row));
    s->rows++;
    return STATUS_OK;
}

void stream_save(const struct stream *s, int64_t *ints)
{
    if (!s->rules->best_fit) {
        save_state(s, ints);
        return;
    }
    memcpy(ints, s->group_start, num_ints(s) * sizeof *ints);
    ints[STREAM_ROWS] = s->rows, ints[STREAM_OFFSET] = s->offset;
}

static enum status fail_damaged(const struct stream *s)
{
    FAIL(DATA, "the data position of stream %llu is damaged", (unsigned long long)s->number);
}

/* The position in one source, from its saved integers. */
static bool load_partition(struct partition *p, const struct source *source, const int64_t *ints)
{
    for (int i = 0; i < PARTITION_INTS; i++)
        if (ints[i] < 0) return false;
    p->epoch = (uint64_t)ints[PARTITION_EPOCH], p->used = (uint64_t)ints[PARTITION_USED];
    p->window_begin = (uint64_t)ints[PARTITION_WINDOW];
    p->loaded = false;
    if (source->is_changed && p->window_begin < p->range.position)
        p->window_begin = p->range.position;
    return p->window_begin >= p->range.position;
}

enum status stream_load(struct stream *s, const int64_t *ints, const struct stream_sources *from)
{
    const struct stream_rules *r = s->rules;
    int64_t num_saved = (int64_t)(from ? from->num_saved : r->num_sources);
    int64_t reads = ints[STREAM_SOURCE]; /* the saved source of the document that it is in */
    int64_t carry = ints[STREAM_CARRY];
    s->rows = ints[STREAM_ROWS], s->draws = ints[STREAM_DRAWS], s->source = -1;
    s->offset = ints[STREAM_OFFSET], s->carry = r->overlap ? carry : -1;
    bool good = s->rows >= 0 && s->draws >= 0 && s->offset >= 0 && carry >= -1;
    good &= reads >= -1 && reads < num_saved;
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
    if (!r->best_fit) return STATUS_OK;
    s->needs_reread = ints[STREAM_OFFSET] > 0;
    begin_group(s);
    s->offset = ints[STREAM_OFFSET];
    s->has_changed = from && from->drops_documents;
    for (size_t i = 0; i < r->num_sources; i++) s->has_changed |= r->sources[i].is_changed;
    return STATUS_OK;
}
