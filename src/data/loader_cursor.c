/* loader_cursor.c -- the data position in a checkpoint. */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "base/log.h"
#include "data/loader.h"
#include "data/loader_rows.h"

#include <stdlib.h>

/* A cursor is valid only for the settings it was saved with. */
static uint32_t settings_fingerprint(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    struct text t = {0};
    text_addf(&t, "%llu %d ", (unsigned long long)l->seed, o->seq_len);
    l->order->kind->settings(l->order, &t);
    text_addf(&t, " %s %.17g %d %s %lld", objective_kind_word(o->objective->name),
              l->masked ? o->objective->mask_probability : 0, l->masked ? l->mask_id : -1,
              o->tokenizer ? tokenizer_kind(o->tokenizer) : "",
              o->tokenizer ? (long long)tokenizer_vocab_size(o->tokenizer) : 0);
    uint32_t sum = checksum_crc32c(0, t.data, t.len);
    text_release(&t);
    return sum;
}

/* Whether l->cursors[index] belongs to a stream that this rank reads. */
static bool is_own_stream(const struct loader *l, size_t index)
{
    return index / l->order->cursor_ints % (uint64_t)l->options.num_readers ==
           (uint64_t)l->options.reader;
}

/* An all-reduce (sum), in which each reader contributes its own streams' integers and 0 for the
 * others. */
enum status loader_gather_cursor(struct loader *l, const struct comm *readers)
{
    size_t count = loader_num_cursor_ints(l);
    for (size_t i = 0; i < count; i++)
        if (!is_own_stream(l, i)) l->cursors[i] = 0;
    TRY(comm_all_reduce_int64(readers, REDUCE_SUM, l->cursors, count));
    l->bad_total[0] = (int64_t)l->bad.num_read, l->bad_total[1] = (int64_t)l->bad.num_bad;
    if (loader_skips_bad(l)) TRY(comm_all_reduce_int64(readers, REDUCE_SUM, l->bad_total, 2));
    return provenance_gather(&l->provenance, readers);
}

enum { CURSOR_FORMAT = 1, MAX_STREAMS = 1 << 20 /* as data.streams */ };

/* Rows before the position that were never trained on, or in vain. */
static void write_passed(const struct loader *l, struct json_writer *w)
{
    struct row_ranges all = {0};
    row_ranges_add_part(&all, &l->passed, (struct row_interval){0, UINT64_MAX});
    row_ranges_add_part(&all, &l->skips, (struct row_interval){l->first_row, loader_position(l)});
    row_ranges_write(&all, "passed_over", w);
    row_ranges_release(&all);
}

void loader_save(const struct loader *l, struct json_writer *w)
{
    uint64_t next = loader_position(l);
    size_t ints = l->order->cursor_ints;
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "format", CURSOR_FORMAT);
    json_write_int(w, "next_row", (int64_t)next);
    write_passed(l, w);
    json_write_int(w, "settings", settings_fingerprint(l));
    if (loader_skips_bad(l)) {
        json_begin_object(w, "records", JSON_INLINE);
        json_write_int(w, "read", l->bad_total[0]);
        json_write_int(w, "bad", l->bad_total[1]);
        json_end_object(w);
    }
    provenance_write(&l->provenance, w);
    json_begin_array(w, "streams", JSON_INLINE);
    for (uint64_t s = 0; s < l->order->num_streams; s++) {
        json_newline(w, 0);
        json_begin_array(w, NULL, JSON_COMPACT);
        for (size_t i = 0; i < ints; i++) json_write_int(w, NULL, l->cursors[s * ints + i]);
        json_end_array(w);
    }
    json_end_array(w);
    json_end_object(w);
}

#define OR_RESTART "checkpoint.exclude_from_loading = [\"dataloader\"] restarts from the first row"

static enum status check_settings(const struct loader *l, const struct json *cursor)
{
    int64_t sum;
    TRY(json_get_int(cursor, "settings", 0, UINT32_MAX, &sum));
    if (sum != settings_fingerprint(l))
        FAIL(CONFIG,
             "the data position was saved with different data settings (order, seed, seq_len, "
             "shuffle_window, bos, eos, row_overlap, packing, validation_share; split, blend, "
             "samples; tokenizer, objective); " OR_RESTART);
    return STATUS_OK;
}

/* The first reader continues the count of all. */
static enum status load_bad_total(struct loader *l, const struct json *records)
{
    int64_t max = INT64_C(1) << 53, read, bad;
    if (!records || !loader_skips_bad(l) || l->options.reader) return STATUS_OK;
    TRY(json_get_int(records, "read", 0, max, &read));
    TRY(json_get_int(records, "bad", 0, read, &bad));
    l->bad.num_read = (uint64_t)read, l->bad.num_bad = (uint64_t)bad;
    l->bad_total[0] = read, l->bad_total[1] = bad;
    return STATUS_OK;
}

static enum status check_provenance(struct loader *l, const struct json *cursor)
{
    const struct provenance_rules rules = {.accepted = &l->options.data->accept_changed,
                                           .is_quiet = l->options.reader > 0,
                                           .saved_in = "the checkpoint",
                                           .accept_begin = "data.accept_changed = [",
                                           .accept_next = ", ",
                                           .accept_end = "]",
                                           .restart = OR_RESTART};
    bool *is_changed = heap(l->num_sources * sizeof *is_changed);
    enum status st = provenance_check(&l->provenance, cursor, &rules, is_changed);
    for (size_t i = 0; i < l->num_sources; i++) l->sources[i].is_changed = !st && is_changed[i];
    free(is_changed);
    return st;
}

/* The streams of a run are those with which it began. */
static enum status adopt_streams(struct loader *l, size_t count)
{
    if (count == l->order->num_streams) return STATUS_OK;
    if (!l->order->kind->set_streams || !count || count > MAX_STREAMS)
        FAIL(DATA, "the data position has %zu streams: expected %llu", count,
             (unsigned long long)l->order->num_streams);
    enum status st = l->order->kind->set_streams(l->order, count);
    if (st) return status_prefix(st, "the data position");
    if (l->options.reader == 0)
        log_line(LOG_INFO,
                 "the data stays partitioned into the %zu streams with which the run began", count);
    loader_rows_alloc_cursors(l);
    return STATUS_OK;
}

enum status loader_load(struct loader *l, const struct json *cursor)
{
    int64_t next, max = INT64_C(1) << 53;
    BUG_IF(l->running || l->num_built);
    if (!json_is_object(cursor)) FAIL(DATA, "the checkpoint has no data position");
    const struct json *format = json_get(cursor, "format");
    if (format && !json_as_int(format, CURSOR_FORMAT, CURSOR_FORMAT, &next))
        FAIL(CONFIG, "the data position has an unknown \"format\"; this program reads format %d",
             CURSOR_FORMAT);
    TRY(check_provenance(l, cursor));
    TRY(check_settings(l, cursor));
    TRY(json_get_int(cursor, "next_row", 0, max, &next));
    const struct json *streams = json_get(cursor, "streams"), *s = json_first(streams);
    if (!json_is_array(streams)) FAIL(DATA, "the data position has no streams");
    TRY(adopt_streams(l, json_count(streams)));
    TRY(row_ranges_read(&l->passed, json_get(cursor, "passed_over")));
    const struct order_position at = {(uint64_t)next, row_ranges_rows(&l->passed),
                                      l->tokens.vocab_size};
    for (uint64_t i = 0; i < l->order->num_streams; i++, s = json_next(s)) {
        int64_t *ints = l->cursors + i * l->order->cursor_ints;
        const struct json *v = json_first(s);
        for (size_t j = 0; j < l->order->cursor_ints; j++, v = json_next(v))
            if (!v || !json_as_int(v, -1, max, &ints[j]))
                FAIL(DATA, "the data position of stream %llu is damaged", (unsigned long long)i);
        TRY(l->order->kind->load(l->order, i, ints, &at));
    }
    l->first_row = l->step_begin = l->next = l->next_read = (uint64_t)next;
    TRY(load_bad_total(l, json_get(cursor, "records")));
    return STATUS_OK;
}
