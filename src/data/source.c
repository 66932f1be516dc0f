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

enum { CHUNK = 4096, LONGEST = 1 << 30, KEPT = 1 << 20, RESTING = 4 << 20 };
enum { MOCK_DOCUMENTS = 100000 };
enum { PIECE = 1 << 14 }; /* tokens of a document cut from an array of one axis */
enum { PLACE_LINE = 32 }; /* bits of a packed place that number the document in its file */

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

static enum status kind_of(struct source *s, const char *path, enum source_kind *kind)
{
    static const struct {
        const char *suffix;
        enum source_kind kind;
    } kinds[] = {
        {".jsonl", SOURCE_LINES},   {".txt", SOURCE_CHUNKS},      {".bin", SOURCE_TOKENS},
        {".idx", SOURCE_TOKENS},    {".parquet", SOURCE_ROWS},    {".arrow", SOURCE_ROWS},
        {".npy", SOURCE_ARRAY},     {".jsonl.gz", SOURCE_PACKED}, {".jsonl.zst", SOURCE_PACKED},
        {".txt.gz", SOURCE_PACKED}, {".txt.zst", SOURCE_PACKED},  {".json.gz", SOURCE_PACKED}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_in(path, kinds[i].suffix)) {
            *kind = kinds[i].kind;
            s->packed_text = strstr(kinds[i].suffix, ".txt") != NULL;
            return STATUS_OK;
        }
    FAIL(CONFIG,
         "%s: unknown kind of data; .txt, .jsonl (both also .gz, .zst), .parquet, .arrow, "
         ".npy and .bin/.idx are read",
         path);
}

static enum status open_file(struct source *s, const char *path)
{
    enum source_kind kind;
    s->files = heap_grow(s->files, s->num_files + 1, sizeof *s->files);
    struct source_file *f = &s->files[s->num_files++];
    *f = (struct source_file){.path = heap_string(path, strlen(path)), .first = s->places};
    if (file_is_dir(path)) FAIL(CONFIG, "%s: a folder; name files, as in %s/*.jsonl", path, path);
    TRY(kind_of(s, path, &kind));
    if (s->num_files > 1 && kind != s->kind)
        FAIL(CONFIG, "%s: the files of a source must be of one kind", path);
    s->kind = kind;
    uint64_t size;
    if (kind == SOURCE_TOKENS) {
        const struct file_map *idx = &f->tokens.idx;
        TRY(megatron_open(&f->tokens, path));
        s->places += f->tokens.num_documents;
        size = f->tokens.bin.size;
        s->fingerprint = checksum_crc32c(s->fingerprint, idx->data, idx->size);
        s->holds_ids = true;
    } else if (kind == SOURCE_ROWS) {
        TRY(table_open(&f->table, path, s->config->column));
        if (s->num_files > 1 && s->holds_ids != table_holds_ids(&f->table))
            FAIL(CONFIG, "%s: the files of a source must all hold text, or all ids", path);
        s->holds_ids = table_holds_ids(&f->table);
        if (s->motifs && f->table.kind != TABLE_COUNTS)
            FAIL(CONFIG, "%s: motifs are of spike counts; column \"%s\" holds none", path,
                 s->config->column);
        f->table.motifs = s->motifs, f->table.motif_neurons = (size_t)s->config->motif_neurons;
        s->places += f->table.num_rows;
        size = f->table.size;
    } else if (kind == SOURCE_ARRAY) {
        const struct npy *n = &f->array;
        TRY(npy_open(&f->array, path));
        if (n->num_axes == 1)
            s->places += n->columns / PIECE + (n->columns % PIECE != 0);
        else if (n->columns)
            s->places += n->rows;
        size = n->map.size;
        s->holds_ids = true;
    } else if (kind == SOURCE_PACKED) {
        TRY(file_size(path, &size));
    } else {
        TRY(file_map_open(&f->map, path));
        size = f->map.size;
        s->places += kind == SOURCE_LINES ? size : (size + CHUNK - 1) / CHUNK;
    }
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    s->fingerprint = checksum_crc32c(s->fingerprint, name, strlen(name));
    s->fingerprint = checksum_crc32c(s->fingerprint, &size, sizeof size);
    return STATUS_OK;
}

/* Is it the .bin of an .idx that is in the list, too? */
static bool has_index(const struct file_list *list, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; ends_in(path, ".bin") && i < list->count; i++)
        if (ends_in(list->paths[i], ".idx") && strlen(list->paths[i]) == n &&
            !memcmp(list->paths[i], path, n - 4))
            return true;
    return false;
}

static void open_mock(struct source *s)
{
    s->kind = SOURCE_MOCK;
    s->holds_ids = true;
    s->places = MOCK_DOCUMENTS;
    s->mock_lengths = heap(MOCK_DOCUMENTS * sizeof *s->mock_lengths);
    numpy_mock_lengths(s->mock_lengths, MOCK_DOCUMENTS);
}

/* The files of a folder that `datasets` saved, as its state.json lists them. */
static enum status open_saved(struct source *s, const char *folder, const char *state)
{
    struct json *root = NULL;
    const struct json *files;
    const char *name;
    enum status st = STATUS_OK;
    TRY(json_read(state, 64 << 20, &root));
    files = json_get(root, "_data_files");
    if (!json_is_array(files)) FAIL_OUT(DATA, "%s: there is no list \"_data_files\"", state);
    for (const struct json *v = json_first(files); v; v = json_next(v)) {
        TRY_OUT(json_get_string(v, "filename", &name));
        if (strchr(name, '/')) FAIL_OUT(DATA, "%s: the file name \"%s\"", state, name);
        char *path = file_join(folder, name);
        st = open_file(s, path);
        free(path);
        if (st) goto out;
    }
out:
    json_free(root);
    return st;
}

/* A prefix of .bin/.idx, or everything a pattern matches; of a pair the .idx alone is taken. */
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
        FAIL_OUT(CONFIG, "%s: a folder of splits; name one, as in %s/train", path, path);
    if (file_exists(state.data)) {
        TRY_OUT(open_saved(s, path, state.data));
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
    if (!st && s->motifs && s->kind != SOURCE_ROWS)
        st = status_fail(STATUS_CONFIG, __FILE__, __LINE__,
                         "%s: motifs are of spike counts, which .parquet and .arrow files hold",
                         config->path);
    s->fingerprint = checksum_crc32c(s->fingerprint, config->column, strlen(config->column));
    s->fingerprint = checksum_crc32c(s->fingerprint, &config->weight, sizeof config->weight);
    if (!st && s->kind != SOURCE_PACKED && !s->places)
        st = status_fail(STATUS_DATA, __FILE__, __LINE__, "%s: there is nothing in it",
                         config->path);
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
    lines_close(r->lines);
    table_reader_close(r->table);
    *r = (struct source_reader){0};
}

void source_reader_rest(struct source_reader *r)
{
    if (r->table && table_reader_bytes(r->table) > RESTING) source_reader_close(r);
}

static size_t file_of(const struct source *s, uint64_t place)
{
    size_t low = 0, high = s->num_files;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (s->files[middle].first <= place)
            low = middle;
        else
            high = middle;
    }
    while (low + 1 < s->num_files && s->files[low + 1].first <= place) low++;
    return low;
}

/* An empty line is no document. */
static bool is_blank(const void *line, size_t len)
{
    const char *at = line, *end = at + len;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
    return at == end;
}

/* The next place where a line begins, from anywhere. */
static void find_line(const struct source *s, uint64_t *place, uint64_t end, struct found *f,
                      bool *none)
{
    for (*none = true; *none && *place < end;) {
        size_t i = file_of(s, *place);
        const struct source_file *file = &s->files[i];
        const unsigned char *data = file->map.data;
        uint64_t at = *place - file->first, size = file->map.size;
        if (at > 0 && data[at - 1] != '\n') { /* inside a line that belongs to the share before */
            const unsigned char *stop = memchr(data + at, '\n', size - at);
            *place = file->first + (stop ? (uint64_t)(stop - data) + 1 : size);
            continue;
        }
        const unsigned char *stop = memchr(data + at, '\n', size - at);
        uint64_t len = stop ? (uint64_t)(stop - data) - at : size - at;
        *f = (struct found){*place, i, at, len, f->text};
        *place += len + (stop != NULL);
        *none = is_blank(data + at, len);
    }
}

/* Where chunk k begins: the first line start within it, else after a space, else a character. */
static uint64_t chunk_begin(const struct source_file *f, uint64_t k)
{
    uint64_t from = k * CHUNK, size = f->map.size;
    const unsigned char *data = f->map.data;
    if (!k) return 0;
    if (from >= size) return size;
    uint64_t room = size - from < CHUNK ? size - from : CHUNK;
    if (data[from - 1] == '\n') return from;
    const unsigned char *stop = memchr(data + from, '\n', room);
    if (!stop) stop = memchr(data + from, ' ', room);
    if (stop) return (uint64_t)(stop - data) + 1;
    for (int i = 0; i < 3 && from < size && (data[from] & 0xC0) == 0x80; i++) from++;
    return from;
}

static void find_chunk(const struct source *s, uint64_t *place, uint64_t end, struct found *f,
                       bool *none)
{
    for (*none = true; *none && *place < end; ++*place) {
        size_t i = file_of(s, *place);
        uint64_t k = *place - s->files[i].first, at = chunk_begin(&s->files[i], k);
        uint64_t len = chunk_begin(&s->files[i], k + 1) - at;
        *f = (struct found){*place, i, at, len, f->text};
        *none = !len;
    }
}

static void find_tokens(const struct source *s, uint64_t *place, uint64_t end, struct found *f,
                        bool *none)
{
    for (*none = true; *none && *place < end; ++*place) {
        size_t i = file_of(s, *place);
        uint64_t d = *place - s->files[i].first, len = megatron_length(&s->files[i].tokens, d);
        *f = (struct found){*place, i, d, len, f->text};
        *none = !len;
    }
}

/* A row of an array of two axes; of one axis a piece of it. */
static void find_array(const struct source *s, uint64_t *place, uint64_t end, struct found *f,
                       bool *none)
{
    *none = *place >= end;
    if (*none) return;
    size_t i = file_of(s, *place);
    const struct npy *n = &s->files[i].array;
    uint64_t d = *place - s->files[i].first, len = n->columns;
    if (n->num_axes == 1) len = len - d * PIECE < PIECE ? len - d * PIECE : PIECE;
    *f = (struct found){*place, i, d, len, f->text};
    ++*place;
}

static void keep_little(struct text *t)
{
    if (t->capacity > KEPT) text_release(t); /* a long one is not kept for ever */
}

static void need_table(const struct source *s, struct source_reader *r, size_t file)
{
    if (r->table && r->file == file) return;
    source_reader_close(r);
    r->file = file;
    table_reader_open(&r->table, &s->files[file].table);
}

static enum status find_row(const struct source *s, struct source_reader *r, uint64_t *place,
                            uint64_t end, struct found *f, bool *none)
{
    for (*none = true; *none && *place < end; ++*place) {
        size_t i = file_of(s, *place);
        uint64_t row = *place - s->files[i].first;
        need_table(s, r, i);
        keep_little(&f->text);
        TRY(table_read(r->table, row, &f->text));
        *f = (struct found){*place, i, row, f->text.len, f->text};
        if (s->holds_ids) f->len /= sizeof(int32_t);
        *none = !f->len;
    }
    return STATUS_OK;
}

static void find_mock(const struct source *s, uint64_t *place, uint64_t end, struct found *f,
                      bool *none)
{
    *none = *place >= end;
    if (*none) return;
    *f = (struct found){*place, 0, *place, (uint64_t)s->mock_lengths[*place], f->text};
    ++*place;
}

/* Files of a packed source are dealt out to the shares; where there are fewer files than shares,
 * the shares of a file take its documents in turn. */
static uint64_t shares_of_file(const struct source *s, uint64_t file, uint64_t shares)
{
    if (s->num_files >= shares) return 1;
    return (shares - file + s->num_files - 1) / s->num_files;
}

uint64_t source_packed_share(const struct source *s, uint64_t place, uint64_t shares)
{
    uint64_t file = place >> PLACE_LINE, line = place & UINT32_MAX;
    if (s->num_files >= shares) return file % shares;
    return file + line % shares_of_file(s, file, shares) * s->num_files;
}

/* The next line of `file` that is no blank one; *end: none is left. */
static enum status next_packed(const struct source *s, struct source_reader *r, uint64_t file,
                               const char **line, size_t *len, bool *end)
{
    if (!r->lines || r->file != file) {
        source_reader_close(r);
        r->file = file;
        TRY(lines_open(&r->lines, s->files[file].path));
    }
    do {
        TRY(lines_next(r->lines, line, len, end));
        r->line += !*end;
    } while (!*end && is_blank(*line, *len));
    r->next += !*end;
    if (r->next > UINT32_MAX)
        FAIL(DATA, "%s: more than %u documents in a file", s->files[file].path, UINT32_MAX);
    return STATUS_OK;
}

static enum status find_packed(const struct source *s, struct source_reader *r, uint64_t share,
                               uint64_t shares, uint64_t *place, struct found *f, bool *none)
{
    uint64_t first = share % s->num_files;
    uint64_t stride = s->num_files >= shares ? shares : s->num_files;
    if (*place >> PLACE_LINE < first) *place = first << PLACE_LINE;
    if (r->next > (*place & UINT32_MAX)) source_reader_close(r); /* only from the start again */
    for (*none = true; *none && *place >> PLACE_LINE < s->num_files;) {
        uint64_t file = *place >> PLACE_LINE;
        const char *line;
        size_t len;
        bool end;
        TRY(next_packed(s, r, file, &line, &len, &end));
        if (end) {
            source_reader_close(r);
            *place = (file + stride) << PLACE_LINE;
            continue;
        }
        uint64_t here = file << PLACE_LINE | (r->next - 1);
        if (here < *place || source_packed_share(s, here, shares) != share) continue;
        *f = (struct found){here, file, r->line, len, f->text};
        keep_little(&f->text);
        text_clear(&f->text);
        text_add(&f->text, line, len);
        *place = here + 1;
        *none = false;
    }
    return STATUS_OK;
}

enum status source_find(const struct source *s, struct source_reader *r, uint64_t share,
                        uint64_t shares, uint64_t *place, uint64_t end, struct found *f, bool *none)
{
    switch (s->kind) {
    case SOURCE_LINES: find_line(s, place, end, f, none); return STATUS_OK;
    case SOURCE_CHUNKS: find_chunk(s, place, end, f, none); return STATUS_OK;
    case SOURCE_TOKENS: find_tokens(s, place, end, f, none); return STATUS_OK;
    case SOURCE_ARRAY: find_array(s, place, end, f, none); return STATUS_OK;
    case SOURCE_PACKED: return find_packed(s, r, share, shares, place, f, none);
    case SOURCE_ROWS: return find_row(s, r, place, end, f, none);
    case SOURCE_MOCK: find_mock(s, place, end, f, none); return STATUS_OK;
    }
    BUG("unknown kind of source");
}

uint64_t source_ahead(const struct source *s, struct source_reader *r, uint64_t place,
                      uint64_t *bytes)
{
    uint64_t most = *bytes, left = s->places - place;
    BUG_IF(s->kind == SOURCE_PACKED || place >= s->places);
    if (s->kind == SOURCE_ROWS) {
        size_t i = file_of(s, place);
        need_table(s, r, i);
        return s->files[i].first + table_ahead(r->table, place - s->files[i].first, bytes);
    }
    if (s->kind == SOURCE_LINES || s->kind == SOURCE_CHUNKS) {
        uint64_t each = s->kind == SOURCE_LINES ? 1 : CHUNK, places = most / each + 1;
        places = places < left ? places : left;
        *bytes = places * each;
        return place + places;
    }
    struct found f = {0};
    bool none = false;
    for (*bytes = 0; *bytes < most && !none;) { /* the lengths of token ids are known */
        if (source_find(s, r, 0, 1, &place, s->places, &f, &none)) BUG("ids that are not found");
        if (!none) *bytes += f.len * sizeof(int32_t);
    }
    return place;
}

static void add_id(struct token_list *out, bool wanted, int32_t id)
{
    if (!wanted || id < 0) return;
    token_list_reserve(out, 1);
    out->ids[out->count++] = id;
}

static enum status read_text(const struct source *s, const struct found *f, struct source_tokens *t,
                             struct token_list *out)
{
    const struct source_file *file = &s->files[f->file];
    bool held = s->kind == SOURCE_PACKED || s->kind == SOURCE_ROWS;
    const char *bytes = held ? f->text.data : (const char *)file->map.data + f->at;
    size_t len = held ? f->text.len : f->len;
    bool chunk = s->kind == SOURCE_CHUNKS;
    bool first = !chunk || f->at == 0, last = !chunk || f->at + f->len == file->map.size;
    char where[512];
    snprintf(where, sizeof where, "%.400s, %s %llu", file->path,
             s->kind == SOURCE_ROWS     ? "row"
             : s->kind == SOURCE_PACKED ? "line"
                                        : "from byte",
             (unsigned long long)f->at);
    if (len > LONGEST)
        FAIL(DATA, "%s: a document of %zu bytes; %d at most are read", where, len, LONGEST);
    if (chunk || s->packed_text || s->kind == SOURCE_ROWS) {
        if (!utf8_valid(bytes, len)) FAIL(DATA, "%s: the text is not UTF-8", where);
    } else {
        TRY(jsonl_text(bytes, len, s->config->column, where, &t->text));
        bytes = t->text.data, len = t->text.len;
        if (!len) return STATUS_OK; /* an empty text is no document */
    }
    add_id(out, t->bos && first, tokenizer_bos(t->tokenizer));
    TRY(encoder_encode(t->encoder, bytes, len, out));
    add_id(out, t->eos && last, tokenizer_eos(t->tokenizer));
    return STATUS_OK;
}

static enum status read_mock(const struct source *s, uint64_t document, uint64_t from,
                             uint64_t count, const struct source_tokens *t, int32_t *ids)
{
    int64_t vocab = t->tokenizer ? tokenizer_vocab_size(t->tokenizer) : t->vocab_size;
    int64_t eos = t->tokenizer ? tokenizer_eos(t->tokenizer) : -1;
    uint64_t last = (uint64_t)s->mock_lengths[document] - 1;
    if (vocab < 1) FAIL(CONFIG, "mock data needs a tokenizer or model.vocab_size");
    if (eos < 0) eos = vocab - 1;
    for (uint64_t i = from; i < from + count; i++)
        *ids++ = (int32_t)(i == last ? eos : (int64_t)(i + 1) % vocab);
    return STATUS_OK;
}

static enum status read_ids(const struct source *s, const struct found *f,
                            const struct source_tokens *t, int32_t *ids)
{
    if (s->kind == SOURCE_MOCK) return read_mock(s, f->at, 0, f->len, t, ids);
    const struct source_file *file = &s->files[f->file];
    const int64_t vocab_size = t->vocab_size;
    if (s->kind == SOURCE_TOKENS) return megatron_read(&file->tokens, f->at, vocab_size, ids);
    if (s->kind == SOURCE_ARRAY) {
        uint64_t each = file->array.num_axes == 1 ? PIECE : file->array.columns;
        return npy_read(&file->array, f->at * each, f->len, vocab_size, ids);
    }
    memcpy(ids, f->text.data, f->len * sizeof *ids);
    for (uint64_t i = 0; i < f->len; i++)
        if (vocab_size && ids[i] >= vocab_size)
            FAIL(DATA, "%s: row %llu holds the id %d; the vocabulary has %lld", file->path,
                 (unsigned long long)f->at, ids[i], (long long)vocab_size);
    return STATUS_OK;
}

uint64_t source_num_sequences(const struct source *s)
{
    if (s->kind == SOURCE_MOCK) return s->places;
    return s->kind == SOURCE_TOKENS && s->num_files == 1 ? s->files->tokens.num_sequences : 0;
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
    const struct megatron_range range = {sequence, from, count};
    return megatron_read_sequence(&s->files->tokens, range, t->vocab_size, ids);
}

enum status source_read(const struct source *s, const struct found *f, struct source_tokens *t,
                        struct token_list *out)
{
    if (!s->holds_ids) {
        if (!t->encoder)
            FAIL(CONFIG, "%s is text: data.tokenizer says how to read it", s->config->path);
        return read_text(s, f, t, out);
    }
    if (f->len > LONGEST)
        FAIL(DATA, "%s: a document of %llu tokens", s->config->path, (unsigned long long)f->len);
    token_list_reserve(out, f->len);
    TRY(read_ids(s, f, t, out->ids + out->count));
    out->count += f->len;
    return STATUS_OK;
}
