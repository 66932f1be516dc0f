// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { GROUP_BYTES = 1 << 20, GROUPS_PER_THREAD = 4, JOURNAL_SECONDS = 5 };

/* Documents that one thread encodes at a time: those of a range of places, which it finds itself,
 * or of a packed source, which only one can read, documents that were found. */
struct group {
    uint64_t place, end;
    size_t first, count;
    uint64_t text_bytes;
    struct token_list ids; /* of all its documents; packed to token_bytes once they are encoded */
    int32_t *lengths;      /* of the documents that are not empty */
    size_t num_lengths, lengths_capacity;
};

/* What is read, then encoded, then written. */
struct batch {
    size_t source;  /* all of it is of one source */
    uint64_t after; /* the place behind it */
    struct found *documents;
    size_t count, capacity;
    struct group *groups;
    size_t num_groups, most_groups;
};

/* One a thread. */
struct worker {
    struct source_tokens tokens;
    struct source_reader reader;
    size_t source; /* that it reads */
    struct found found;
};

struct preparing {
    const struct prepare *request;
    struct source *sources;
    int threads;
    struct worker *workers;
    uint32_t fingerprint; /* of all that decides about the output's bytes */
    char *bin, *bin_part, *idx, *idx_part, *journal;
    int bin_fd, idx_fd;
    /* the reader's place */
    size_t source;
    uint64_t place;
    struct source_reader reader;
    /* what is written */
    struct prepared done;
    size_t written_source;
    uint64_t written_place;
    double journal_s; /* when it was written last */
};

static char *with_suffix(const char *prefix, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s%s", prefix, suffix);
    return t.data;
}

/* Sources, tokenizer and settings: another request does not go on with this one's files. */
static enum status take_fingerprint(struct preparing *p)
{
    const struct prepare *r = p->request;
    const char *path = tokenizer_path(r->tokenizer);
    unsigned char settings[] = {r->bos, r->eos, (unsigned char)p->done.token_bytes};
    uint32_t crc = checksum_crc32c(0, settings, sizeof settings);
    for (size_t i = 0; i < r->num_sources; i++)
        crc = checksum_crc32c(crc, &p->sources[i].fingerprint, sizeof p->sources[i].fingerprint);
    if (path[0]) {
        struct file_map map;
        TRY(file_map_open(&map, path));
        crc = checksum_crc32c(crc, map.data, map.size);
        file_map_close(&map);
    }
    p->fingerprint = crc;
    return STATUS_OK;
}

static enum status open_sources(struct preparing *p)
{
    const struct prepare *r = p->request;
    bool is_known = true;
    p->sources = heap(r->num_sources * sizeof *p->sources);
    for (size_t i = 0; i < r->num_sources; i++) {
        TRY(source_open(&p->sources[i], &r->sources[i]));
        is_known &= p->sources[i].kind == SOURCE_LINES || p->sources[i].kind == SOURCE_CHUNKS;
        for (size_t f = 0; f < p->sources[i].num_files; f++)
            p->done.text_total += p->sources[i].files[f].map.size;
    }
    if (!is_known) p->done.text_total = 0;
    return STATUS_OK;
}

static enum status open_workers(struct preparing *p)
{
    const struct prepare *r = p->request;
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

/* How far an earlier run came; everything stays zero where there is none that fits. */
static enum status read_journal(struct preparing *p)
{
    struct json *j = NULL;
    int64_t fingerprint, source, place, documents, tokens, text;
    const int64_t most = INT64_C(1) << 53;
    uint64_t bin_bytes, idx_bytes;
    enum status st = STATUS_OK;
    if (p->request->force || !file_exists(p->journal)) return STATUS_OK;
    TRY_OUT(json_read(p->journal, 1 << 16, &j));
    TRY_OUT(json_get_int(j, "fingerprint", 0, UINT32_MAX, &fingerprint));
    TRY_OUT(json_get_int(j, "source", 0, (int64_t)p->request->num_sources, &source));
    TRY_OUT(json_get_int(j, "place", 0, most, &place));
    TRY_OUT(json_get_int(j, "documents", 0, most, &documents));
    TRY_OUT(json_get_int(j, "tokens", 0, most, &tokens));
    TRY_OUT(json_get_int(j, "text_bytes", 0, most, &text));
    TRY_OUT(file_size(p->bin_part, &bin_bytes));
    TRY_OUT(file_size(p->idx_part, &idx_bytes));
    if (fingerprint != p->fingerprint)
        FAIL_OUT(DATA, "it is of other sources, another tokenizer or other settings");
    if (bin_bytes < (uint64_t)tokens * (uint64_t)p->done.token_bytes ||
        idx_bytes < (uint64_t)documents * sizeof(int32_t))
        FAIL_OUT(DATA, "%s and %s are shorter than it says", p->bin_part, p->idx_part);
    p->source = p->written_source = (size_t)source;
    p->place = p->written_place = (uint64_t)place;
    p->done.documents = (uint64_t)documents, p->done.tokens = (uint64_t)tokens;
    p->done.text_bytes = p->done.text_resumed = (uint64_t)text;
    log_line(LOG_INFO, "going on after %lld documents of %s", (long long)documents, p->journal);
out:
    if (st) log_line(LOG_WARN, "%s: %s; starting anew", p->journal, status_message());
    json_free(j);
    return STATUS_OK;
}

static enum status refuse_existing(const struct preparing *p)
{
    const char *there = file_exists(p->idx) ? p->idx : file_exists(p->bin) ? p->bin : NULL;
    bool unfinished = there == p->bin && file_exists(p->journal);
    if (there && !unfinished && !p->request->force)
        FAIL(CONFIG, "%s is there; --force replaces it", there);
    return STATUS_OK;
}

/* Both parts, cut to what the journal vouches for; the .bin's is locked. */
static enum status open_parts(struct preparing *p)
{
    TRY(refuse_existing(p));
    p->bin_fd = open(p->bin_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->bin_fd < 0) FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    if (flock(p->bin_fd, LOCK_EX | LOCK_NB))
        FAIL(CONFIG, "%s: another process is writing it", p->bin_part);
    TRY(refuse_existing(p)); /* it may have been finished while this waited to be let in */
    p->idx_fd = open(p->idx_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->idx_fd < 0) FAIL(IO, "%s: %s", p->idx_part, strerror(errno));
    TRY(read_journal(p));
    if (ftruncate(p->bin_fd, (off_t)(p->done.tokens * (uint64_t)p->done.token_bytes)) ||
        ftruncate(p->idx_fd, (off_t)(p->done.documents * sizeof(int32_t))))
        FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    return STATUS_OK;
}

/* Everything written so far becomes what a next run may build on. */
static enum status write_journal(struct preparing *p)
{
    struct text t = {0};
    if (fdatasync(p->bin_fd) || fdatasync(p->idx_fd))
        FAIL(IO, "%s: %s", p->bin_part, strerror(errno));
    text_addf(&t,
              "{\"fingerprint\": %u, \"source\": %zu, \"place\": %llu, \"documents\": %llu, "
              "\"tokens\": %llu, \"text_bytes\": %llu}\n",
              p->fingerprint, p->written_source, (unsigned long long)p->written_place,
              (unsigned long long)p->done.documents, (unsigned long long)p->done.tokens,
              (unsigned long long)p->done.text_bytes);
    enum status st = file_write(p->journal, t.data, t.len);
    text_release(&t);
    p->journal_s = clock_monotonic_s();
    return st;
}

static struct group *next_group(struct batch *b)
{
    if (b->num_groups == b->most_groups) {
        b->most_groups = 2 * b->most_groups + 4;
        size_t old = b->num_groups;
        b->groups = heap_grow(b->groups, b->most_groups, sizeof *b->groups);
        memset(b->groups + old, 0, (b->most_groups - old) * sizeof *b->groups);
    }
    struct group *g = &b->groups[b->num_groups++];
    g->place = g->end = 0;
    g->first = b->count, g->count = 0;
    return g;
}

/* Ranges of places: nothing of them is read here. */
static void plan_ranges(struct preparing *p, struct batch *b, uint64_t most)
{
    const struct source *s = &p->sources[p->source];
    for (uint64_t planned = 0, bytes; planned < most && p->place < s->places; planned += bytes) {
        struct group *g = next_group(b);
        bytes = GROUP_BYTES;
        g->place = p->place;
        g->end = p->place = source_ahead(s, &p->reader, p->place, &bytes);
    }
}

/* The documents themselves, of a source that only one can read. */
static enum status find_documents(struct preparing *p, struct batch *b, uint64_t most)
{
    const struct source *s = &p->sources[p->source];
    struct group *g = NULL;
    for (uint64_t bytes = 0, in_group = 0; bytes < most;) {
        if (b->count == b->capacity) {
            size_t old = b->capacity;
            b->capacity = 2 * old + 64;
            b->documents = heap_grow(b->documents, b->capacity, sizeof *b->documents);
            memset(b->documents + old, 0, (b->capacity - old) * sizeof *b->documents);
        }
        struct found *f = &b->documents[b->count];
        bool none;
        TRY(source_find(s, &p->reader, 0, 1, &p->place, s->places, f, &none));
        if (none) break;
        if (!g || in_group + f->len > GROUP_BYTES) g = next_group(b), in_group = 0;
        b->count++, g->count++;
        in_group += f->len, bytes += f->len;
    }
    return STATUS_OK;
}

/* The next batch's bytes of a source, or what is left of it; nothing is left: no groups. */
static enum status read_batch(struct preparing *p, struct batch *b)
{
    uint64_t most = (uint64_t)p->threads * GROUPS_PER_THREAD * GROUP_BYTES;
    b->count = b->num_groups = 0;
    while (!b->num_groups && p->source < p->request->num_sources) {
        if (p->sources[p->source].kind == SOURCE_PACKED)
            TRY(find_documents(p, b, most));
        else
            plan_ranges(p, b, most);
        b->source = p->source, b->after = p->place;
        if (b->num_groups) break;
        source_reader_close(&p->reader);
        p->source++, p->place = 0;
    }
    return STATUS_OK;
}

/* Ids as the file has them, in the place of the list. */
static void pack(struct group *g, int token_bytes)
{
    if (token_bytes != 2) return;
    unsigned char *to = (unsigned char *)g->ids.ids;
    for (size_t i = 0; i < g->ids.count; i++) {
        uint16_t id = (uint16_t)g->ids.ids[i];
        memcpy(to + 2 * i, &id, 2);
    }
}

/* Document `i` of a group; NULL: there is none. */
static enum status next_document(const struct preparing *p, struct worker *w, const struct batch *b,
                                 struct group *g, size_t i, const struct found **out)
{
    bool none;
    *out = i < g->count ? &b->documents[g->first + i] : NULL;
    if (g->place >= g->end) return STATUS_OK;
    if (w->source != b->source) source_reader_close(&w->reader);
    w->source = b->source;
    TRY(source_find(&p->sources[b->source], &w->reader, 0, 1, &g->place, g->end, &w->found, &none));
    if (!none) *out = &w->found;
    return STATUS_OK;
}

static void add_length(struct group *g, size_t length)
{
    if (!length) return;
    if (g->num_lengths == g->lengths_capacity) {
        g->lengths_capacity = 2 * g->lengths_capacity + 64;
        g->lengths = heap_grow(g->lengths, g->lengths_capacity, sizeof *g->lengths);
    }
    g->lengths[g->num_lengths++] = (int32_t)length;
}

static enum status encode_group(const struct preparing *p, struct worker *w, const struct batch *b,
                                struct group *g)
{
    const struct source *s = &p->sources[b->source];
    const struct found *f;
    g->ids.count = g->num_lengths = 0;
    g->text_bytes = 0;
    for (size_t i = 0;; i++) {
        TRY(next_document(p, w, b, g, i, &f));
        if (!f) break;
        size_t before = g->ids.count;
        TRY(source_read(s, f, &w->tokens, &g->ids));
        size_t length = g->ids.count - before;
        if (length > INT32_MAX)
            FAIL(DATA, "%s: a document of %zu tokens; the index has room for %d", s->config->path,
                 length, INT32_MAX);
        add_length(g, length);
        g->text_bytes += f->len * (s->holds_ids ? sizeof(int32_t) : 1);
    }
    pack(g, p->done.token_bytes);
    return STATUS_OK;
}

static enum status write_batch(struct preparing *p, const struct batch *b)
{
    uint64_t each = (uint64_t)p->done.token_bytes;
    if (!b->num_groups) return STATUS_OK;
    for (size_t i = 0; i < b->num_groups; i++) {
        const struct group *g = &b->groups[i];
        TRY(file_write_at(p->bin_fd, p->bin_part, g->ids.ids, g->ids.count * each,
                          p->done.tokens * each));
        TRY(file_write_at(p->idx_fd, p->idx_part, g->lengths, g->num_lengths * sizeof *g->lengths,
                          p->done.documents * sizeof *g->lengths));
        p->done.tokens += g->ids.count;
        p->done.documents += g->num_lengths;
        p->done.text_bytes += g->text_bytes;
    }
    p->written_source = b->source, p->written_place = b->after;
    if (clock_monotonic_s() - p->journal_s > JOURNAL_SECONDS) TRY(write_journal(p));
    if (p->request->progress) p->request->progress(p->request->context, &p->done);
    return STATUS_OK;
}

/* One thread writes the batch before and plans or reads the next while the others encode this one.
 */
static enum status turn(struct preparing *p, struct batch *next, struct batch *now,
                        const struct batch *before)
{
    struct failure *group_failures = heap((now->num_groups + 1) * sizeof *group_failures);
    struct failure outer = {0};
#pragma omp parallel num_threads(p->threads)
    {
#pragma omp single nowait
        {
            enum status st = write_batch(p, before);
            failure_keep(&outer, st ? st : read_batch(p, next));
        }
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < now->num_groups; i++)
            failure_keep(&group_failures[i],
                         encode_group(p, &p->workers[omp_get_thread_num()], now, &now->groups[i]));
    }
    for (size_t i = 0; i < now->num_groups && !outer.status; i++) /* the first in the data */
        if (group_failures[i].status) outer = group_failures[i];
    free(group_failures);
    return failure_tell(&outer);
}

static void release_batch(struct batch *b)
{
    for (size_t i = 0; i < b->most_groups; i++) {
        token_list_release(&b->groups[i].ids);
        free(b->groups[i].lengths);
    }
    for (size_t i = 0; i < b->capacity; i++) text_release(&b->documents[i].text);
    free(b->groups);
    free(b->documents);
}

static enum status write_tokens(struct preparing *p)
{
    struct batch batches[3] = {0};
    enum status st = STATUS_OK;
    p->journal_s = clock_monotonic_s();
    TRY_OUT(read_batch(p, &batches[0]));
    for (size_t k = 0; batches[k % 3].num_groups || batches[(k + 2) % 3].num_groups; k++)
        TRY_OUT(turn(p, &batches[(k + 1) % 3], &batches[k % 3], &batches[(k + 2) % 3]));
out:
    for (size_t i = 0; i < 3; i++) release_batch(&batches[i]);
    struct failure failure = {0};
    if (failure_keep(&failure, st) && p->done.documents) {
        write_journal(p); /* what was whole before the failure stays so */
        failure_tell(&failure);
    }
    return st;
}

/* Lengths are in the part already; pointers and documents follow from them. */
static enum status write_index(struct preparing *p, const char *temporary)
{
    enum { PIECE = 1 << 16 };
    uint64_t n = p->done.documents, at = MEGATRON_HEAD, pointer = 0;
    uint64_t each = (uint64_t)p->done.token_bytes;
    int32_t *lengths = heap(PIECE * sizeof *lengths);
    int64_t *values = heap(PIECE * sizeof *values);
    unsigned char head[MEGATRON_HEAD];
    enum status st = STATUS_OK;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) FAIL_OUT(IO, "%s: %s", temporary, strerror(errno));
    megatron_head(p->done.token_bytes == 2 ? MEGATRON_U16 : MEGATRON_I32, n, head);
    TRY_OUT(file_write_at(fd, temporary, head, sizeof head, 0));
    for (int array = 0; array < 3; array++) { /* lengths, pointers, documents and the end */
        uint64_t items = array == 2 ? n + 1 : n;
        for (uint64_t i = 0; i < items; i += PIECE) {
            size_t count = items - i < PIECE ? (size_t)(items - i) : PIECE;
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

/* Parts to the final names, the index last: with it the pair is there. */
static enum status finish(struct preparing *p)
{
    char *temporary = with_suffix(p->request->prefix, ".idx.tmp");
    char *slash = strrchr(p->bin, '/');
    char *folder = slash ? heap_string(p->bin, (size_t)(slash - p->bin) + 1) : heap_string(".", 1);
    enum status st = STATUS_OK;
    if (!p->done.documents) FAIL_OUT(DATA, "there is no document in %s", p->request->sources->path);
    p->written_source = p->request->num_sources, p->written_place = 0;
    TRY_OUT(write_journal(p));
    TRY_OUT(write_index(p, temporary));
    unlink(p->idx); /* an old index does not fit the new .bin */
    TRY_OUT(rename_to(p->bin_part, p->bin));
    TRY_OUT(rename_to(temporary, p->idx));
    TRY_OUT(file_sync_dir(folder));
    unlink(p->idx_part);
    unlink(p->journal);
out:
    free(temporary), free(folder);
    return st;
}

enum status prepare(const struct prepare *request, struct prepared *done)
{
    struct preparing p = {.request = request, .bin_fd = -1, .idx_fd = -1};
    const char *prefix = request->prefix;
    enum status st = STATUS_OK;
    p.done.token_bytes = tokenizer_vocab_size(request->tokenizer) < 65500 ? 2 : 4;
    p.bin = with_suffix(prefix, ".bin"), p.bin_part = with_suffix(prefix, ".bin.part");
    p.idx = with_suffix(prefix, ".idx"), p.idx_part = with_suffix(prefix, ".idx.part");
    p.journal = with_suffix(prefix, ".prepare.json");
    TRY_OUT(open_sources(&p));
    TRY_OUT(open_workers(&p));
    TRY_OUT(take_fingerprint(&p));
    TRY_OUT(open_parts(&p));
    TRY_OUT(write_tokens(&p));
    TRY_OUT(finish(&p));
    *done = p.done;
out:
    source_reader_close(&p.reader);
    for (int i = 0; i < p.threads; i++) {
        encoder_free(p.workers[i].tokens.encoder);
        text_release(&p.workers[i].tokens.text);
        text_release(&p.workers[i].found.text);
        source_reader_close(&p.workers[i].reader);
    }
    for (size_t i = 0; p.sources && i < request->num_sources; i++) source_close(&p.sources[i]);
    if (p.bin_fd >= 0) close(p.bin_fd);
    if (p.idx_fd >= 0) close(p.idx_fd);
    free(p.workers), free(p.sources);
    free(p.bin), free(p.bin_part), free(p.idx), free(p.idx_part), free(p.journal);
    return st;
}
