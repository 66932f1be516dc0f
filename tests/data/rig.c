// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/file.h"
#include "formats/megatron.h"

#include <zlib.h>
#include <zstd.h>

const char *rig_bytes(const char *folder, const char *name, const void *bytes, size_t len)
{
    const char *path = test_path(folder, name);
    CHECK_STATUS(OK, file_write(path, bytes, len));
    return path;
}

const char *rig_text(const char *folder, const char *name, const char *text)
{
    return rig_bytes(folder, name, text, strlen(text));
}

void rig_gzip(struct text *out, const void *bytes, size_t len)
{
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    text_reserve(out, deflateBound(&z, len));
    z.next_in = (unsigned char *)(uintptr_t)bytes, z.avail_in = (uInt)len;
    z.next_out = (unsigned char *)out->data + out->len;
    z.avail_out = (uInt)(out->capacity - out->len);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

void rig_zstd(struct text *out, const void *bytes, size_t len)
{
    text_reserve(out, ZSTD_compressBound(len));
    size_t n = ZSTD_compress(out->data + out->len, out->capacity - out->len, bytes, len, 3);
    CHECK(!ZSTD_isError(n));
    out->len += n;
}

void rig_lines(struct text *out, const char *name, int documents)
{
    for (int d = 0; d < documents; d++) {
        text_addf(out, "{\"id\": [%d, {\"text\": 1}], \"text\": \"%s %d:", d, name, d);
        for (int i = 0; i < d * 7 % 41; i++) text_addf(out, " w\\\"\\n%d", i * d);
        text_adds(out, " \\u00e9\\ud83d\\ude00\"}\n");
    }
}

static void add_number(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) text_add(t, &(char){(char)(value >> (8 * i))}, 1);
}

void rig_tokens(const char *folder, const char *name, const int *lengths, int documents, int first)
{
    struct text bin = {0}, idx = {0}, file = {0};
    unsigned char head[MEGATRON_HEADER_BYTES];
    int at = 0;
    megatron_build_header(MEGATRON_I32, (uint64_t)documents, head);
    text_add(&idx, head, sizeof head);
    for (int d = 0; d < documents; d++) add_number(&idx, (uint64_t)lengths[d], 4);
    for (int d = 0; d < documents; at += lengths[d++]) add_number(&idx, 4 * (uint64_t)at, 8);
    for (int d = 0; d <= documents; d++) add_number(&idx, (uint64_t)d, 8);
    for (int i = 0; i < at; i++) add_number(&bin, (uint64_t)(first + i), 4);
    text_addf(&file, "%s.bin", name);
    rig_bytes(folder, file.data, bin.data, bin.len);
    memcpy(file.data + file.len - 3, "idx", 3);
    rig_bytes(folder, file.data, idx.data, idx.len);
    text_release(&bin), text_release(&idx), text_release(&file);
}

void rig_init(struct rig *r, const char *tokenizer, int seq_len)
{
    *r = (struct rig){
        .data = {.seed = 1,
                 .streams = 4,
                 .shuffle_window = 4,
                 .bos = true,
                 .eos = true,
                 .row_overlap = true,
                 .order = ORDER_streams,
                 .split = "1",
                 .blend = BLEND_BY_auto},
        .objective = {.name = OBJECTIVE_causal, .mask_probability = 0.3, .mask_token = "<|mask|>"},
        .options = {.seq_len = seq_len, .num_readers = 1},
    };
    if (tokenizer) {
        CHECK_STATUS(OK, tokenizer_open(&r->tokenizer, tokenizer, &(struct tokenizer_config){0}));
        r->options.tokenizer = r->tokenizer;
    }
}

void rig_add(struct rig *r, const char *path, double weight)
{
    CHECK(r->data.num_sources < 4);
    r->sources[r->data.num_sources++] =
        (struct source_config){.path = path, .column = "text", .weight = weight};
}

const char *rig_array(const char *folder, const char *name, int rows, int columns)
{
    struct text t = {0}, shape = {0};
    if (rows)
        text_addf(&shape, "%d, %d", rows, columns);
    else
        text_addf(&shape, "%d,", columns);
    text_add(&t, "\x93NUMPY\1\0\x76\0", 10);
    text_addf(&t, "%-117s\n", "");
    int len = snprintf(t.data + 10, 118,
                       "{'descr': '<u2', 'fortran_order': False, 'shape': (%s), }", shape.data);
    t.data[10 + len] = ' ';
    for (int i = 0; i < (rows ? rows : 1) * columns; i++)
        text_add(&t, &(uint16_t){(uint16_t)(i % 250)}, 2);
    const char *path = rig_bytes(folder, name, t.data, t.len);
    text_release(&t), text_release(&shape);
    return path;
}

void rig_add_kind(struct rig *r, const char *folder, int kind)
{
    static const char *const kinds[] = {"a.txt",     "a.jsonl", "a.jsonl.gz", "a.jsonl.zst",
                                        "a.txt.zst", "tokens",  "rows.npy"};
    struct text lines = {0}, packed = {0};
    int lengths[40];
    rig_lines(&lines, "doc", 60);
    rig_text(folder, "a.jsonl", lines.data);
    rig_gzip(&packed, lines.data, lines.len);
    rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len);
    text_clear(&packed);
    rig_zstd(&packed, lines.data, lines.len / 2);
    rig_zstd(&packed, lines.data + lines.len / 2, lines.len - lines.len / 2);
    rig_bytes(folder, "a.jsonl.zst", packed.data, packed.len);
    rig_bytes(folder, "a.txt.zst", packed.data, packed.len);
    while (lines.len < 48000) rig_lines(&lines, "more", 60);
    rig_text(folder, "a.txt", lines.data);
    for (int d = 0; d < 40; d++) lengths[d] = d * 11 % 9;
    rig_tokens(folder, "tokens", lengths, 40, 0);
    rig_array(folder, "rows.npy", 50, 7);
    text_release(&lines), text_release(&packed);
    if (kind == RIG_KINDS - 2) {
        rig_add(r, "tests/oracle/data/parquet/pyarrow-*.parquet", 1);
        return;
    }
    if (kind < RIG_KINDS - 2) {
        rig_add(r, test_path(folder, kinds[kind]), 1);
        return;
    }
    rig_add(r, test_path(folder, "a.txt"), 0.5);
    rig_add(r, test_path(folder, "a.jsonl.gz"), 1);
    rig_add(r, test_path(folder, "tokens"), 2.5);
}

struct loader *rig_open(struct rig *r)
{
    struct loader *l = NULL;
    r->data.sources = r->sources;
    r->options.data = &r->data;
    r->options.objective = &r->objective;
    CHECK_STATUS(OK, loader_open(&l, &r->options));
    return l;
}

void rig_release(struct rig *r) { tokenizer_close(r->tokenizer); }

/* Makes room for `room` rows. */
static void grow(struct rows *r, int64_t room)
{
    int32_t **all[] = {&r->ids, &r->labels, &r->start, &r->end};
    if (room <= r->capacity) return;
    r->capacity = room > 2 * r->capacity ? room : 2 * r->capacity;
    for (int i = 0; i < 4; i++)
        *all[i] = heap_grow(*all[i], (size_t)r->capacity * (size_t)r->T, sizeof **all[i]);
}

void rows_read(struct rows *r, struct loader *l, int T, int B, int64_t most)
{
    r->T = T;
    for (int64_t end = r->count + most; r->count < end;) {
        int64_t at = r->count * T;
        int rows = 0;
        grow(r, r->count + B);
        struct batch b = {.B = end - r->count < B ? (int)(end - r->count) : B,
                          .T = T,
                          .ids_BT = r->ids + at,
                          .labels_BT = r->labels + at,
                          .start_BT = r->start + at,
                          .end_BT = r->end + at};
        CHECK_STATUS(OK, loader_next(l, &b, &rows));
        r->count += rows, r->valid += b.valid, r->bytes += b.bytes, r->padding += b.padding;
        if (rows < b.B) return;
    }
}

struct rows rows_of(struct rig *r, int B, int64_t most)
{
    struct rows rows = {0};
    struct loader *l = rig_open(r);
    rows_read(&rows, l, r->options.seq_len, B, most);
    loader_close(l);
    return rows;
}

void rows_release(struct rows *r)
{
    free(r->ids), free(r->labels), free(r->start), free(r->end);
    *r = (struct rows){0};
}

void rows_check_same(const struct rows *a, int64_t a_at, const struct rows *b, int64_t b_at,
                     int64_t count)
{
    size_t bytes = (size_t)(count * a->T) * sizeof(int32_t);
    CHECK(a->T == b->T && a_at + count <= a->count && b_at + count <= b->count);
    a_at *= a->T, b_at *= b->T;
    CHECK(!memcmp(a->ids + a_at, b->ids + b_at, bytes));
    CHECK(!memcmp(a->labels + a_at, b->labels + b_at, bytes));
    CHECK(!memcmp(a->start + a_at, b->start + b_at, bytes));
    CHECK(!memcmp(a->end + a_at, b->end + b_at, bytes));
}
