/* loader_cursor.c -- the data position in a checkpoint. */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "base/log.h"
#include "data/loader.h"
#include "data/loader_rows.h"

#include <stdlib.h>
#include <string.h>

static uint32_t sum_of(struct text *t)
{
    uint32_t sum = checksum_crc32c(0, t->data, t->len);
    text_release(t);
    return sum;
}

/* All settings that rows depend on.  Cursors of older programs are only valid with the same, as are
 * those of an order that cannot read on with others. */
static uint32_t rows_fingerprint(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    struct text t = {0};
    text_addf(&t, "%llu %d ", (unsigned long long)l->seed, o->seq_len);
    l->order->kind->settings(l->order, true, &t);
    text_addf(&t, " %s %.17g %d %s %lld", objective_kind_word(o->objective->name),
              o->objective->name == OBJECTIVE_masked ? o->objective->mask_probability : 0,
              l->masked ? l->mask_id : -1, o->tokenizer ? tokenizer_kind(o->tokenizer) : "",
              (long long)tokenizer_vocab_size(o->tokenizer));
    return sum_of(&t);
}

/* The settings that say which documents come next. */
static uint32_t order_fingerprint(const struct loader *l)
{
    struct text t = {0};
    if (!l->order->reads_on) {
        text_addf(&t, "%u", rows_fingerprint(l));
        for (size_t i = 0; i < l->num_sources; i++)
            text_addf(&t, " %.17g", l->sources[i].config->weight);
        return sum_of(&t);
    }
    text_addf(&t, "%llu ", (unsigned long long)l->seed);
    l->order->kind->settings(l->order, false, &t);
    return sum_of(&t);
}

/* What decides the tokens of a document. */
static uint32_t tokens_fingerprint(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    struct text t = {0};
    text_addf(&t, "%d %d %016llx", o->data->bos,
              source_adds_eos(o->tokenizer, o->data->bos, o->data->eos),
              o->tokenizer ? (unsigned long long)tokenizer_hash(o->tokenizer) : 0);
    return sum_of(&t);
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

enum { OLDEST_FORMAT = 1, CURSOR_FORMAT = 2, MAX_STREAMS = 1 << 20 /* as data.streams */ };

/* Rows before the position that were skipped, or trained on and then rolled back. */
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
    if (l->next != next) json_write_int(w, "position", (int64_t)l->next);
    write_passed(l, w);
    row_ranges_write(&l->untrained, "untrained", w);
    json_write_int(w, "order", order_fingerprint(l));
    json_write_int(w, "tokens", tokens_fingerprint(l));
    json_begin_array(w, "identities", JSON_COMPACT);
    for (size_t i = 0; i < l->num_sources; i++) {
        json_begin_array(w, NULL, JSON_COMPACT);
        json_write_int(w, NULL, (int64_t)l->identities[i].place);
        json_write_int(w, NULL, (int64_t)l->identities[i].count);
        json_end_array(w);
    }
    json_end_array(w);
    if (loader_skips_bad(l)) {
        json_begin_object(w, "records", JSON_INLINE);
        json_write_int(w, "read", l->bad_total[0]);
        json_write_int(w, "bad", l->bad_total[1]);
        json_end_object(w);
    }
    provenance_write(&l->provenance, w);
    source_positions_write(&l->retired, l->order->num_streams, w);
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
#define RENAME     "a new data.source.name reads a source from its first document; "

static enum status check_settings(const struct loader *l, const struct json *cursor, bool older)
{
    int64_t sum;
    bool all = older || !l->order->reads_on;
    TRY(json_get_int(cursor, older ? "settings" : "order", 0, UINT32_MAX, &sum));
    if (sum == (older ? rows_fingerprint(l) : order_fingerprint(l))) return STATUS_OK;
    FAIL(CONFIG,
         "the data position was saved with different data settings (order, seed, "
         "shuffle_window, packing, validation_share%s); " OR_RESTART,
         all ? "; seq_len, bos, eos, row_overlap, weights; split, blend, samples; tokenizer, "
               "objective"
             : "");
}

/* The first reader continues the count of all. */
static enum status load_bad_total(struct loader *l, const struct json *records)
{
    int64_t read, bad;
    if (!records || !loader_skips_bad(l) || l->options.reader) return STATUS_OK;
    TRY(json_get_int(records, "read", 0, JSON_MAX_INT, &read));
    TRY(json_get_int(records, "bad", 0, read, &bad));
    l->bad.num_read = (uint64_t)read, l->bad.num_bad = (uint64_t)bad;
    l->bad_total[0] = read, l->bad_total[1] = bad;
    return STATUS_OK;
}

/* A number for a source that came while others had been read. */
static struct source_identity identity_of_label(const char *label)
{
    return (struct source_identity){UINT64_C(1) << 32 | checksum_crc32c(0, label, strlen(label)),
                                    1};
}

/* The content of a saved source; -1: an older program saved it. */
static enum status read_content(const struct json *file, int64_t *content)
{
    struct file_versions v = {0};
    int64_t selection;
    *content = -1;
    if (!json_get(file, "selection")) return STATUS_OK;
    TRY(json_get_int(file, "selection", 0, UINT32_MAX, &selection));
    enum status st = file_versions_read(&v, json_get(file, "files"));
    if (!st) *content = file_versions_sum(&v, (uint32_t)selection);
    file_versions_release(&v);
    return st;
}

/* Adds the position in the saved source `index`, from the integers of all streams. */
static enum status add_position(struct source_positions *all, const struct json *cursor,
                                size_t index, uint64_t streams)
{
    size_t count = json_count(json_get(cursor, "sources"));
    const struct json *file = json_item(json_get(cursor, "source_files"), index);
    const struct json *ids = json_get(cursor, "identities"), *id = json_item(ids, index);
    const struct json *stream = json_first(json_get(cursor, "streams"));
    int64_t place = (int64_t)index, num = (int64_t)count;
    const char *label = "";
    if (json_get(file, "path")) TRY(json_get_string(file, "path", &label));
    if (json_get(file, "name")) TRY(json_get_string(file, "name", &label));
    if (ids && (!json_as_int(json_item(id, 0), 0, JSON_MAX_INT, &place) ||
                !json_as_int(json_item(id, 1), 1, JSON_MAX_INT, &num)))
        FAIL(DATA, "the data position: \"identities\" must be pairs of whole numbers");
    struct source_position *p = source_positions_add(all, label, streams);
    p->identity = (struct source_identity){(uint64_t)place, (uint64_t)num};
    for (uint64_t i = 0; i < streams; i++, stream = json_next(stream))
        for (size_t k = 0; k < PARTITION_INTS; k++) {
            size_t at = STREAM_INTS + PARTITION_INTS * index + k;
            if (!json_as_int(json_item(stream, at), 0, JSON_MAX_INT,
                             &p->ints[i * PARTITION_INTS + k]))
                FAIL(DATA, "the data position of stream %llu is damaged", (unsigned long long)i);
        }
    return STATUS_OK;
}

/* Finds a source that is new to the checkpoint among the retired ones.  One that is back must be
 * what it was. */
static enum status find_retired(const struct loader *l, size_t i,
                                const struct source_positions *all, size_t *saved)
{
    const char *label = data_config_label(l->sources[i].config);
    int64_t now = file_versions_sum(&l->provenance.versions[i], l->sources[i].options_fingerprint);
    *saved = source_positions_find(all, label, now);
    if (!l->options.reader && !l->options.is_quiet)
        log_line(LOG_WARN, "%s: %s", label,
                 *saved == SIZE_MAX
                     ? "a new source, which begins with its first document"
                     : "a source that the run has read before; it continues where it was");
    if (*saved == SIZE_MAX) return STATUS_OK;
    int64_t before = all->items[*saved].content;
    if (before < 0 || before == now) return STATUS_OK;
    FAIL(CONFIG,
         "%s: the run has read this source before, from other files or with another column, number "
         "of neurons or filter: restore them, or give it a new data.source.name to begin it",
         label);
}

/* saved[i]: the place of source i among all saved ones, or SIZE_MAX; with its identity. */
static enum status find_positions(struct loader *l, const struct source_positions *all,
                                  const struct provenance_match *matches, size_t *saved)
{
    bool is_same = true;
    for (size_t i = 0; i < l->num_sources; i++)
        if (!matches[i].is_new) all->items[matches[i].saved].is_read = true;
    for (size_t i = 0; i < l->num_sources; i++) {
        struct source_identity id = identity_of_label(data_config_label(l->sources[i].config));
        struct source_identity *own = &l->identities[i];
        saved[i] = matches[i].saved;
        if (matches[i].is_new) TRY(find_retired(l, i, all, &saved[i]));
        if (saved[i] != SIZE_MAX) {
            all->items[saved[i]].is_read = true;
            id = all->items[saved[i]].identity;
        }
        is_same &= id.place == own->place && id.count == own->count;
        *own = id;
    }
    if (!is_same && l->options.data->validation_share > 0)
        FAIL(CONFIG,
             "data.validation_share = %g holds out documents of the sources with which the "
             "run began, in that order: restore them, or set validation.dataset_path instead",
             l->options.data->validation_share);
    return STATUS_OK;
}

static enum status check_provenance(struct loader *l, const struct json *cursor,
                                    struct provenance_match *matches)
{
    const struct provenance_rules rules = {.accepted = &l->options.data->accept_changed,
                                           .is_fixed = !l->order->reads_on,
                                           .is_quiet = l->options.reader > 0 || l->options.is_quiet,
                                           .saved_in = "the checkpoint",
                                           .accept_begin = "data.accept_changed = [",
                                           .accept_next = ", ",
                                           .accept_end = "]",
                                           .rename = l->order->reads_on ? RENAME : NULL,
                                           .restart = OR_RESTART};
    TRY(provenance_check(&l->provenance, cursor, &rules, matches));
    for (size_t i = 0; i < l->num_sources; i++) l->sources[i].is_changed = matches[i].is_changed;
    return STATUS_OK;
}

/* The streams of a run are those with which it began. */
static enum status adopt_streams(struct loader *l, size_t count)
{
    if (count == l->order->num_streams) return STATUS_OK;
    if (!l->order->kind->set_streams || !count || count > MAX_STREAMS)
        FAIL(DATA, "the data position has %zu streams: expected %llu", count,
             (unsigned long long)l->order->num_streams);
    TRY_PREFIX(l->order->kind->set_streams(l->order, count), "the data position");
    if (l->options.reader == 0 && !l->options.is_quiet)
        log_line(LOG_INFO,
                 "the data stays partitioned into the %zu streams with which the run began", count);
    loader_rows_alloc_cursors(l);
    return STATUS_OK;
}

/* Gives each stream its saved integers, with those of all saved sources. */
static enum status load_streams(struct loader *l, const struct json *streams,
                                const struct source_positions *all, const struct order_position *at)
{
    const struct json *s = json_first(streams);
    size_t own = l->order->cursor_ints, num_own = own ? STREAM_INTS : 0;
    enum status st = STATUS_OK;
    int64_t *ints = heap((num_own + PARTITION_INTS * all->count + 1) * sizeof *ints);
    for (uint64_t i = 0; i < l->order->num_streams; i++, s = json_next(s)) {
        for (size_t j = 0; j < num_own; j++)
            if (!json_as_int(json_item(s, j), -1, JSON_MAX_INT, &ints[j]))
                FAIL_OUT(DATA, "the data position of stream %llu is damaged",
                         (unsigned long long)i);
        for (size_t j = 0; j < all->count; j++)
            memcpy(ints + num_own + PARTITION_INTS * j, all->items[j].ints + PARTITION_INTS * i,
                   PARTITION_INTS * sizeof *ints);
        TRY_OUT(l->order->kind->load(l->order, i, ints, at));
        l->order->kind->save(l->order, i, l->cursors + i * own);
    }
out:
    free(ints);
    return st;
}

/* Loads the position in each source.  Takes those that are not read out of `all`. */
static enum status load_positions(struct loader *l, const struct json *cursor,
                                  struct order_position *at, struct source_positions *all,
                                  const struct provenance_match *matches)
{
    size_t num_saved = json_count(json_get(cursor, "sources"));
    uint64_t streams = l->order->num_streams;
    size_t *saved = heap((l->num_sources + 1) * sizeof *saved);
    struct stream_sources sources = {.saved = saved};
    int64_t tokens = tokens_fingerprint(l);
    enum status st = STATUS_OK;
    if (json_get(cursor, "tokens")) TRY_OUT(json_get_int(cursor, "tokens", 0, UINT32_MAX, &tokens));
    for (size_t j = 0; j < num_saved; j++) TRY_OUT(add_position(all, cursor, j, streams));
    TRY_OUT(source_positions_read(all, json_get(cursor, "retired_sources"), streams));
    TRY_OUT(find_positions(l, all, matches, saved));
    sources.num_saved = all->count;
    sources.drops_documents = tokens != tokens_fingerprint(l);
    at->sources = &sources;
    TRY_OUT(load_streams(l, json_get(cursor, "streams"), all, at));
    for (size_t j = all->count; j-- > 0;) {
        struct source_position *p = &all->items[j];
        if (p->is_read || !p->label[0])
            source_positions_remove(all, j);
        else if (j < num_saved)
            TRY_OUT(read_content(json_item(json_get(cursor, "source_files"), j), &p->content));
    }
out:
    free(saved);
    return st;
}

/* Loads everything but the number of the next row. */
static enum status load_sources(struct loader *l, const struct json *cursor, uint64_t next,
                                struct provenance_match *matches)
{
    const struct json *streams = json_get(cursor, "streams");
    struct source_positions all = {0};
    TRY(check_provenance(l, cursor, matches));
    TRY(check_settings(l, cursor, json_get(cursor, "settings") != NULL));
    if (!json_is_array(streams)) FAIL(DATA, "the data position has no streams");
    TRY(adopt_streams(l, json_count(streams)));
    TRY(row_ranges_read(&l->passed, json_get(cursor, "passed_over")));
    struct order_position at = {.next_row = next,
                                .num_skipped = row_ranges_rows(&l->passed),
                                .vocab_size = l->tokens.vocab_size};
    bool has_positions = l->order->cursor_ints > 0;
    enum status st = has_positions ? load_positions(l, cursor, &at, &all, matches)
                                   : load_streams(l, streams, &all, &at);
    source_positions_release(st ? &all : &l->retired);
    if (!st) l->retired = all;
    return st;
}

#define CONSUMED "consumed_train_samples" /* of a checkpoint of Megatron-LM */

enum status loader_read_next(const struct json *cursor, enum data_order order, int64_t *next_row,
                             int64_t *position)
{
    *position = *next_row = 0;
    if (json_get(cursor, CONSUMED)) {
        TRY(json_get_int(cursor, CONSUMED, 0, JSON_MAX_INT, next_row));
        if (order != ORDER_megatron) *next_row = 0;
        return STATUS_OK;
    }
    TRY(json_get_int(cursor, "next_row", 0, JSON_MAX_INT, next_row));
    *position = *next_row;
    if (!json_get(cursor, "position")) return STATUS_OK;
    return json_get_int(cursor, "position", 0, *next_row, position);
}

static enum status load_consumed(struct loader *l, uint64_t next, const struct json *args)
{
    const struct loader_options *o = &l->options;
    bool continues = l->order->kind->check_consumed;
    if (continues) TRY(l->order->kind->check_consumed(l->order, next, args));
    l->first_row = next;
    if (o->reader || o->is_quiet) return STATUS_OK;
    if (continues)
        log_line(LOG_INFO, "data continues with sample %llu of Megatron-LM's order",
                 (unsigned long long)next);
    else
        log_line(LOG_INFO, "Megatron-LM's data position requires data.order = \"megatron\": data "
                           "starts from the beginning");
    return STATUS_OK;
}

enum status loader_load(struct loader *l, const struct json *cursor)
{
    int64_t next, position;
    BUG_IF(l->running || l->num_built);
    if (!json_is_object(cursor)) FAIL(DATA, "the checkpoint has no data position");
    const struct json *format = json_get(cursor, "format");
    if (format && !json_as_int(format, OLDEST_FORMAT, CURSOR_FORMAT, &next))
        FAIL(CONFIG,
             "the data position has an unknown \"format\"; this program reads formats %d to %d",
             OLDEST_FORMAT, CURSOR_FORMAT);
    TRY(loader_read_next(cursor, l->options.data->order, &next, &position));
    if (json_get(cursor, CONSUMED))
        return load_consumed(l, (uint64_t)next, json_get(cursor, "args"));
    struct provenance_match *matches = heap(l->num_sources * sizeof *matches);
    enum status st = load_sources(l, cursor, (uint64_t)next, matches);
    free(matches);
    TRY(st);
    TRY(row_ranges_read(&l->untrained, json_get(cursor, "untrained")));
    l->first_row = (uint64_t)next;
    l->first_position = l->step_begin = l->next = l->next_read = (uint64_t)position;
    TRY(load_bad_total(l, json_get(cursor, "records")));
    return STATUS_OK;
}
