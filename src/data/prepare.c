// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"

#include "base/checksum.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/prepare_output.h"
#include "data/provenance.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_BYTES = 1 << 20, GROUPS_PER_THREAD = 4 };

/* The unit of work of one encoding thread: a range of positions, in which it finds the documents
 * itself; or, for a compressed source that only one thread can read, documents already found. */
struct prepare_group {
    struct source_range range;
    size_t first, count, next; /* of the batch's documents; next: to be encoded */
    uint64_t text_bytes;
    struct token_list ids; /* of all its documents; narrowed to token_bytes after encoding */
    int32_t *lengths;      /* of the non-empty documents */
    size_t num_lengths, lengths_capacity;
    struct bad_records bad;
};

/* The unit that passes through the pipeline: read, encode, write. */
struct prepare_batch {
    size_t source;          /* the only source in it */
    uint64_t next_position; /* position after the batch */
    struct source_document *documents;
    size_t count, capacity;
    struct prepare_group *groups;
    size_t num_groups, groups_capacity;
};

/* Per thread. */
struct prepare_worker {
    struct source_tokens tokens;
    struct source_reader reader;
    size_t source; /* that `reader` is open on */
    struct source_document found;
};

struct prepare_state {
    const struct prepare_request *request;
    struct source *sources;
    int threads;
    struct prepare_worker *workers;
    struct provenance provenance;
    /* how far reading has come */
    size_t source;
    uint64_t position;
    struct source_reader reader;
    struct prepare_output output; /* how far writing has come */
};

/* A hash of the settings that determine the output, besides the data. */
static uint32_t settings_fingerprint(const struct prepare_state *p)
{
    const struct prepare_request *r = p->request;
    unsigned char settings[] = {r->bos, source_adds_eos(r->tokenizer, r->bos, r->eos),
                                (unsigned char)p->output.done.token_bytes};
    return checksum_crc32c(0, settings, sizeof settings);
}

static enum status open_sources(struct prepare_state *p)
{
    const struct prepare_request *r = p->request;
    bool is_known = true;
    p->sources = heap(r->num_sources * sizeof *p->sources);
    for (size_t i = 0; i < r->num_sources; i++) {
        TRY(source_open(&p->sources[i], &r->sources[i]));
        uint64_t bytes = source_text_bytes(&p->sources[i]);
        bool is_empty = p->sources[i].kind->seeks && !p->sources[i].num_positions;
        if (is_empty) log_line(LOG_WARN, "%s: the file has no documents", r->sources[i].path);
        is_known &= bytes > 0 || is_empty;
        p->output.done.text_total += bytes;
    }
    if (!is_known) p->output.done.text_total = 0;
    p->provenance = (struct provenance){.sources = p->sources,
                                        .num_sources = r->num_sources,
                                        .tokenizer = r->tokenizer,
                                        .num_readers = 1};
    return provenance_sample(&p->provenance);
}

/* A warning only: a file that is gone may be accepted too. */
static void warn_of_unknown_names(const struct prepare_state *p)
{
    const struct option_list *accepted = &p->request->accept_changed;
    for (size_t i = 0; i < accepted->count; i++)
        if (!provenance_has(&p->provenance, accepted->items[i]))
            log_line(LOG_WARN,
                     "--accept-changed %s has no effect: no file of the sources has this name",
                     accepted->items[i]);
}

static enum status open_workers(struct prepare_state *p)
{
    const struct prepare_request *r = p->request;
    p->threads = r->threads > 0 ? r->threads : omp_get_max_threads();
    p->workers = heap((size_t)p->threads * sizeof *p->workers);
    for (int i = 0; i < p->threads; i++) {
        struct source_tokens *t = &p->workers[i].tokens;
        *t = (struct source_tokens){.tokenizer = r->tokenizer,
                                    .vocab_size = tokenizer_vocab_size(r->tokenizer),
                                    .bos = r->bos,
                                    .eos = r->eos};
        TRY(encoder_make_sized(&t->encoder, r->tokenizer, ENCODER_CORPUS_BITS));
    }
    return STATUS_OK;
}

static struct prepare_group *add_group(struct prepare_batch *b)
{
    if (b->num_groups == b->groups_capacity) {
        b->groups_capacity = 2 * b->groups_capacity + 4;
        size_t old = b->num_groups;
        b->groups = heap_grow(b->groups, b->groups_capacity, sizeof *b->groups);
        memset(b->groups + old, 0, (b->groups_capacity - old) * sizeof *b->groups);
    }
    struct prepare_group *g = &b->groups[b->num_groups++];
    g->range = (struct source_range){0};
    g->first = b->count, g->count = g->next = 0;
    g->bad.is_unlimited = true; /* the limit is that of the whole output */
    return g;
}

/* Splits the next `max_bytes` bytes into ranges of positions, without reading them. */
static void plan_position_ranges(struct prepare_state *p, struct prepare_batch *b,
                                 uint64_t max_bytes)
{
    const struct source *s = &p->sources[p->source];
    for (uint64_t planned = 0, bytes; planned < max_bytes && p->position < s->num_positions;
         planned += bytes) {
        struct prepare_group *g = add_group(b);
        bytes = GROUP_BYTES;
        g->range = source_part(s, 0, 1);
        g->range.position = p->position;
        g->range.end = p->position = source_range_end(s, &p->reader, p->position, &bytes);
    }
}

/* Reads the next `max_bytes` bytes of documents of a compressed source. */
static enum status find_documents(struct prepare_state *p, struct prepare_batch *b,
                                  uint64_t max_bytes)
{
    const struct source *s = &p->sources[p->source];
    struct prepare_group *g = NULL;
    struct source_range range = source_part(s, 0, 1);
    range.position = p->position;
    for (uint64_t bytes = 0, in_group = 0; bytes < max_bytes;) {
        if (b->count == b->capacity) {
            size_t old = b->capacity;
            b->capacity = 2 * old + 64;
            b->documents = heap_grow(b->documents, b->capacity, sizeof *b->documents);
            memset(b->documents + old, 0, (b->capacity - old) * sizeof *b->documents);
        }
        struct source_document *f = &b->documents[b->count];
        bool none;
        TRY(source_find(s, &p->reader, &range, f, &none));
        p->position = range.position;
        if (none) break;
        if (!g || in_group + f->len > GROUP_BYTES) g = add_group(b), in_group = 0;
        b->count++, g->count++;
        in_group += f->len, bytes += f->len;
    }
    return STATUS_OK;
}

/* Fills the next batch from one source; without groups at the end of all sources. */
static enum status read_batch(struct prepare_state *p, struct prepare_batch *b)
{
    uint64_t max_bytes = (uint64_t)p->threads * GROUPS_PER_THREAD * GROUP_BYTES;
    b->count = b->num_groups = 0;
    while (!b->num_groups && p->source < p->request->num_sources) {
        if (!p->sources[p->source].kind->seeks)
            TRY(find_documents(p, b, max_bytes));
        else
            plan_position_ranges(p, b, max_bytes);
        b->source = p->source, b->next_position = p->position;
        if (b->num_groups) break;
        source_reader_close(&p->reader);
        p->source++, p->position = 0;
    }
    return STATUS_OK;
}

/* Converts the IDs in place to the width of the file. */
static void narrow_ids(struct prepare_group *g, int token_bytes)
{
    if (token_bytes != 2) return;
    unsigned char *to = (unsigned char *)g->ids.ids;
    for (size_t i = 0; i < g->ids.count; i++) {
        uint16_t id = (uint16_t)g->ids.ids[i];
        memcpy(to + 2 * i, &id, 2);
    }
}

/* The next document of a group; NULL: it has no more. */
static enum status next_document(const struct prepare_state *p, struct prepare_worker *w,
                                 const struct prepare_batch *b, struct prepare_group *g,
                                 const struct source_document **out)
{
    bool none;
    *out = g->next < g->count ? &b->documents[g->first + g->next++] : NULL;
    if (g->range.position >= g->range.end) return STATUS_OK;
    if (w->source != b->source) source_reader_close(&w->reader);
    w->source = b->source;
    TRY(source_find(&p->sources[b->source], &w->reader, &g->range, &w->found, &none));
    if (!none) *out = &w->found;
    return STATUS_OK;
}

static void append_length(struct prepare_group *g, size_t length)
{
    if (!length) return;
    if (g->num_lengths == g->lengths_capacity) {
        g->lengths_capacity = 2 * g->lengths_capacity + 64;
        g->lengths = heap_grow(g->lengths, g->lengths_capacity, sizeof *g->lengths);
    }
    g->lengths[g->num_lengths++] = (int32_t)length;
}

static enum status encode_group(const struct prepare_state *p, struct prepare_worker *w,
                                const struct prepare_batch *b, struct prepare_group *g)
{
    const struct source *s = &p->sources[b->source];
    const struct source_document *f;
    g->ids.count = g->num_lengths = 0;
    g->text_bytes = 0;
    w->tokens.bad = p->request->skips_bad ? &g->bad : NULL;
    for (;;) {
        TRY(next_document(p, w, b, g, &f));
        if (!f) break;
        size_t before = g->ids.count;
        TRY(source_read(s, f, &w->tokens, &g->ids));
        size_t length = g->ids.count - before;
        if (length > INT32_MAX)
            FAIL(DATA, "%s: a document has %zu tokens; the index format allows %d", s->config->path,
                 length, INT32_MAX);
        append_length(g, length);
        g->text_bytes += f->len * (s->holds_ids ? sizeof(int32_t) : 1);
    }
    narrow_ids(g, p->output.done.token_bytes);
    return source_tokens_check(&w->tokens);
}

static enum status write_batch(struct prepare_state *p, const struct prepare_batch *b)
{
    if (!b->num_groups) return STATUS_OK;
    for (size_t i = 0; i < b->num_groups; i++) {
        struct prepare_group *g = &b->groups[i];
        TRY(prepare_output_write(&p->output,
                                 &(struct prepare_documents){.ids = g->ids.ids,
                                                             .num_ids = g->ids.count,
                                                             .lengths = g->lengths,
                                                             .num_lengths = g->num_lengths,
                                                             .text_bytes = g->text_bytes,
                                                             .bad = &g->bad}));
    }
    TRY(prepare_output_commit(&p->output, b->source, b->next_position));
    if (p->request->progress) p->request->progress(p->request->context, &p->output.done);
    if (!signals_pending()) return STATUS_OK;
    if (!p->output.done.documents) FAIL(REQUEUE, "interrupted before the first document");
    FAIL(REQUEUE, "interrupted: %s.bin.part keeps %s; the same command resumes there",
         p->request->prefix, counted_format((int64_t)p->output.done.documents, "document").text);
}

/* One thread writes the previous batch and reads the next one while the others encode this one. */
static enum status run_pipeline_step(struct prepare_state *p, struct prepare_batch *next,
                                     struct prepare_batch *now, const struct prepare_batch *before)
{
    struct failure *group_failures = heap((now->num_groups + 1) * sizeof *group_failures);
    struct failure outer = {0};
#pragma omp parallel num_threads(p->threads)
    {
#pragma omp single nowait
        {
            enum status st = write_batch(p, before);
            status_save(&outer, st ? st : read_batch(p, next));
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < now->num_groups; i++)
            status_save(&group_failures[i],
                        encode_group(p, &p->workers[omp_get_thread_num()], now, &now->groups[i]));
    }
    for (size_t i = 0; i < now->num_groups && !outer.status;
         i++) /* report the first one in data order */
        if (group_failures[i].status) outer = group_failures[i];
    free(group_failures);
    return status_restore(&outer);
}

static void batch_free(struct prepare_batch *b)
{
    for (size_t i = 0; i < b->groups_capacity; i++) {
        token_list_release(&b->groups[i].ids);
        free(b->groups[i].lengths);
        bad_records_release(&b->groups[i].bad);
    }
    for (size_t i = 0; i < b->capacity; i++) text_release(&b->documents[i].text);
    free(b->groups);
    free(b->documents);
}

static enum status write_tokens(struct prepare_state *p)
{
    struct prepare_batch batches[3] = {0};
    enum status st = STATUS_OK;
    TRY_OUT(read_batch(p, &batches[0]));
    for (size_t k = 0; batches[k % 3].num_groups || batches[(k + 2) % 3].num_groups; k++)
        TRY_OUT(
            run_pipeline_step(p, &batches[(k + 1) % 3], &batches[k % 3], &batches[(k + 2) % 3]));
    if (!p->output.done.documents)
        FAIL_OUT(DATA, "%s: %s", p->request->sources->path,
                 p->request->num_sources > 1 ? "this source and the others have no document"
                                             : "the source has no document");
out:
    for (size_t i = 0; i < 3; i++) batch_free(&batches[i]);
    struct failure failure = {0};
    if (status_save(&failure, st)) {
        prepare_output_fail(&p->output); /* keep what was complete before the failure */
        status_restore(&failure);
    }
    return st;
}

enum status prepare_token_files(const struct prepare_request *request, struct prepare_stats *done)
{
    struct prepare_state p = {.request = request};
    enum status st = STATUS_OK;
    p.output = (struct prepare_output){.prefix = request->prefix,
                                       .num_sources = request->num_sources,
                                       .force = request->force,
                                       .provenance = &p.provenance,
                                       .accept_changed = &request->accept_changed,
                                       .bad_record_limit = request->bad_record_limit};
    p.output.done.token_bytes = tokenizer_vocab_size(request->tokenizer) < 65500 ? 2 : 4;
    TRY_OUT(open_sources(&p));
    warn_of_unknown_names(&p);
    TRY_OUT(open_workers(&p));
    p.output.settings = settings_fingerprint(&p);
    TRY_OUT(prepare_output_open(&p.output));
    p.source = p.output.source, p.position = p.output.position;
    TRY_OUT(write_tokens(&p));
    TRY_OUT(prepare_output_publish(&p.output));
    *done = p.output.done;
out:
    source_reader_close(&p.reader);
    for (int i = 0; i < p.threads; i++) {
        encoder_free(p.workers[i].tokens.encoder);
        text_release(&p.workers[i].tokens.text);
        text_release(&p.workers[i].found.text);
        source_reader_close(&p.workers[i].reader);
    }
    provenance_release(&p.provenance);
    for (size_t i = 0; p.sources && i < request->num_sources; i++) source_close(&p.sources[i]);
    prepare_output_close(&p.output);
    free(p.workers), free(p.sources);
    return st;
}
