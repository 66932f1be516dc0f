// SPDX-License-Identifier: Apache-2.0
#include "data/provenance.h"

#include "base/file.h"
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
        if (source_name(&p->sources[i])) json_write_string(w, "name", source_name(&p->sources[i]));
        json_write_string(w, "path", p->sources[i].config->path);
        json_write_int(w, "selection", p->sources[i].options_fingerprint);
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
    bool has_files; /* not only the tokenizer */
};

static bool names_path(const char *pattern, const char *path)
{
    const char *name = file_name(path);
    return !strcmp(pattern, path) || !strcmp(pattern, name) || !fnmatch(pattern, path, 0) ||
           !fnmatch(pattern, name, 0);
}

static bool is_accepted(const struct provenance_rules *r, const char *path)
{
    for (size_t i = 0; i < r->accepted->count; i++)
        if (names_path(r->accepted->items[i], path)) return true;
    return false;
}

bool provenance_has(const struct provenance *p, const char *item)
{
    struct file_versions files = {0};
    bool has = names_path(item, TOKENIZER);
    for (size_t i = 0; i < p->num_sources; i++) source_list_files(&p->sources[i], &files);
    for (size_t i = 0; i < files.count; i++) has |= names_path(item, files.files[i].path);
    file_versions_release(&files);
    return has;
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
         "position with %s%s%s; %s%s",
         rules->saved_in, r->changes.data, more, rules->accept_begin, r->names.data,
         rules->accept_end, r->has_files && rules->rename ? rules->rename : "", rules->restart);
}

static void compare_files(const struct provenance *p, size_t i, const struct file_versions *before,
                          struct refusal *r, bool *is_changed)
{
    struct text change = {0};
    size_t count;
    struct file_change *changes = file_versions_compare(before, &p->versions[i], &count);
    *is_changed = count > 0;
    for (size_t k = 0; k < count; k++) {
        text_clear(&change);
        file_versions_describe(&changes[k], &change);
        r->has_files |= !accept(r, file_versions_path_of(&changes[k]), change.data);
    }
    free(changes);
    text_release(&change);
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
    bool older = !json_get(saved, "selection"); /* it included the weight */
    TRY(json_get_int(saved, older ? "options" : "selection", 0, UINT32_MAX, &sum));
    if (sum != (older ? s->older_fingerprint : s->options_fingerprint))
        FAIL(CONFIG,
             "%s: %s was written with another column, %snumber of neurons or filter of this "
             "source; %s",
             s->config->path, rules->saved_in, older ? "weight, " : "", rules->restart);
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

/* What is known of one saved source. */
struct saved_source {
    const struct json *json; /* NULL: saved by an older program, without files */
    const char *name;        /* NULL: it had none */
    int64_t selection;       /* source.options_fingerprint; -1: saved by an older program */
    struct file_versions files;
    bool is_matched;
};

struct saved_sources {
    struct saved_source *items;
    size_t count;
    bool are_compared; /* the content of all files must be compared */
};

static enum status read_saved(const struct json *all, struct saved_sources *out)
{
    const struct json *one = json_first(all);
    for (size_t j = 0; j < out->count && all; j++, one = json_next(one)) {
        struct saved_source *saved = &out->items[j];
        saved->json = one, saved->selection = -1;
        if (json_get(one, "selection"))
            TRY(json_get_int(one, "selection", 0, UINT32_MAX, &saved->selection));
        if (json_get(one, "name")) TRY(json_get_string(one, "name", &saved->name));
        TRY(file_versions_read(&saved->files, json_get(one, "files")));
    }
    return STATUS_OK;
}

static bool have_same_name(const struct source *s, const struct saved_source *saved)
{
    const char *name = source_name(s);
    return name && saved->name ? !strcmp(name, saved->name) : name == saved->name;
}

/* Whether every source is where it was, under the same name and in files of the same paths: so
 * that all ranks agree, whatever files they have sampled. */
static bool are_in_place(const struct provenance *p, const struct saved_source *saved)
{
    for (size_t i = 0; i < p->num_sources; i++) {
        const struct file_versions *now = &p->versions[i], *before = &saved[i].files;
        if (!have_same_name(&p->sources[i], &saved[i]) || now->count != before->count) return false;
        for (size_t k = 0; k < now->count; k++)
            if (strcmp(now->files[k].path, before->files[k].path) != 0) return false;
    }
    return true;
}

/* Whether the files that this reader has sampled are the same. */
static bool is_share_same(const struct file_versions *now, const struct file_versions *before)
{
    for (size_t k = 0; k < now->count; k++)
        if (now->files[k].is_sampled &&
            (k >= before->count || !file_versions_are_equal(&now->files[k], &before->files[k])))
            return false;
    return now->count == before->count;
}

enum match_rule { MATCH_NAME, MATCH_CONTENT, MATCH_PLACE, MATCH_RULES };

static bool is_match(const struct provenance *p, size_t i, const struct saved_source *saved,
                     enum match_rule rule)
{
    const struct source *s = &p->sources[i];
    bool is_named = source_name(s) != NULL;
    bool selects_same = saved->selection < 0 || saved->selection == s->options_fingerprint;
    switch (rule) {
    case MATCH_NAME: return is_named && have_same_name(s, saved);
    case MATCH_CONTENT:
        return !(is_named && saved->name) && saved->files.count && selects_same &&
               is_share_same(&p->versions[i], &saved->files);
    case MATCH_PLACE: return !is_named && !saved->name;
    case MATCH_RULES: break;
    }
    return false;
}

/* Finds each source among the saved ones: by its name, by its files, and without either, which will
 * be a change to accept, in their order. */
static void match_sources(const struct provenance *p, struct saved_sources *all,
                          struct provenance_match *matches)
{
    for (size_t i = 0; i < p->num_sources; i++) matches[i].is_new = true;
    for (enum match_rule rule = 0; rule < MATCH_RULES; rule++)
        for (size_t i = 0; i < p->num_sources; i++)
            for (size_t j = 0; j < all->count && matches[i].is_new; j++) {
                struct saved_source *saved = &all->items[j];
                if (saved->is_matched || !is_match(p, i, saved, rule)) continue;
                matches[i] = (struct provenance_match){.saved = j};
                saved->is_matched = true;
            }
}

static void log_unmatched(const struct saved_sources *all)
{
    for (size_t j = 0; j < all->count; j++) {
        const struct saved_source *saved = &all->items[j];
        const char *path = saved->files.count ? saved->files.files[0].path : "a source";
        if (!saved->is_matched)
            log_line(LOG_WARN, "%s: a source of the checkpoint that is no longer read",
                     saved->name ? saved->name : path);
    }
}

/* Matches the sources with the saved ones. */
static enum status find_matches(struct provenance *p, const struct provenance_rules *rules,
                                struct saved_sources *saved, struct provenance_match *matches)
{
    bool in_place = saved->count == p->num_sources && are_in_place(p, saved->items);
    bool compares = rules->accepted->count || !in_place;
    for (size_t i = 0; i < p->num_sources && in_place; i++) {
        matches[i] = (struct provenance_match){.saved = i};
        compares |= !is_share_same(&p->versions[i], &saved->items[i].files);
    }
    saved->are_compared = compares;
    if (compares) TRY(sample_all(p, rules));
    if (in_place || rules->is_fixed) {
        for (size_t i = 0; i < p->num_sources; i++)
            matches[i] = (struct provenance_match){.saved = i};
        return STATUS_OK;
    }
    match_sources(p, saved, matches);
    if (!rules->is_quiet) log_unmatched(saved);
    return STATUS_OK;
}

static enum status check_matches(const struct provenance *p, const struct json *sums,
                                 const struct saved_sources *saved, struct refusal *r,
                                 struct provenance_match *matches)
{
    for (size_t i = 0; i < p->num_sources; i++) {
        const struct json *sum = json_item(sums, matches[i].saved);
        const struct saved_source *one = &saved->items[matches[i].saved];
        if (matches[i].is_new) continue;
        if (!one->json) TRY(check_fingerprint(&p->sources[i], sum, r->rules));
        if (!one->json) continue;
        TRY(check_options(&p->sources[i], one->json, r->rules));
        if (saved->are_compared) compare_files(p, i, &one->files, r, &matches[i].is_changed);
    }
    if (r->count) return fail_refused(r);
    return STATUS_OK;
}

enum status provenance_check(struct provenance *p, const struct json *saved,
                             const struct provenance_rules *rules, struct provenance_match *matches)
{
    const struct json *sums = json_get(saved, "sources");
    const struct json *all = p->versions ? json_get(saved, "source_files") : NULL;
    size_t count = json_count(sums);
    bool is_fixed = rules->is_fixed || !all;
    struct refusal r = {.rules = rules};
    enum status st = STATUS_OK;
    if ((is_fixed && count != p->num_sources) || (all && json_count(all) != count))
        FAIL(CONFIG, "%s was written with %zu sources; configured: %zu; %s", rules->saved_in, count,
             p->num_sources, rules->restart);
    struct saved_sources before = {.items = heap((count + 1) * sizeof *before.items), count};
    for (size_t i = 0; i < p->num_sources; i++) matches[i] = (struct provenance_match){.saved = i};
    TRY_OUT(read_saved(all, &before));
    TRY_OUT(compare_tokenizer(p, json_get(saved, TOKENIZER), &r));
    if (all) TRY_OUT(find_matches(p, rules, &before, matches));
    TRY_OUT(check_matches(p, sums, &before, &r, matches));
out:
    for (size_t j = 0; j < count; j++) file_versions_release(&before.items[j].files);
    free(before.items);
    text_release(&r.changes), text_release(&r.names);
    return st;
}
