// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "data/source_kind.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDLE_BYTES = 4 << 20, DEFAULT_MOTIF_NEURONS = 256 };

/* A .bin of nanoGPT or llm.c: Megatron's has an .idx beside it. */
static bool is_raw_tokens(const char *path)
{
    size_t len = strlen(path);
    if (!file_has_suffix(path, ".bin")) return false;
    char *idx = heap_string(path, len);
    memcpy(idx + len - 3, "idx", 3);
    bool is_raw = file_exists(path) && !file_exists(idx);
    free(idx);
    return is_raw;
}

/* By the suffix alone; NULL: unknown. */
static const struct source_kind *find_kind(const char *path)
{
    static const struct source_kind *const kinds[] = {&source_jsonl,
                                                      &source_text,
                                                      &source_compressed_jsonl,
                                                      &source_compressed_text,
                                                      &source_megatron,
                                                      &source_table,
                                                      &source_npy};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t j = 0; j < SOURCE_SUFFIXES && kinds[i]->suffixes[j]; j++)
            if (file_has_suffix(path, kinds[i]->suffixes[j])) return kinds[i];
    return NULL;
}

bool source_has_suffix(const char *path) { return find_kind(path) != NULL; }

static enum status detect_kind(const char *path, const struct source_kind **kind)
{
    *kind = is_raw_tokens(path) ? &source_raw_tokens : find_kind(path);
    if (*kind) return STATUS_OK;
    FAIL(
        CONFIG,
        "%s: unknown file type; supported are .txt, .jsonl (both also .gz, .zst), .json, .parquet, "
        ".arrow, .npy, .bin/.idx and .bin",
        path);
}

static enum status open_file(struct source *s, const char *path)
{
    const struct source_kind *kind;
    uint64_t size;
    s->files = heap_grow(s->files, s->num_files + 1, sizeof *s->files);
    struct source_file *f = &s->files[s->num_files++];
    *f = (struct source_file){.path = heap_strdup(path), .first_position = s->num_positions};
    if (file_is_dir(path))
        FAIL(CONFIG, "%s: is a folder; name its files, for example %s/*.jsonl", path, path);
    TRY(detect_kind(path, &kind));
    if (s->kind && kind != s->kind)
        FAIL(CONFIG,
             "%s: all files of a source must have the same type, that of %s; make the others "
             "another source",
             path, s->files[0].path);
    s->kind = kind;
    TRY(kind->open(s, f, &size));
    if (kind->check) TRY(kind->check(f));
    const char *name = file_name(path);
    s->fingerprint = checksum_crc32c(s->fingerprint, name, strlen(name));
    s->fingerprint = checksum_crc32c(s->fingerprint, &size, sizeof size);
    return STATUS_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether it is a .bin, or another file that `prepare` wrote, whose .idx is also in the list.  A
 * list may have tens of thousands of files. */
static bool has_index(const struct file_list *list, const char *path)
{
    static const char *const suffixes[] = {".bin", ".sum", ".bad_records"};
    bool has = false;
    for (size_t s = 0; s < sizeof suffixes / sizeof *suffixes; s++) {
        struct text idx = {0};
        if (!file_has_suffix(path, suffixes[s])) continue;
        text_addf(&idx, "%.*s.idx", (int)(strlen(path) - strlen(suffixes[s])), path);
        has |= bsearch(&idx.data, list->paths, list->count, sizeof *list->paths, compare_paths) !=
               NULL;
        text_release(&idx);
    }
    return has;
}

/* Opens the files of a folder written by `datasets` (save_to_disk), which state.json lists. */
static enum status open_saved_dataset(struct source *s, const char *folder, const char *state)
{
    struct json *root = NULL;
    const struct json *files;
    const char *name;
    enum status st = STATUS_OK;
    TRY(json_read(state, 64 << 20, &root));
    files = json_get(root, "_data_files");
    if (!json_is_array(files)) FAIL_OUT(DATA, "%s: expected a list \"_data_files\"", state);
    for (const struct json *v = json_first(files); v; v = json_next(v)) {
        TRY_OUT(json_get_string(v, "filename", &name));
        if (strchr(name, '/'))
            FAIL_OUT(DATA, "%s: file name \"%s\" must not contain a slash", state, name);
        char *path = file_join(folder, name);
        st = open_file(s, path);
        free(path);
        if (st) goto out;
    }
out:
    json_free(root);
    return st;
}

/* Opens a .bin/.idx prefix, a saved dataset or all files that match a pattern; a pair of .bin and
 * .idx is opened once. */
static enum status open_files(struct source *s, const char *path)
{
    struct text idx = {0}, state = {0}, splits = {0};
    struct file_list list = {0};
    enum file_kind kind, idx_kind, state_kind, splits_kind;
    enum status st = STATUS_OK;
    text_addf(&idx, "%s.idx", path);
    text_addf(&state, "%s/state.json", path);
    text_addf(&splits, "%s/dataset_dict.json", path);
    bool mock = !strcmp(path, "mock");
    if (mock || !strcmp(path, "synthetic-spikes")) {
        uint64_t size;
        s->kind = mock ? &source_mock : &source_synthetic;
        st = s->kind->open(s, NULL, &size);
        goto out;
    }
    TRY_OUT(file_find(path, &kind));
    TRY_OUT(file_find(idx.data, &idx_kind));
    TRY_OUT(file_find(state.data, &state_kind));
    TRY_OUT(file_find(splits.data, &splits_kind));
    if (idx_kind && (!kind || kind == FILE_FOLDER)) {
        st = open_file(s, idx.data);
        goto out;
    }
    if (splits_kind)
        FAIL_OUT(CONFIG, "%s: is a folder of splits; name one of them, for example %s/train", path,
                 path);
    if (state_kind) {
        TRY_OUT(open_saved_dataset(s, path, state.data));
        goto out;
    }
    TRY_OUT(file_glob(&list, path));
    for (size_t i = 0; i < list.count; i++) {
        if (!has_index(&list, list.paths[i])) TRY_OUT(open_file(s, list.paths[i]));
    }
out:
    file_list_release(&list);
    text_release(&idx), text_release(&state), text_release(&splits);
    return st;
}

size_t source_kind_neurons(const struct source_config *c)
{
    bool motifs = c->motifs && c->motifs[0];
    return c->neurons >= 0 ? (size_t)c->neurons : motifs ? DEFAULT_MOTIF_NEURONS : 0;
}

/* Continues `crc` with the options that select or change documents, if they are set. */
static uint32_t add_options(const struct source_config *c, bool weight, uint32_t neurons,
                            uint32_t crc)
{
    crc = checksum_crc32c(crc, c->column, strlen(c->column));
    if (weight) crc = checksum_crc32c(crc, &c->weight, sizeof c->weight);
    if (neurons) crc = checksum_crc32c(crc, &neurons, sizeof neurons);
    if (!source_kind_filters(c)) return crc;
    crc = checksum_crc32c(crc, c->filter_column, strlen(c->filter_column));
    return checksum_crc32c(crc, c->filter_value, strlen(c->filter_value));
}

struct source_option source_kind_option(const struct source_config *c, const char *name)
{
    struct source_option o;
    const char *dot = strrchr(c->key, '.');
    bool is_source = dot && !strcmp(dot, ".path"); /* data.source.N.path: not training.dataset */
    int len = is_source ? (int)(dot - c->key) : 0;
    if (is_source)
        snprintf(o.key, sizeof o.key, "%.*s.%s", len, c->key, name);
    else
        snprintf(o.key, sizeof o.key, "data.source.%s", name);
    return o;
}

static enum status open_motifs(struct source *s)
{
    const char *path = s->config->motifs;
    if (!path || !path[0]) return STATUS_OK;
    TRY_PREFIX(motifs_open(&s->motifs, path), "%s", source_kind_option(s->config, "motifs").key);
    const uint32_t numbers[] = {motifs_checksum(s->motifs),
                                (uint32_t)source_kind_neurons(s->config)};
    s->fingerprint = checksum_crc32c(s->fingerprint, numbers, sizeof numbers);
    return STATUS_OK;
}

static enum status fail_empty(const struct source_config *c)
{
    if (source_kind_filters(c))
        FAIL(DATA, "%s: the source is empty: no row has %s = \"%s\"", c->path, c->filter_column,
             c->filter_value);
    FAIL(DATA, "%s: the source is empty", c->path);
}

/* Names the option that has a path without files. */
static enum status name_path(const struct source_config *c, enum status st)
{
    return st == STATUS_MISSING && c->key[0] ? status_prefix(st, "%s", c->key) : st;
}

/* Options that only tables of rows have. */
static enum status check_options(const struct source *s)
{
    const struct source_config *c = s->config;
    if (s->kind == &source_table) return STATUS_OK;
    if (s->motifs)
        FAIL(CONFIG, "%s: %s requires spike counts in .parquet or .arrow files", c->path,
             source_kind_option(c, "motifs").key);
    if (source_kind_filters(c))
        FAIL(CONFIG, "%s: %s requires .parquet or .arrow files", c->path,
             source_kind_option(c, "filter_column").key);
    return STATUS_OK;
}

enum status source_open(struct source *s, const struct source_config *config)
{
    uint32_t neurons = (uint32_t)source_kind_neurons(config);
    char *path;
    *s = (struct source){.config = config};
    TRY(name_path(config, hub_find(config->path, &path)));
    enum status st = STATUS_OK;
    TRY_OUT(open_motifs(s));
    TRY_OUT(name_path(config, open_files(s, path)));
    TRY_OUT(check_options(s));
    s->fingerprint = add_options(config, true, s->motifs ? 0 : neurons, s->fingerprint);
    s->options_fingerprint = add_options(config, false, neurons, 0);
    s->older_fingerprint = add_options(config, true, neurons, 0);
    bool is_empty = !s->kind || (s->kind->seeks && !s->num_positions);
    if (is_empty && !(config->may_be_empty && s->kind)) TRY_OUT(fail_empty(config));
out:
    free(path);
    if (st) source_close(s);
    return st;
}

bool source_has_columns(const struct source *s)
{
    const struct source_kind *k = s->kind;
    return k == &source_table || k == &source_jsonl || k == &source_compressed_jsonl;
}

enum status source_check_column(const struct source_config *config)
{
    struct source s;
    TRY(source_open(&s, config));
    bool has_columns = source_has_columns(&s);
    source_close(&s);
    if (has_columns) return STATUS_OK;
    FAIL(CONFIG,
         "--column %s has no effect: %s has no columns; .jsonl, .parquet and .arrow files do",
         config->column, config->path);
}

const char *source_name(const struct source *s)
{
    return s->config->name && s->config->name[0] ? s->config->name : NULL;
}

const char *source_file_path(const struct source *s, size_t file)
{
    return file < s->num_files ? s->files[file].path : s->config->path;
}

const char *source_unit(const struct source *s)
{
    if (s->kind->position_bytes) return "offset";
    return s->kind->unit ? s->kind->unit : "document";
}

void source_close(struct source *s)
{
    for (size_t i = 0; i < s->num_files; i++) {
        if (s->kind) s->kind->close(&s->files[i]);
        free(s->files[i].path);
    }
    free(s->files);
    free(s->mock_lengths);
    motifs_close(s->motifs);
    *s = (struct source){0};
}

void source_list_files(const struct source *s, struct file_versions *out)
{
    struct text path = {0};
    for (size_t i = 0; i < s->num_files; i++) {
        const struct source_file *f = &s->files[i];
        bool is_pair = s->kind == &source_megatron;
        for (int k = 0; k < 1 + is_pair; k++) {
            text_clear(&path);
            text_addf(&path, "%s%s", is_pair ? f->tokens.prefix : f->path,
                      !is_pair ? ""
                      : k      ? ".bin"
                               : ".idx");
            file_versions_add(out, path.data);
        }
    }
    if (s->motifs) file_versions_add(out, s->config->motifs);
    text_release(&path);
}

bool source_holds_counts(const struct source *s)
{
    return s->kind == &source_table && s->files[0].table.kind == TABLE_COUNTS;
}

void source_reader_close(struct source_reader *r)
{
    line_reader_close(r->lines);
    table_reader_close(r->table);
    *r = (struct source_reader){0};
}

void source_reader_trim(struct source_reader *r)
{
    if (r->table && table_reader_bytes(r->table) > MAX_IDLE_BYTES) source_reader_close(r);
}

size_t source_file_at(const struct source *s, uint64_t position)
{
    size_t low = 0, high = s->num_files;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (s->files[middle].first_position <= position)
            low = middle;
        else
            high = middle;
    }
    while (low + 1 < s->num_files && s->files[low + 1].first_position <= position) low++;
    return low;
}

struct source_range source_part(const struct source *s, uint64_t part, uint64_t num_parts)
{
    __extension__ typedef unsigned __int128 wide;
    wide all = s->num_positions;
    return (struct source_range){.position = (uint64_t)(all * part / num_parts),
                                 .end = (uint64_t)(all * (part + 1) / num_parts),
                                 .part = part,
                                 .num_parts = num_parts};
}

static enum status check_files(const struct source *s, size_t first, size_t end)
{
    for (size_t i = first; i < end && s->kind->check; i++) TRY(s->kind->check(&s->files[i]));
    return STATUS_OK;
}

enum status source_check(const struct source *s) { return check_files(s, 0, s->num_files); }

/* The zeros of a torn mapping can hide documents, or look damaged. */
enum status source_find(const struct source *s, struct source_reader *r, struct source_range *c,
                        struct source_document *d, bool *none)
{
    uint64_t first = c->position;
    enum status st = s->kind->find(s, r, c, d, none);
    if (!st && !*none) return STATUS_OK;
    if (s->kind->check)
        TRY(check_files(s, source_file_at(s, first), source_file_at(s, c->position) + 1));
    return st;
}

uint64_t source_text_bytes(const struct source *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->num_files && s->kind->position_bytes; i++)
        bytes += s->files[i].map.size;
    return bytes;
}

uint64_t source_range_end(const struct source *s, struct source_reader *r, uint64_t position,
                          uint64_t *bytes)
{
    uint64_t target = *bytes, left = s->num_positions - position, each = s->kind->position_bytes;
    BUG_IF(!s->kind->seeks || position >= s->num_positions);
    if (s->kind->range_end) return s->kind->range_end(s, r, position, bytes);
    if (each) {
        uint64_t positions = target / each + 1 < left ? target / each + 1 : left;
        *bytes = positions * each;
        return position + positions;
    }
    struct source_range c = source_part(s, 0, 1);
    struct source_document d = {0};
    bool none = false;
    c.position = position;
    for (*bytes = 0; *bytes < target && !none;) { /* lengths of token sequences are known */
        if (source_find(s, r, &c, &d, &none)) return s->num_positions; /* reading fails, too */
        if (!none) *bytes += d.len * sizeof(int32_t);
    }
    return c.position;
}
