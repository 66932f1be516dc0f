// SPDX-License-Identifier: Apache-2.0
#include "formats/megatron.h"

#include "base/reader.h"
#include "base/text.h"
#include "formats/megatron_sum.h"

#include <stdlib.h>
#include <string.h>

static const char magic[] = "MMIDIDX\0"; /* and the NUL of the string */

static int64_t read_integer(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return (int64_t)value;
}

static int64_t sequence_length(const struct megatron *m, uint64_t s)
{
    return (int32_t)read_integer(m->lengths + 4 * s, 4);
}
static int64_t sequence_pointer(const struct megatron *m, uint64_t s)
{
    return read_integer(m->pointers + 8 * s, 8);
}
static int64_t document_start(const struct megatron *m, uint64_t d)
{
    return read_integer(m->documents + 8 * d, 8);
}

static enum status read_index(struct megatron *m, const char *path)
{
    static const int bytes_of[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    struct reader r = {m->idx.data, m->idx.data + m->idx.size, path};
    const unsigned char *head;
    uint64_t version, num_indices;
    uint8_t dtype;
    size_t bytes;
    TRY(reader_bytes(&r, sizeof magic, &head, "the magic"));
    if (memcmp(head, magic, sizeof magic)) FAIL(DATA, "%s: not a Megatron index (.idx)", path);
    TRY(reader_u64(&r, &version, "the version"));
    if (version != 1)
        FAIL(DATA, "%s: index version %llu is not supported: expected 1", path,
             (unsigned long long)version);
    TRY(reader_u8(&r, &dtype, "the dtype"));
    if (dtype >= sizeof bytes_of / sizeof *bytes_of || !bytes_of[dtype])
        FAIL(DATA, "%s: dtype %d is not an integer type", path, dtype);
    TRY(reader_u64(&r, &m->num_sequences, "the number of sequences"));
    TRY(reader_u64(&r, &num_indices, "the number of documents"));
    TRY(reader_count(&r, m->num_sequences, 4, &bytes, "the lengths"));
    TRY(reader_bytes(&r, bytes, &m->lengths, "the lengths"));
    TRY(reader_count(&r, m->num_sequences, 8, &bytes, "the pointers"));
    TRY(reader_bytes(&r, bytes, &m->pointers, "the pointers"));
    TRY(reader_count(&r, num_indices, 8, &bytes, "the documents"));
    TRY(reader_bytes(&r, bytes, &m->documents, "the documents"));
    if (!num_indices) FAIL(DATA, "%s: the document indices are empty", path);
    m->num_documents = num_indices - 1;
    m->token_bytes = bytes_of[dtype];
    m->dtype = dtype;
    return STATUS_OK;
}

/* The tokens of a sequence; false: they are not within the .bin. */
static bool find_sequence(const struct megatron *m, uint64_t s, uint64_t *length,
                          const unsigned char **tokens)
{
    int64_t count = sequence_length(m, s), at = sequence_pointer(m, s);
    uint64_t bytes = (uint64_t)count * (uint64_t)m->token_bytes;
    bool is_inside =
        count >= 0 && at >= 0 && (uint64_t)at <= m->bin.size && bytes <= m->bin.size - (uint64_t)at;
    if (!is_inside) return false;
    *length = (uint64_t)count;
    *tokens = m->bin.data + at;
    return true;
}

static enum status validate_index(const struct megatron *m, const char *path)
{
    for (uint64_t s = 0; s < m->num_sequences; s++) {
        uint64_t count;
        const unsigned char *tokens;
        int64_t length = sequence_length(m, s), at = sequence_pointer(m, s);
        if (!find_sequence(m, s, &count, &tokens))
            FAIL(DATA,
                 "%s: sequence %llu (%lld tokens at byte %lld) is outside the .bin of %llu bytes",
                 path, (unsigned long long)s, (long long)length, (long long)at,
                 (unsigned long long)m->bin.size);
    }
    for (uint64_t d = 0; d <= m->num_documents; d++) {
        int64_t previous = d ? document_start(m, d - 1) : 0, start = document_start(m, d);
        if (start < previous || (uint64_t)start > m->num_sequences)
            FAIL(DATA, "%s: document %llu starts at invalid sequence %lld", path,
                 (unsigned long long)d, (long long)start);
    }
    if (document_start(m, 0) || (uint64_t)document_start(m, m->num_documents) != m->num_sequences)
        FAIL(DATA, "%s: documents cover sequences %lld to %lld, but the index has %llu sequences",
             path, (long long)document_start(m, 0), (long long)document_start(m, m->num_documents),
             (unsigned long long)m->num_sequences);
    return STATUS_OK;
}

/* What follows the documents: nothing, or the mode of each sequence, where 0 is text. */
static enum status check_modes(const struct megatron *m, const char *path)
{
    const unsigned char *modes = m->documents + 8 * (m->num_documents + 1);
    size_t left = m->idx.size - (size_t)(modes - m->idx.data);
    if (left && left != m->num_sequences)
        FAIL(DATA,
             "%s: %zu bytes follow the document indices: expected none, or a mode for each of %llu "
             "sequences",
             path, left, (unsigned long long)m->num_sequences);
    for (size_t s = 0; s < left; s++)
        if (modes[s])
            FAIL(DATA,
                 "%s: sequence %zu has mode %d: multimodal data is not supported, only text "
                 "(mode 0)",
                 path, s, modes[s]);
    return STATUS_OK;
}

enum status megatron_parse(struct megatron *m, const char *name)
{
    TRY(read_index(m, name));
    TRY(validate_index(m, name));
    return check_modes(m, name);
}

enum status megatron_open(struct megatron *m, const char *prefix)
{
    size_t len = strlen(prefix);
    bool suffix =
        len > 4 && (!strcmp(prefix + len - 4, ".bin") || !strcmp(prefix + len - 4, ".idx"));
    *m = (struct megatron){.prefix = heap_string(prefix, suffix ? len - 4 : len)};
    struct text idx = {0}, bin = {0};
    text_addf(&idx, "%s.idx", m->prefix);
    text_addf(&bin, "%s.bin", m->prefix);
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&m->idx, idx.data));
    TRY_OUT(file_map_open(&m->bin, bin.data));
    TRY_OUT(megatron_sum_check(m->prefix, m->bin.size, m->idx.data, m->idx.size));
    st = megatron_parse(m, idx.data);
    TRY_OUT(file_map_check_after(&m->idx, st));
out:
    text_release(&idx), text_release(&bin);
    if (st) megatron_close(m);
    return st;
}

void megatron_close(struct megatron *m)
{
    file_map_close(&m->idx);
    file_map_close(&m->bin);
    free(m->prefix);
    *m = (struct megatron){0};
}

uint64_t megatron_document_length(const struct megatron *m, uint64_t d)
{
    int64_t first = document_start(m, d), end = document_start(m, d + 1);
    uint64_t tokens = 0, length;
    const unsigned char *at;
    if (first < 0 || end < 0 || (uint64_t)end > m->num_sequences) return 0;
    for (int64_t s = first; s < end; s++) {
        if (!find_sequence(m, (uint64_t)s, &length, &at)) return 0;
        tokens += length;
    }
    return tokens;
}

uint64_t megatron_sequence_length(const struct megatron *m, uint64_t s)
{
    return (uint64_t)sequence_length(m, s);
}

static enum status fail_changed(const struct megatron *m, uint64_t s)
{
    FAIL(DATA, "%s.idx: sequence %llu has changed since the file was opened", m->prefix,
         (unsigned long long)s);
}

enum status megatron_read_sequence(const struct megatron *m, struct megatron_range range,
                                   int64_t vocab_size, int32_t *ids)
{
    int64_t limit = vocab_size ? vocab_size : INT32_MAX;
    uint64_t s = range.sequence, length;
    const unsigned char *at;
    if (!find_sequence(m, s, &length, &at) || range.from > length ||
        range.count > length - range.from)
        return fail_changed(m, s);
    at += range.from * (uint64_t)m->token_bytes;
    for (uint64_t i = 0; i < range.count; i++, at += m->token_bytes) {
        int64_t id = read_integer(at, m->token_bytes);
        if (m->dtype == 2) id = (int8_t)id; /* signed types */
        if (m->dtype == 3) id = (int16_t)id;
        if (m->dtype == 4) id = (int32_t)id;
        if (id < 0 || id >= limit)
            FAIL(RECORD, "%s.bin: sequence %llu has token ID %lld; the vocabulary size is %lld",
                 m->prefix, (unsigned long long)s, (long long)id, (long long)limit);
        ids[i] = (int32_t)id;
    }
    return STATUS_OK;
}

enum status megatron_read_document(const struct megatron *m, uint64_t d, uint64_t length,
                                   int64_t vocab_size, int32_t *ids)
{
    uint64_t first = (uint64_t)document_start(m, d), end = (uint64_t)document_start(m, d + 1);
    for (uint64_t s = first; s < end && end <= m->num_sequences; s++) {
        uint64_t count = megatron_sequence_length(m, s);
        if (count > length) break;
        TRY(megatron_read_sequence(m, (struct megatron_range){s, 0, count}, vocab_size, ids));
        ids += count, length -= count;
    }
    return length ? fail_changed(m, first) : STATUS_OK;
}

void megatron_build_header(int dtype, uint64_t sequences, unsigned char head[MEGATRON_HEADER_BYTES])
{
    memset(head, 0, MEGATRON_HEADER_BYTES);
    memcpy(head, magic, sizeof magic);
    head[9] = 1;
    head[17] = (unsigned char)dtype;
    text_encode_le(sequences, 8, head + 18);
    text_encode_le(sequences + 1, 8, head + 26);
}
