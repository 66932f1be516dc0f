// SPDX-License-Identifier: Apache-2.0
#include "data/provenance.h"

#include "base/log.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer" /* among the accepted files, and the key of the saved one */

enum { MAX_NAMED = 4 }; /* changes that a message describes */

/* Samples the files first, first + stride, ... of all sources. */
static enum status sample_files(struct provenance *p, size_t first, size_t stride)
{
    size_t number = 0;
    for (size_t i = 0; i < p->num_sources; i++)
        for (size_t k = 0; k < p->versions[i].count; k++, number++)
            if (number % stride == first) TRY(file_versions_sample(&p->versions[i].files[k]));
    return STATUS_OK;
}

enum status provenance_sample(struct provenance *p)
{
    p->versions = heap(p->num_sources * sizeof *p->versions);
    for (size_t i = 0; i < p->num_sources; i++) source_list_files(&p->sources[i], &p->versions[i]);
    return sample_files(p, p->reader, p->num_readers);
}

/* An all-reduce (sum), in which each reader contributes the files of its share. */
enum status provenance_gather(struct provenance *p, const struct comm *readers)
{
    enum { INTS = 3 };
    size_t count = 0, number = 0;
    if (p->is_gathered || !p->versions) return STATUS_OK;
    for (size_t i = 0; i < p->num_sources; i++) count += p->versions[i].count;
    int64_t *ints = heap((count + 1) * INTS * sizeof *ints);
    for (size_t i = 0; i < p->num_sources; i++)
        for (size_t k = 0; k < p->versions[i].count; k++, number++) {
            const struct file_version *f = &p->versions[i].files[k];
            const int64_t own[INTS] = {f->bytes, f->modified_s, (int64_t)f->hash};
            if (number % p->num_readers == p->reader) memcpy(ints + number * INTS, own, sizeof own);
        }
    enum status st = comm_all_reduce_int64(readers, REDUCE_SUM, ints, count * INTS);
    number = 0;
    for (size_t i = 0; i < p->num_sources && !st; i++)
        for (size_t k = 0; k < p->versions[i].count; k++, number++) {
            struct file_version *f = &p->versions[i].files[k];
            const int64_t *all = ints + number * INTS;
            f->bytes = all[0], f->modified_s = all[1], f->hash = (uint64_t)all[2];
            f->is_sampled = true;
        }
    p->is_gathered = !st;
    free(ints);
    return st;
}

void provenance_release(struct provenance *p)
{
    for (size_t i = 0; p->versions && i < p->num_sources; i++)
        file_versions_release(&p->versions[i]);
    free(p->versions);
    *p = (struct provenance){0};
}

static void format_hash(const struct tokenizer *t, char hash[17])
{
    snprintf(hash, 17, "%016llx", (unsigned long long)tokenizer_hash(t));
}

void provenance_write(const struct provenance *p, struct json_writer *w)
{
    json_begin_array(w, "sources", JSON_INLINE);
    for (size_t i = 0; i < p->num_sources; i++) json_write_int(w, NULL, p->sources[i].fingerprint);
    json_end_array(w);
    if (p->tokenizer) {
        char hash[17];
        format_hash(p->tokenizer, hash);
        json_begin_object(w, TOKENIZER, JSON_INLINE);
        json_write_string(w, "path", tokenizer_path(p->tokenizer));
        json_write_string(w, "hash", hash);
        json_end_object(w);
    }
    if (!p->versions) return;
    json_begin_array(w, "source_files", JSON_INLINE);
    for (size_t i = 0; i < p->num_sources; i++) {
        json_newline(w, 0);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_int(w, "options", p->sources[i].options_fingerprint);
        file_versions_write(&p->versions[i], "files", w);
        json_end_object(w);
    }
    json_end_array(w);
}

/* The changes that were not accepted. */
struct refusal {
    const struct provenance_rules *rules;
    struct text changes, names; /* for the message */
    size_t count;
};

static bool is_accepted(const struct provenance_rules *r, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < r->accepted->count; i++) {
        const char *pattern = r->accepted->items[i];
        if (!strcmp(pattern, path) || !strcmp(pattern, name) || !fnmatch(pattern, path, 0) ||
            !fnmatch(pattern, name, 0))
            return true;
    }
    return false;
}

/* Logs a change that is accepted under `name`, or adds it to the refusal. */
static bool accept(struct refusal *r, const char *name, const char *change)
{
    if (is_accepted(r->rules, name)) {
        struct text line = {0};
        text_addf(&line, "accepted a change since %s was written: ", r->rules->saved_in);
        text_add_escaped(&line, change);
        if (!r->rules->is_quiet) log_line(LOG_WARN, "%s", line.data);
        text_release(&line);
        return true;
    }
    if (r->count++ >= MAX_NAMED) return false;
    text_addf(&r->changes, "%s%s", r->count > 1 ? "; " : "", change);
    if (r->count > 1) text_adds(&r->names, r->rules->accept_next);
    option_quote(&r->names, name);
    return false;
}

static enum status fail_refused(const struct refusal *r)
{
    const struct provenance_rules *rules = r->rules;
    char more[64] = "";
    if (r->count > MAX_NAMED)
        snprintf(more, sizeof more, "; and %zu more changes", r->count - MAX_NAMED);
    FAIL(CONFIG,
         "the data has changed since %s was written: %s%s; restore it, or continue from the same "
         "position with %s%s%s; %s",
         rules->saved_in, r->changes.data, more, rules->accept_begin, r->names.data,
         rules->accept_end, rules->restart);
}

static enum status compare_files(const struct provenance *p, size_t i, const struct json *saved,
                                 struct refusal *r, bool *is_changed)
{
    struct file_versions before = {0};
    struct text change = {0};
    size_t count;
    struct file_change *changes = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(file_versions_read(&before, saved));
    changes = file_versions_compare(&before, &p->versions[i], &count);
    *is_changed = count > 0;
    for (size_t k = 0; k < count; k++) {
        text_clear(&change);
        file_versions_describe(&changes[k], &change);
        accept(r, file_versions_path_of(&changes[k]), change.data);
    }
out:
    free(changes);
    text_release(&change);
    file_versions_release(&before);
    return st;
}

/* `saved` is the tokenizer's object; NULL: saved by an older program, or without tokenizer. */
static enum status compare_tokenizer(const struct provenance *p, const struct json *saved,
                                     struct refusal *r)
{
    const char *path, *hash;
    char now[17];
    if (!saved || !p->tokenizer) return STATUS_OK;
    TRY(json_get_string(saved, "path", &path));
    TRY(json_get_string(saved, "hash", &hash));
    format_hash(p->tokenizer, now);
    if (!strcmp(hash, now)) return STATUS_OK;
    const char *own = tokenizer_path(p->tokenizer);
    struct text change = {0};
    text_addf(&change, "%s: the tokenizer's file is not the one that was used before",
              own[0] ? own : "bytes");
    if (strcmp(own, path) != 0) text_addf(&change, ", %s", path[0] ? path : "bytes");
    accept(r, TOKENIZER, change.data);
    text_release(&change);
    return STATUS_OK;
}

/* A position saved by an older program has only names and sizes of the files. */
static enum status check_fingerprint(const struct source *s, const struct json *saved,
                                     const struct provenance_rules *rules)
{
    int64_t sum;
    if (!json_as_int(saved, 0, UINT32_MAX, &sum) || sum != s->fingerprint)
        FAIL(CONFIG,
             "%s: %s was written with other files, another column or another weight of this "
             "source; %s",
             s->config->path, rules->saved_in, rules->restart);
    return STATUS_OK;
}

static enum status check_options(const struct source *s, const struct json *saved,
                                 const struct provenance_rules *rules)
{
    int64_t sum;
    TRY(json_get_int(saved, "options", 0, UINT32_MAX, &sum));
    if (sum != s->options_fingerprint)
        FAIL(CONFIG,
             "%s: %s was written with another column, weight, number of neurons or filter of this "
             "source; %s",
             s->config->path, rules->saved_in, rules->restart);
    return STATUS_OK;
}

/* Whether the files that this reader sampled are the same in `all`, and the others in number. */
static enum status compare_share(const struct provenance *p, const struct json *all, bool *same)
{
    const struct json *one = json_first(all);
    *same = true;
    for (size_t i = 0; i < p->num_sources && *same; i++, one = json_next(one)) {
        const struct file_versions *now = &p->versions[i];
        struct file_versions before = {0};
        enum status st = file_versions_read(&before, json_get(one, "files"));
        *same = !st && before.count == now->count;
        for (size_t k = 0; k < now->count && *same; k++)
            if (now->files[k].is_sampled)
                *same = file_versions_are_equal(&now->files[k], &before.files[k]);
        file_versions_release(&before);
        TRY(st);
    }
    return STATUS_OK;
}

/* An unreadable data file says nothing about what was saved, so it is neither DATA nor IO, which
 * would make the caller try an older checkpoint. */
static enum status sample_all(struct provenance *p, const struct provenance_rules *rules)
{
    enum status st = sample_files(p, 0, 1);
    if (!st) return STATUS_OK;
    return status_prefix(STATUS_CONFIG, "comparing the data with %s", rules->saved_in);
}

enum status provenance_check(struct provenance *p, const struct json *saved,
                             const struct provenance_rules *rules, bool *is_changed)
{
    const struct json *sums = json_get(saved, "sources"), *sum = json_first(sums);
    const struct json *all = p->versions ? json_get(saved, "source_files") : NULL;
    const struct json *one = json_first(all);
    struct refusal r = {.rules = rules};
    enum status st = STATUS_OK;
    bool is_same = true, compares = false;
    if (json_count(sums) != p->num_sources || (all && json_count(all) != p->num_sources))
        FAIL(CONFIG, "%s was written with %zu sources; configured: %zu; %s", rules->saved_in,
             json_count(sums), p->num_sources, rules->restart);
    if (all) TRY(compare_share(p, all, &is_same));
    if (all) compares = !is_same || rules->accepted->count;
    if (compares) TRY(sample_all(p, rules));
    TRY_OUT(compare_tokenizer(p, json_get(saved, TOKENIZER), &r));
    for (size_t i = 0; i < p->num_sources;
         i++, sum = json_next(sum), one = all ? json_next(one) : NULL) {
        is_changed[i] = false;
        if (!all) TRY_OUT(check_fingerprint(&p->sources[i], sum, rules));
        if (!all) continue;
        TRY_OUT(check_options(&p->sources[i], one, rules));
        if (compares) TRY_OUT(compare_files(p, i, json_get(one, "files"), &r, &is_changed[i]));
    }
    if (r.count) st = fail_refused(&r);
out:
    text_release(&r.changes), text_release(&r.names);
    return st;
}
