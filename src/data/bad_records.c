// SPDX-License-Identifier: Apache-2.0
#include "data/bad_records.h"

#include "base/json.h"

#include <stdlib.h>

enum { MIN_BAD = 10 };

static void append(struct bad_records *b, struct bad_record r)
{
    if ((b->count & (b->count - 1)) == 0) /* doubles the capacity at powers of two */
        b->list = heap_grow(b->list, b->count ? 2 * b->count : 1, sizeof *b->list);
    b->list[b->count++] = r;
}

enum status bad_records_add(struct bad_records *b, const struct bad_record *r)
{
    if (b->is_repeat) return STATUS_OK;
    b->num_bad++;
    if (b->count >= BAD_RECORDS_LISTED && b->is_unlimited) return STATUS_OK;
    if (b->count >= BAD_RECORDS_LISTED)
        FAIL(DATA,
             "more than %d bad records for a single row; data.bad_record_limit = 1 skips any "
             "number; the last one: %s, %s %llu: %s",
             BAD_RECORDS_LISTED, r->file, r->unit, (unsigned long long)r->at, r->reason);
    struct bad_record added = *r;
    added.reason = heap_strdup(r->reason);
    append(b, added);
    return STATUS_OK;
}

void bad_records_move(struct bad_records *to, struct bad_records *from)
{
    for (size_t i = 0; i < from->count; i++) append(to, from->list[i]);
    to->num_read += from->num_read, to->num_bad += from->num_bad;
    from->count = 0;
    from->num_read = from->num_bad = 0;
}

void bad_records_clear(struct bad_records *b)
{
    for (size_t i = 0; i < b->count; i++) free((char *)(uintptr_t)b->list[i].reason);
    b->count = 0;
}

void bad_records_release(struct bad_records *b)
{
    bad_records_clear(b);
    free(b->list);
    *b = (struct bad_records){0};
}

void bad_records_write(const struct bad_records *b, int64_t step, struct text *out)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct bad_record *r = &b->list[i];
        struct json_writer w = {.text = out};
        json_begin_object(&w, NULL, JSON_INLINE);
        if (step >= 0) json_write_int(&w, "step", step);
        json_write_string(&w, "source", r->source);
        json_write_string(&w, "file", r->file);
        json_write_int(&w, r->unit, (int64_t)r->at);
        json_write_string(&w, "reason", r->reason);
        json_end_object(&w);
        json_finish(&w);
        text_adds(out, "\n");
    }
}

void bad_records_describe(const struct bad_records *b, const char *where, struct text *out)
{
    enum { NAMED = 3 };
    text_addf(out, "%llu of %llu records are bad and were skipped; ",
              (unsigned long long)b->num_bad, (unsigned long long)b->num_read);
    text_adds(out, where ? where : "the last:");
    for (size_t i = b->count > NAMED ? b->count - NAMED : 0; i < b->count && !where; i++) {
        const struct bad_record *r = &b->list[i];
        text_adds(out, "\n  ");
        text_add_escaped(out, r->file);
        text_addf(out, ", %s %llu: ", r->unit, (unsigned long long)r->at);
        text_add_escaped(out, r->reason);
    }
}

enum status bad_records_check(const struct bad_records *b, double limit, const char *where)
{
    struct text found = {0};
    double share = b->num_read ? (double)b->num_bad / (double)b->num_read : 0;
    if (b->num_bad <= MIN_BAD || limit >= 1 || share <= limit) return STATUS_OK;
    text_addf(&found,
              "too many bad records: %.3g %%, more than bad_record_limit = %g: ", 100 * share,
              limit);
    bad_records_describe(b, where, &found);
    FAILURE(DATA, "%s", found.data);
    text_release(&found);
    return STATUS_DATA;
}

enum status bad_records_stop(enum status st, const char *setting)
{
    if (st != STATUS_RECORD) return st;
    return status_prefix(STATUS_DATA, "bad record (%s would skip it)", setting);
}
