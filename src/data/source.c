// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"

#include "base/checksum.h"
#include "base/json.h"
#include "data/jsonl.h"
#include "data/numpy.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 4096,
    MAX_DOCUMENT = 1 << 30,
    MAX_KEPT_BYTES = 1 << 20,
    MAX_IDLE_BYTES = 4 << 20
};
enum { MOCK_DOCUMENTS = 100000 };
enum { NPY_DOCUMENT_TOKENS = 1 << 14 }; /* tokens per document of a 1-D array */
enum { LINE_BITS = 32 }; /* bits of a compressed position that number the document in its file */

static bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

static enum status detect_kind(struct source *s, const char *path, enum source_kind *kind)
{
    static const struct {
        const char *suffix;
        enum source_kind kind;
    } kinds[] = {{".jsonl", SOURCE_JSONL},
                 {".txt", SOURCE_TEXT},
                 {".bin", SOURCE_MEGATRON},
                 {".idx", SOURCE_MEGATRON},
                 {".parquet", SOURCE_TABLE},
                 {".arrow", SOURCE_TABLE},
                 {".npy", SOURCE_NPY},
                 {".jsonl.gz", SOURCE_COMPRESSED},
                 {".jsonl.zst", SOURCE_COMPRESSED},
                 {".txt.gz", SOURCE_COMPRESSED},
                 {".txt.zst", SOURCE_COMPRESSED},
                 {".json.gz", SOURCE_COMPRESSED}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (has_suffix(path, kinds[i].suffix)) {
            *kind = kinds[i].kind;
            s->lines_are_text = strstr(kinds[i].suffix, ".txt") != NULL;
            return STATUS_OK;
        }
    FAIL(CONFIG,
         "%s: unknown file type; supported are .txt, .jsonl (both also .gz, .zst), .parquet, "
         ".arrow, .npy and .bin/.idx",
         path);
}

static enum status open_file(struct source *s, const char *path)
{
    enum source_kind kind;
    s->files = heap_grow(s->files, s->num_files + 1, sizeof *s->files);
    struct source_file *f = &s->files[s->num_files++];
    *f = (struct source_file){.path = heap_string(path, strlen(path)),
                              .first_position = s->num_positions};
    if (file_is_dir(path))
        FAIL(CONFIG, "%s: is a folder; name its files, for example %s/*.jsonl", path, path);
    TRY(detect_kind(s, path, &kind));
    if (s->num_files > 1 && kind != s->kind)
        FAIL(CONFIG, "%s: all files of a source must have the same type", path);
    s->kind = kind;
    uint64_t size;
    if (kind == SOURCE_MEGATRON) {
        const struct file_map *idx = &f->tokens.idx;
        TRY(megatron_open(&f->tokens, path));
        s->num_positions += f->tokens.num_documents;
        size = f->tokens.bin.size;
        s->fingerprint = checksum_crc32c(s->fingerprint, idx->data, idx->size);
        s->holds_ids = true;
    } else if (kind == SOURCE_TABLE) {
        TRY(table_open(&f->table, path, s->config->column));
        if (s->num_files > 1 && s->holds_ids != table_holds_ids(&f->table))
            FAIL(CONFIG, "%s: the files of a source must all hold text or all hold token IDs",
                 path);
        s->holds_ids = table_holds_ids(&f->table);
        if (s->motifs && f->table.kind != TABLE_COUNTS)
            FAIL(CONFIG,
                 "%s: data.source.motifs requires spike counts, but column \"%s\" holds none", path,
                 s->config->column);
        f->table.motifs = s->motifs, f->table.motif_neurons = (size_t)s->config->motif_neurons;
        s->num_positions += f->table.num_rows;
        size = f->table.size;
    } else if (kind == SOURCE_NPY) {
        const struct npy *n = &f->array;
        TRY(npy_open(&f->array, path));
        if (n->num_axes == 1)
            s->num_positions +=
                n->columns / NPY_DOCUMENT_TOKENS + (n->columns % NPY_DOCUMENT_TOKENS != 0);
        else if (n->columns)
            s->num_positions += n->rows;
        size = n->map.size;
        s->holds_ids = true;
    } else if (kind == SOURCE_COMPRESSED) {
        TRY(file_size(path, &size));
    } else {
        TRY(file_map_open(&f->map, path));
        size = f->map.size;
        s->num_positions += kind == SOURCE_JSONL ? size : (size + CHUNK_BYTES - 1) / CHUNK_BYTES;
    }
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    s->fingerprint = checksum_crc32c(s->fingerprint, name, strlen(name));
    s->fingerprint = checksum_crc32c(s->fingerprint, &size, sizeof size);
    return STATUS_OK;
}

/* Is it a .bin whose .idx is also in the list? */
static bool has_index(const struct file_list *list, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; has_suffix(path, ".bin") && i < list->count; i++)
        if (has_suffix(list->paths[i], ".idx") && strlen(list->paths[i]) == n &&
            !memcmp(list->paths[i], path, n - 4))
            return true;
    return false;
}

static void open_mock(struct source *s)
{
    s->kind = SOURCE_MOCK;
    s->holds_ids = true;
    s->num_positions = MOCK_DOCUMENTS;
    s->mock_lengths = heap(MOCK_DOCUMENTS * sizeof *s->mock_lengths);
    numpy_mock_lengths(s->mock_lengths, MOCK_DOCUMENTS);
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
    enum status st = STATUS_OK;
    text_addf(&idx, "%s.idx", path);
    text_addf(&state, "%s/state.json", path);
    text_addf(&splits, "%s/dataset_dict.json", path);
    if (!strcmp(path, "mock")) {
        open_mock(s);
        goto out;
    }
    if (file_exists(idx.data) && (!file_exists(path) || file_is_dir(path))) {
        st = open_file(s, idx.data);
        goto out;
    }
    if (file_exists(splits.data))
        FAIL_OUT(CONFIG, "%s: is a folder of splits; name one of them, for example %s/train", path,
                 path);
    if (file_exists(state.data)) {
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

static enum status open_motifs(struct source *s)
{
    const char *path = s->config->motifs;
    if (!path || !path[0]) return STATUS_OK;
    TRY(motifs_open(&s->motifs, path));
    const uint32_t numbers[] = {motifs_checksum(s->motifs), (uint32_t)s->config->motif_neurons};
    s->fingerprint = checksum_crc32c(s->fingerprint, numbers, sizeof numbers);
    return STATUS_OK;
}

enum status source_open(struct source *s, const struct source_config *config)
{
    *s = (struct source){.config = config};
    char *path;
    TRY(hub_find(config->path, &path));
    enum status st = open_motifs(s);
    if (!st) st = open_files(s, path);
    free(path);
    if (!st && s->motifs && s->kind != SOURCE_TABLE)
        st = status_fail(STATUS_CONFIG, __FILE__, __LINE__,
                         "%s: data.source.motifs requires spike counts in .parquet or .arrow files",
                         config->path);
    s->fingerprint = checksum_crc32c(s->fingerprint, config->column, strlen(config->column));
    s->fingerprint = checksum_crc32c(s->fingerprint, &config->weight, sizeof config->weight);
    if (!st && s->kind != SOURCE_COMPRESSED && !s->num_positions)
        st = status_fail(STATUS_DATA, __FILE__, __LINE__, "%s: the source is empty", config->path);
    if (st) source_close(s);
    return st;
}

void source_close(struct source *s)
{
    for (size_t i = 0; i < s->num_files; i++) {
        file_map_close(&s->files[i].map);
        megatron_close(&s->files[i].tokens);
        table_close(&s->files[i].table);
        npy_close(&s->files[i].array);
        free(s->files[i].path);
    }
    free(s->files);
    free(s->mock_lengths);
    motifs_close(s->motifs);
    *s = (struct source){0};
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

static size_t file_at(const struct source *s, uint64_t position)
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

/* Blank lines are no documents. */
static bool is_blank(const void *line, size_t len)
{
    const char *at = line, *end = at + len;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
    return at == end;
}

/* Finds the next line that begins at or after *position, which may be inside a line. */
static void find_jsonl(const struct source *s, uint64_t *position, uint64_t end,
                       struct source_document *f, bool *none)
{
    for (*none = true; *none && *position < end;) {
        size_t i = file_at(s, *position);
        const struct source_file *file = &s->files[i];
        const unsigned char *data = file->map.data;
        uint64_t at = *position - file->first_position, size = file->map.size;
        if (at > 0 && data[at - 1] != '\n') { /* inside a line that the previous part owns */
            const unsigned char *stop = memchr(data + at, '\n', size - at);
            *position = file->first_position + (stop ? (uint64_t)(stop - data) + 1 : size);
            continue;
        }
        const unsigned char *stop = memchr(data + at, '\n', size - at);
        uint64_t len = stop ? (uint64_t)(stop - data) - at : size - at;
        *f = (struct source_document){*position, i, at, len, f->text};
        *position += len + (stop != NULL);
        *none = is_blank(data + at, len);
    }
}

/* Where chunk k begins: after the first line break within it, else after a space, else at a
 * character. */
static uint64_t chunk_begin(const struct source_file *f, uint64_t k)
{
    uint64_t from = k * CHUNK_BYTES, size = f->map.size;
    const unsigned char *data = f->map.data;
    if (!k) return 0;
    if (from >= size) return size;
    uint64_t room = size - from < CHUNK_BYTES ? size - from : CHUNK_BYTES;
    if (data[from - 1] == '\n') return from;
    const unsigned char *stop = memchr(data + from, '\n', room);
    if (!stop) stop = memchr(data + from, ' ', room);
    if (stop) return (uint64_t)(stop - data) + 1;
    for (int i = 0; i < 3 && from < size && (data[from] & 0xC0) == 0x80; i++) from++;
    return from;
}

static void find_text(const struct source *s, uint64_t *position, uint64_t end,
                      struct source_document *f, bool *none)
{
    for (*none = true; *none && *position < end; ++*position) {
        size_t i = file_at(s, *position);
        uint64_t k = *position - s->files[i].first_position, at = chunk_begin(&s->files[i], k);
        uint64_t len = chunk_begin(&s->files[i], k + 1) - at;
        *f = (struct source_document){*position, i, at, len, f->text};
        *none = !len;
    }
}

static void find_megatron(const struct source *s, uint64_t *position, uint64_t end,
                          struct source_document *f, bool *none)
{
    for (*none = true; *none && *position < end; ++*position) {
        size_t i = file_at(s, *position);
        uint64_t d = *position - s->files[i].first_position,
                 len = megatron_length(&s->files[i].tokens, d);
        *f = (struct source_document){*position, i, d, len, f->text};
        *none = !len;
    }
}

/* A row of a 2-D array, or NPY_DOCUMENT_TOKENS of a 1-D array. */
static void find_npy(const struct source *s, uint64_t *position, uint64_t end,
                     struct source_document *f, bool *none)
{
    *none = *position >= end;
    if (*none) return;
    size_t i = file_at(s, *position);
    const struct npy *n = &s->files[i].array;
    uint64_t d = *position - s->files[i].first_position, len = n->columns;
    if (n->num_axes == 1)
        len = len - d * NPY_DOCUMENT_TOKENS < NPY_DOCUMENT_TOKENS ? len - d * NPY_DOCUMENT_TOKENS
                                                                  : NPY_DOCUMENT_TOKENS;
    *f = (struct source_document){*position, i, d, len, f->text};
    ++*position;
}

static void trim_text(struct text *t)
{
    if (t->capacity > MAX_KEPT_BYTES)
        text_release(t); /* do not keep the buffer of a long document */
}

static void open_table_reader(const struct source *s, struct source_reader *r, size_t file)
{
    if (r->table && r->file == file) return;
    source_reader_close(r);
    r->file = file;
    table_reader_open(&r->table, &s->files[file].table);
}

static enum status find_table_row(const struct source *s, struct source_reader *r,
                                  uint64_t *position, uint64_t end, struct source_document *f,
                                  bool *none)
{
    for (*none = true; *none && *position < end; ++*position) {
        size_t i = file_at(s, *position);
        uint64_t row = *position - s->files[i].first_position;
        open_table_reader(s, r, i);
        trim_text(&f->text);
        TRY(table_read(r->table, row, &f->text));
        *f = (struct source_document){*position, i, row, f->text.len, f->text};
        if (s->holds_ids) f->len /= sizeof(int32_t);
        *none = !f->len;
    }
    return STATUS_OK;
}

static void find_mock(const struct source *s, uint64_t *position, uint64_t end,
                      struct source_document *f, bool *none)
{
    *none = *position >= end;
    if (*none) return;
    *f = (struct source_document){*position, 0, *position, (uint64_t)s->mock_lengths[*position],
                                  f->text};
    ++*position;
}

/* Compressed files are assigned to the parts round robin; with fewer files than parts, the parts of
 * a file take its documents round robin. */
static uint64_t parts_of_file(const struct source *s, uint64_t file, uint64_t num_parts)
{
    if (s->num_files >= num_parts) return 1;
    return (num_parts - file + s->num_files - 1) / s->num_files;
}

uint64_t source_compressed_part(const struct source *s, uint64_t position, uint64_t num_parts)
{
    uint64_t file = position >> LINE_BITS, line = position & UINT32_MAX;
    if (s->num_files >= num_parts) return file % num_parts;
    return file + line % parts_of_file(s, file, num_parts) * s->num_files;
}

/* Reads the next non-blank line of `file`; *end: end of file. */
static enum status next_compressed_line(const struct source *s, struct source_reader *r,
                                        uint64_t file, const char **line, size_t *len, bool *end)
{
    if (!r->lines || r->file != file) {
        source_reader_close(r);
        r->file = file;
        TRY(line_reader_open(&r->lines, s->files[file].path));
    }
    do {
        TRY(line_reader_next(r->lines, line, len, end));
        r->line += !*end;
    } while (!*end && is_blank(*line, *len));
    r->next += !*end;
    if (r->next > UINT32_MAX)
        FAIL(DATA, "%s: more than %u documents in a file", s->files[file].path, UINT32_MAX);
    return STATUS_OK;
}

static enum status find_compressed(const struct source *s, struct source_reader *r, uint64_t part,
                                   uint64_t num_parts, uint64_t *position,
                                   struct source_document *f, bool *none)
{
    uint64_t first_position = part % s->num_files;
    uint64_t stride = s->num_files >= num_parts ? num_parts : s->num_files;
    if (*position >> LINE_BITS < first_position) *position = first_position << LINE_BITS;
    if (r->next > (*position & UINT32_MAX))
        source_reader_close(r); /* cannot seek backwards: start again */
    for (*none = true; *none && *position >> LINE_BITS < s->num_files;) {
        uint64_t file = *position >> LINE_BITS;
        const char *line;
        size_t len;
        bool end;
        TRY(next_compressed_line(s, r, file, &line, &len, &end));
        if (end) {
            source_reader_close(r);
            *position = (file + stride) << LINE_BITS;
            continue;
        }
        uint64_t here = file << LINE_BITS | (r->next - 1);
        if (here < *position || source_compressed_part(s, here, num_parts) != part) continue;
        *f = (struct source_document){here, file, r->line, len, f->text};
        trim_text(&f->text);
        text_clear(&f->text);
        text_add(&f->text, line, len);
        *position = here + 1;
        *none = false;
    }
    return STATUS_OK;
}

enum status source_find(const struct source *s, struct source_reader *r, uint64_t part,
                        uint64_t num_parts, uint64_t *position, uint64_t end,
                        struct source_document *f, bool *none)
{
    switch (s->kind) {
    case SOURCE_JSONL: find_jsonl(s, position, end, f, none); return STATUS_OK;
    case SOURCE_TEXT: find_text(s, position, end, f, none); return STATUS_OK;
    case SOURCE_MEGATRON: find_megatron(s, position, end, f, none); return STATUS_OK;
    case SOURCE_NPY: find_npy(s, position, end, f, none); return STATUS_OK;
    case SOURCE_COMPRESSED: return find_compressed(s, r, part, num_parts, position, f, none);
    case SOURCE_TABLE: return find_table_row(s, r, position, end, f, none);
    case SOURCE_MOCK: find_mock(s, position, end, f, none); return STATUS_OK;
    }
    BUG("unknown kind of source");
}

uint64_t source_range_end(const struct source *s, struct source_reader *r, uint64_t position,
                          uint64_t *bytes)
{
    uint64_t target = *bytes, left = s->num_positions - position;
    BUG_IF(s->kind == SOURCE_COMPRESSED || position >= s->num_positions);
    if (s->kind == SOURCE_TABLE) {
        size_t i = file_at(s, position);
        open_table_reader(s, r, i);
        return s->files[i].first_position +
               table_range_end(r->table, position - s->files[i].first_position, bytes);
    }
    if (s->kind == SOURCE_JSONL || s->kind == SOURCE_TEXT) {
        uint64_t each = s->kind == SOURCE_JSONL ? 1 : CHUNK_BYTES,
                 num_positions = target / each + 1;
        num_positions = num_positions < left ? num_positions : left;
        *bytes = num_positions * each;
        return position + num_positions;
    }
    struct source_document f = {0};
    bool none = false;
    for (*bytes = 0; *bytes < target && !none;) { /* lengths of token sequences are known */
        if (source_find(s, r, 0, 1, &position, s->num_positions, &f, &none))
            BUG("a source of token IDs cannot fail to find a document");
        if (!none) *bytes += f.len * sizeof(int32_t);
    }
    return position;
}

static void append_special(struct token_list *out, bool wanted, int32_t id)
{
    if (!wanted || id < 0) return;
    token_list_reserve(out, 1);
    out->ids[out->count++] = id;
}

static enum status read_text(const struct source *s, const struct source_document *f,
                             struct source_tokens *t, struct token_list *out)
{
    const struct source_file *file = &s->files[f->file];
    bool in_memory = s->kind == SOURCE_COMPRESSED || s->kind == SOURCE_TABLE;
    const char *bytes = in_memory ? f->text.data : (const char *)file->map.data + f->at;
    size_t len = in_memory ? f->text.len : f->len;
    bool chunk = s->kind == SOURCE_TEXT;
    bool first_position = !chunk || f->at == 0, last = !chunk || f->at + f->len == file->map.size;
    char where[512];
    snprintf(where, sizeof where, "%.400s, %s %llu", file->path,
             s->kind == SOURCE_TABLE        ? "row"
             : s->kind == SOURCE_COMPRESSED ? "line"
                                            : "from byte",
             (unsigned long long)f->at);
    if (len > MAX_DOCUMENT)
        FAIL(DATA, "%s: the document has %zu bytes; the limit is %d", where, len, MAX_DOCUMENT);
    if (chunk || s->lines_are_text || s->kind == SOURCE_TABLE) {
        if (!utf8_valid(bytes, len)) FAIL(DATA, "%s: the text is not UTF-8", where);
    } else {
        TRY(jsonl_text(bytes, len, s->config->column, where, &t->text));
        bytes = t->text.data, len = t->text.len;
        if (!len) return STATUS_OK; /* an empty text has no tokens, not even BOS and EOS */
    }
    append_special(out, t->bos && first_position, tokenizer_bos(t->tokenizer));
    TRY(encoder_encode(t->encoder, bytes, len, out));
    append_special(out, t->eos && last, tokenizer_eos(t->tokenizer));
    return STATUS_OK;
}

static enum status read_mock(const struct source *s, uint64_t document, uint64_t from,
                             uint64_t count, const struct source_tokens *t, int32_t *ids)
{
    int64_t vocab = t->tokenizer ? tokenizer_vocab_size(t->tokenizer) : t->vocab_size;
    int64_t eos = t->tokenizer ? tokenizer_eos(t->tokenizer) : -1;
    uint64_t last = (uint64_t)s->mock_lengths[document] - 1;
    if (vocab < 1) FAIL(CONFIG, "mock data requires a tokenizer or model.vocab_size");
    if (eos < 0) eos = vocab - 1;
    for (uint64_t i = from; i < from + count; i++)
        *ids++ = (int32_t)(i == last ? eos : (int64_t)(i + 1) % vocab);
    return STATUS_OK;
}

static enum status read_ids(const struct source *s, const struct source_document *f,
                            const struct source_tokens *t, int32_t *ids)
{
    if (s->kind == SOURCE_MOCK) return read_mock(s, f->at, 0, f->len, t, ids);
    const struct source_file *file = &s->files[f->file];
    const int64_t vocab_size = t->vocab_size;
    if (s->kind == SOURCE_MEGATRON) return megatron_read(&file->tokens, f->at, vocab_size, ids);
    if (s->kind == SOURCE_NPY) {
        uint64_t each = file->array.num_axes == 1 ? NPY_DOCUMENT_TOKENS : file->array.columns;
        return npy_read(&file->array, f->at * each, f->len, vocab_size, ids);
    }
    memcpy(ids, f->text.data, f->len * sizeof *ids);
    for (uint64_t i = 0; i < f->len; i++)
        if (vocab_size && ids[i] >= vocab_size)
            FAIL(DATA, "%s: row %llu has the token ID %d; the vocabulary has %lld", file->path,
                 (unsigned long long)f->at, ids[i], (long long)vocab_size);
    return STATUS_OK;
}

uint64_t source_num_sequences(const struct source *s)
{
    if (s->kind == SOURCE_MOCK) return s->num_positions;
    return s->kind == SOURCE_MEGATRON && s->num_files == 1 ? s->files->tokens.num_sequences : 0;
}

uint64_t source_sequence_length(const struct source *s, uint64_t sequence)
{
    if (s->kind == SOURCE_MOCK) return (uint64_t)s->mock_lengths[sequence];
    return megatron_sequence_length(&s->files->tokens, sequence);
}

enum status source_read_sequence(const struct source *s, uint64_t sequence, uint64_t from,
                                 uint64_t count, const struct source_tokens *t, int32_t *ids)
{
    if (s->kind == SOURCE_MOCK) return read_mock(s, sequence, from, count, t, ids);
    return megatron_read_sequence(&s->files->tokens, sequence, from, count, t->vocab_size, ids);
}

enum status source_read(const struct source *s, const struct source_document *f,
                        struct source_tokens *t, struct token_list *out)
{
    if (!s->holds_ids) {
        if (!t->encoder) FAIL(CONFIG, "%s is text: data.tokenizer is required", s->config->path);
        return read_text(s, f, t, out);
    }
    if (f->len > MAX_DOCUMENT)
        FAIL(DATA, "%s: a document has %llu tokens, which exceeds the limit of %d", s->config->path,
             (unsigned long long)f->len, MAX_DOCUMENT);
    token_list_reserve(out, f->len);
    TRY(read_ids(s, f, t, out->ids + out->count));
    out->count += f->len;
    return STATUS_OK;
}
