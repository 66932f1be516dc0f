// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/provenance.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { GROUP_BYTES = 1 << 20, GROUPS_PER_THREAD = 4, JOURNAL_SECONDS = 5 };
enum { MAX_JOURNAL_BYTES = 64 << 20 };

/* The unit of work of one encoding thread: a range of positions, in which it finds the documents
 * itself; or, for a compressed source that only one thread can read, documents already found. */
struct prepare_group {
    struct source_range range;
    size_t first, count, next; /* of the batch's documents; next: to be encoded */
    uint64_t text_bytes;
    struct token_list ids; /* of all its documents; narrowed to token_bytes after encoding */
    int32_t *lengths;      /* of the non-empty documents */
    size_t num_lengths, lengths_capacity;
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
    char *bin, *bin_part, *idx, *idx_part, *journal;
    int bin_fd, idx_fd;
    /* how far reading has come */
    size_t source;
    uint64_t position;
    struct source_reader reader;
    /* how far writing has come */
    struct prepare_stats done;
    size_t written_source;
    uint64_t written_position;
    double journal_s; /* time of its last write */
};

static char *with_suffix(const char *prefix, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s%s", prefix, suffix);
    return t.data;
}

/* Of the settings that determine the output, besides the data. */
static uint32_t settings_fingerprint(const struct prepare_state *p)
{
    const struct prepare_request *r = p->request;
    unsigned char settings[] = {r->bos, r->eos, (unsigned char)p->done.token_bytes};
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
        is_known &= bytes > 0;
        p->done.text_total += bytes;
    }
    if (!is_known) p->done.text_total = 0;
    p->provenance = (struct provenance){.sources = p->sources,
                                        .num_sources = r->num_sources,
                                        .tokenizer = r->tokenizer,
                                        .num_readers = 1};
    return provenance_sample(&p->provenance);
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
        TRY(encoder_make(&t->encoder, r->tokenizer));
    }
    return STATUS_OK;
}

/* CONFIG: the files or the tokenizer are not those of the journal, which the caller must accept or
 * start over. */
static enum status check_provenance(struct prepare_state *p, const struct json *journal)
{
    const struct provenance_rules rules = {.accepted = &p->request->accept_changed,
                                           .saved_in = p->journal,
                                           .accept_begin = "--accept-changed ",
                                           .accept_next = " --accept-changed ",
                                           .accept_end = "",
                                           .restart = "--force starts over"};
    bool *is_changed = heap(p->request->num_sources * sizeof *is_changed);
    enum status st = provenance_check(&p->provenance, journal, &rules, is_changed);
    free(is_changed);
    return st;
}

/* Restores the progress of an earlier run; without a valid journal everything stays zero.  CONFIG:
 * as check_provenance. */
static enum status read_journal(struct prepare_state *p)
{
    struct json *j = NULL;
    int64_t settings, source, position, documents, tokens, text;
    const int64_t max = INT64_C(1) << 53;
    uint64_t bin_bytes, idx_bytes;
    enum status st = STATUS_OK;
    if (p->request->force || !file_exists(p->journal)) return STATUS_OK;
    TRY_OUT(json_read(p->journal, MAX_JOURNAL_BYTES, &j));
    TRY_OUT(json_get_int(j, "settings", 0, UINT32_MAX, &settings));
    if (settings != settings_fingerprint(p)) FAIL_OUT(DATA, "was written with other settings");
    TRY_OUT(check_provenance(p, j));
    TRY_OUT(json_get_int(j, "source", 0, (int64_t)p->request->num_sources, &source));
    TRY_OUT(json_get_int(j, "place", 0, max, &position));
    TRY_OUT(json_get_int(j, "documents", 0, max, &documents));
    TRY_OUT(json_get_int(j, "tokens", 0, max, &tokens));
    TRY_OUT(json_get_int(j, "text_bytes", 0, max, &text));
    TRY_OUT(file_size(p->bin_part, &bin_bytes));
    TRY_OUT(file_size(p->idx_part, &idx_bytes));
    if (bin_bytes < (uint64_t)tokens * (uint64_t)p->done.token_bytes ||
        idx_bytes < (uint64_t)documents * sizeof(int32_t))
        FAIL_OUT(DATA, "%s and %s are shorter than it records", p->bin_part, p->idx_part);
    p->source = p->written_source = (size_t)source;
    p->position = p->written_position = (uint64_t)position;
    p->done.documents = (uint64_t)documents, p->done.tokens = (uint64_t)tokens;
    p->done.text_bytes = p->done.text_resumed = (uint64_t)text;
    log_line(LOG_INFO, "resuming after %lld documents recorded in %s", (long long)documents,
             p->journal);
out:
    json_free(j);
    if (st == STATUS_CONFIG) return st;
    if (st) log_line(LOG_WARN, "%s: %s; starting over", p->journal, status_message());
    return STATUS_OK;
}

static enum status check_no_output(const struct prepare_state *p)
{
    const char *existing = file_exists(p->idx) ? p->idx : file_exists(p->bin) ? p->bin : NULL;
    bool unfinished = existing == p->bin && file_exists(p->journal);
    if (existing && !unfinished && !p->request->force)
        FAIL(CONFIG, "%s already exists; use --force to overwrite it", existing);
    return STATUS_OK;
}

/* Opens both .part files, truncates them to what the journal records, and locks the .bin.part. */
static enum status open_parts(struct prepare_state *p)
{
    TRY(check_no_output(p));
    p->bin_fd = open(p->bin_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->bin_fd < 0) FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    if (flock(p->bin_fd, LOCK_EX | LOCK_NB))
        FAIL(CONFIG, "%s: another process is writing it", p->bin_part);
    TRY(check_no_output(p)); /* another run may have finished before the lock */
    p->idx_fd = open(p->idx_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->idx_fd < 0) FAIL(IO, "%s: %s", p->idx_part, strerror(errno));
    TRY(read_journal(p));
    if (ftruncate(p->bin_fd, (off_t)(p->done.tokens * (uint64_t)p->done.token_bytes)) ||
        ftruncate(p->idx_fd, (off_t)(p->done.documents * sizeof(int32_t))))
        FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    return STATUS_OK;
}

/* Records what has been written, after syncing it, for a later run to resume from. */
static enum status write_journal(struct prepare_state *p)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    if (fdatasync(p->bin_fd) || fdatasync(p->idx_fd))
        FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "settings", settings_fingerprint(p));
    json_write_int(&w, "source", (int64_t)p->written_source);
    json_write_int(&w, "place", (int64_t)p->written_position);
    json_write_int(&w, "documents", (int64_t)p->done.documents);
    json_write_int(&w, "tokens", (int64_t)p->done.tokens);
    json_write_int(&w, "text_bytes", (int64_t)p->done.text_bytes);
    provenance_write(&p->provenance, &w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(&t, "\n");
    enum status st = file_write(p->journal, t.data, t.len);
    text_release(&t);
    p->journal_s = clock_monotonic_s();
    return st;
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
    narrow_ids(g, p->done.token_bytes);
    return source_tokens_check(&w->tokens);
}

static enum status write_batch(struct prepare_state *p, const struct prepare_batch *b)
{
    uint64_t each = (uint64_t)p->done.token_bytes;
    if (!b->num_groups) return STATUS_OK;
    for (size_t i = 0; i < b->num_groups; i++) {
        const struct prepare_group *g = &b->groups[i];
        TRY(file_write_at(p->bin_fd, p->bin_part, g->ids.ids, g->ids.count * each,
                          p->done.tokens * each));
        TRY(file_write_at(p->idx_fd, p->idx_part, g->lengths, g->num_lengths * sizeof *g->lengths,
                          p->done.documents * sizeof *g->lengths));
        p->done.tokens += g->ids.count;
        p->done.documents += g->num_lengths;
        p->done.text_bytes += g->text_bytes;
    }
    p->written_source = b->source, p->written_position = b->next_position;
    if (clock_monotonic_s() - p->journal_s > JOURNAL_SECONDS) TRY(write_journal(p));
    if (p->request->progress) p->request->progress(p->request->context, &p->done);
    return STATUS_OK;
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
    }
    for (size_t i = 0; i < b->capacity; i++) text_release(&b->documents[i].text);
    free(b->groups);
    free(b->documents);
}

static enum status write_tokens(struct prepare_state *p)
{
    struct prepare_batch batches[3] = {0};
    enum status st = STATUS_OK;
    p->journal_s = clock_monotonic_s();
    TRY_OUT(read_batch(p, &batches[0]));
    for (size_t k = 0; batches[k % 3].num_groups || batches[(k + 2) % 3].num_groups; k++)
        TRY_OUT(
            run_pipeline_step(p, &batches[(k + 1) % 3], &batches[k % 3], &batches[(k + 2) % 3]));
out:
    for (size_t i = 0; i < 3; i++) batch_free(&batches[i]);
    struct failure failure = {0};
    if (status_save(&failure, st) && p->done.documents) {
        write_journal(p); /* keep what was complete before the failure */
        status_restore(&failure);
    }
    return st;
}

/* Writes the .idx from the lengths in the .part: pointers and document indices follow from them. */
static enum status write_index(struct prepare_state *p, const char *temporary)
{
    enum { BATCH_ENTRIES = 1 << 16 };
    uint64_t n = p->done.documents, at = MEGATRON_HEADER_BYTES, pointer = 0;
    uint64_t each = (uint64_t)p->done.token_bytes;
    int32_t *lengths = heap(BATCH_ENTRIES * sizeof *lengths);
    int64_t *values = heap(BATCH_ENTRIES * sizeof *values);
    unsigned char head[MEGATRON_HEADER_BYTES];
    enum status st = STATUS_OK;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) FAIL_OUT(IO, "%s: %s", temporary, strerror(errno));
    megatron_build_header(p->done.token_bytes == 2 ? MEGATRON_U16 : MEGATRON_I32, n, head);
    TRY_OUT(file_write_at(fd, temporary, head, sizeof head, 0));
    for (int array = 0; array < 3; array++) { /* lengths; pointers; documents and end */
        uint64_t items = array == 2 ? n + 1 : n;
        for (uint64_t i = 0; i < items; i += BATCH_ENTRIES) {
            size_t count = items - i < BATCH_ENTRIES ? (size_t)(items - i) : BATCH_ENTRIES;
            size_t bytes = count * (array ? sizeof *values : sizeof *lengths);
            if (array < 2)
                TRY_OUT(file_read_at(p->idx_fd, p->idx_part, lengths, count * sizeof *lengths,
                                     i * sizeof *lengths));
            for (size_t j = 0; j < count && array; j++) {
                values[j] = array == 1 ? (int64_t)pointer : (int64_t)(i + j);
                if (array == 1) pointer += (uint64_t)lengths[j] * each;
            }
            TRY_OUT(file_write_at(fd, temporary, array ? (void *)values : lengths, bytes, at));
            at += bytes;
        }
    }
    if (fsync(fd)) FAIL_OUT(IO, "%s: %s", temporary, strerror(errno));
out:
    if (fd >= 0) close(fd);
    free(lengths), free(values);
    return st;
}

static enum status rename_to(const char *from, const char *to)
{
    if (rename(from, to)) FAIL(IO, "%s: %s", to, strerror(errno));
    return STATUS_OK;
}

/* Renames to the final names, the index last: its presence marks a complete pair. */
static enum status publish(struct prepare_state *p)
{
    char *temporary = with_suffix(p->request->prefix, ".idx.tmp");
    char *slash = strrchr(p->bin, '/');
    char *folder = slash ? heap_string(p->bin, (size_t)(slash - p->bin) + 1) : heap_string(".", 1);
    enum status st = STATUS_OK;
    if (!p->done.documents)
        FAIL_OUT(DATA, "%s: the source has no document", p->request->sources->path);
    p->written_source = p->request->num_sources, p->written_position = 0;
    TRY_OUT(write_journal(p));
    TRY_OUT(write_index(p, temporary));
    unlink(p->idx); /* an old index would not match the new .bin */
    TRY_OUT(rename_to(p->bin_part, p->bin));
    TRY_OUT(rename_to(temporary, p->idx));
    TRY_OUT(file_sync_dir(folder));
    unlink(p->idx_part);
    unlink(p->journal);
out:
    free(temporary), free(folder);
    return st;
}

enum status prepare_token_files(const struct prepare_request *request, struct prepare_stats *done)
{
    struct prepare_state p = {.request = request, .bin_fd = -1, .idx_fd = -1};
    const char *prefix = request->prefix;
    enum status st = STATUS_OK;
    p.done.token_bytes = tokenizer_vocab_size(request->tokenizer) < 65500 ? 2 : 4;
    p.bin = with_suffix(prefix, ".bin"), p.bin_part = with_suffix(prefix, ".bin.part");
    p.idx = with_suffix(prefix, ".idx"), p.idx_part = with_suffix(prefix, ".idx.part");
    p.journal = with_suffix(prefix, ".prepare.json");
    TRY_OUT(open_sources(&p));
    TRY_OUT(open_workers(&p));
    TRY_OUT(open_parts(&p));
    TRY_OUT(write_tokens(&p));
    TRY_OUT(publish(&p));
    *done = p.done;
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
    if (p.bin_fd >= 0) close(p.bin_fd);
    if (p.idx_fd >= 0) close(p.idx_fd);
    free(p.workers), free(p.sources);
    free(p.bin), free(p.bin_part), free(p.idx), free(p.idx_part), free(p.journal);
    return st;
}
