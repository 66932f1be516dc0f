// SPDX-License-Identifier: Apache-2.0
#include "data/source_scan.h"

#include "base/file.h"
#include "data/source.h"
#include "data/source_kind.h"
#include "formats/megatron_sum.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_PER_THREAD = 8, SAMPLE_PARTS = 64, PROGRESS_RECORDS = 256 };

struct scan_part {
    uint64_t number, count; /* of parts */
    uint64_t bytes, left;   /* left: to read, UINT64_MAX for all */
    uint64_t extent;
    bool is_whole;
    struct bad_records bad;
    struct failure failure;
};

/* The number of the i-th of `count` places out of `total`: bits reversed, so that the first few are
 * spread over all. */
static uint64_t find_place(uint64_t i, uint64_t count, uint64_t total)
{
    uint64_t reversed = 0;
    if (count < SAMPLE_PARTS) return i;
    for (uint64_t bit = 1; bit < SAMPLE_PARTS; bit <<= 1) reversed = reversed << 1 | !!(i & bit);
    return reversed * total / SAMPLE_PARTS;
}

/* Adds a part's bytes and counts to the whole. */
static void add_progress(struct source_scan *s, struct scan_part *p)
{
#pragma omp critical(source_scan_progress)
    {
        s->bytes += p->bytes;
        s->bad.num_read += p->bad.num_read, s->bad.num_bad += p->bad.num_bad;
        if (s->progress) s->progress(s->context, s);
    }
    p->bytes = p->bad.num_read = p->bad.num_bad = 0;
}

/* Bytes of a compressed file that a reader has read; a reader at its end is closed. */
static uint64_t file_bytes(const struct source *s, const struct source_reader *r, uint64_t file)
{
    uint64_t size = 0;
    if (r->lines) return line_reader_bytes(r->lines);
    return file_size(s->files[file].path, &size) ? 0 : size;
}

static enum status read_part(struct source_scan *s, struct scan_part *p, struct source_tokens *t)
{
    struct source_range range = source_part(s->source, p->number, p->count);
    struct source_reader reader = {0};
    struct source_document d = {0};
    struct token_list ids = {0};
    uint64_t first = UINT64_MAX; /* record */
    bool none = false;
    enum status st = STATUS_OK;
    if (s->tokenizer) TRY_OUT(encoder_make(&t->encoder, s->tokenizer));
    while (p->left) {
        uint64_t num_bad = p->bad.num_bad;
        TRY_OUT(source_find(s->source, &reader, &range, &d, &none));
        if (none) break;
        if (first == UINT64_MAX) first = d.position;
        ids.count = 0;
        TRY_OUT(source_read(s->source, &d, t, &ids));
        if (s->take && p->bad.num_bad == num_bad) TRY_OUT(s->take(s->taker, &d, t, &ids));
        uint64_t bytes = d.is_bad ? 0 : d.len * (s->source->holds_ids ? sizeof(int32_t) : 1);
        p->bytes += bytes;
        if (p->left < UINT64_MAX) p->left -= bytes < p->left ? bytes : p->left;
        if (p->bad.num_read == PROGRESS_RECORDS) add_progress(s, p);
    }
    TRY_OUT(source_tokens_check(t));
    p->is_whole = none;
out:
    if (!s->source->kind->seeks)
        p->extent = file_bytes(s->source, &reader, p->number);
    else if (first < range.position)
        p->extent = range.position - first;
    source_reader_close(&reader);
    text_release(&d.text);
    token_list_release(&ids);
    return st;
}

static void scan_part(struct source_scan *s, struct scan_part *p)
{
    struct source_tokens t = {.tokenizer = s->tokenizer,
                              .vocab_size = s->vocab_size,
                              .bos = s->bos,
                              .eos = s->eos,
                              .bad = &p->bad};
    p->bad.is_unlimited = true;
    status_save(&p->failure, read_part(s, p, &t));
    add_progress(s, p);
    encoder_free(t.encoder);
    text_release(&t.text);
}

/* A line, unless the text has it: parts may share a damaged page. */
static void add_damage(struct source_scan *s, const char *line)
{
    if (s->damage.len && strstr(s->damage.data, line)) return;
    text_addf(&s->damage, "%s%s", s->damage.len ? "\n" : "", line);
}

/* Compares every byte of token files with their PREFIX.sum, if they have one. */
static void verify_sums(struct source_scan *s)
{
    for (size_t i = 0; i < s->source->num_files && s->source->kind == &source_megatron; i++) {
        const char *prefix = s->source->files[i].tokens.prefix;
        size_t len;
        uint64_t bytes;
        if (!megatron_sum_exists(prefix, &len)) continue;
        if (megatron_sum_verify(prefix, &s->damage, &bytes)) add_damage(s, status_message());
        s->num_sums++;
    }
}

enum status source_scan_run(struct source_scan *s)
{
    bool seeks = s->source->kind->seeks;
    int threads = s->threads > 0 ? s->threads : omp_get_max_threads();
    size_t spread = s->max_bytes ? SAMPLE_PARTS : (size_t)threads * PARTS_PER_THREAD;
    size_t all_parts = seeks ? spread : s->source->num_files, parts = all_parts;
    if (s->is_quick && parts > SAMPLE_PARTS) parts = SAMPLE_PARTS;
    struct scan_part *all = heap(parts * sizeof *all);
    enum status st = STATUS_OK;
    if (!s->source->holds_ids && !s->tokenizer)
        FAIL_OUT(CONFIG, "%s is text: data.tokenizer is required", s->source->config->path);
    if (!s->take) verify_sums(s);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (size_t i = 0; i < parts; i++) {
        if (s->is_quick && s->bytes >= s->max_bytes) continue;
        all[i].number = s->is_quick ? find_place(i, parts, all_parts) : i;
        all[i].count = all_parts;
        all[i].left = s->max_bytes ? s->max_bytes / parts + 1 : UINT64_MAX;
        scan_part(s, &all[i]);
    }
    s->is_whole = parts == all_parts;
    for (size_t i = 0; i < parts; i++) {
        s->extent += all[i].extent, s->is_whole &= all[i].is_whole;
        bad_records_move(&s->bad, &all[i].bad);
        if (all[i].failure.status) add_damage(s, all[i].failure.message);
    }
out:
    for (size_t i = 0; i < parts; i++) bad_records_release(&all[i].bad);
    free(all);
    return st;
}

void source_scan_release(struct source_scan *s)
{
    bad_records_release(&s->bad);
    text_release(&s->damage);
}
