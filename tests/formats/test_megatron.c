// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "formats/megatron.h"

#include <fcntl.h>
#include <unistd.h>

static void put(struct text *t, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) text_add(t, &(char){(char)(value >> (8 * i))}, 1);
}

/* An index of three sequences of 2, 0 and 3 tokens of `bytes` bytes, in two documents. */
struct index {
    uint64_t version, dtype, sequences, ends, bytes, lengths[3], pointers[3], firsts[3];
};
static struct index good(int dtype, uint64_t bytes)
{
    return (struct index){1,         (uint64_t)dtype,           3,        3, bytes,
                          {2, 0, 3}, {0, 2 * bytes, 2 * bytes}, {0, 1, 3}};
}

static const char *write_index(const char *folder, const struct index *x)
{
    struct text idx = {0};
    text_add(&idx, "MMIDIDX\0\0", 9);
    put(&idx, x->version, 8), put(&idx, x->dtype, 1);
    put(&idx, x->sequences, 8), put(&idx, x->ends, 8);
    for (int i = 0; i < 3; i++) put(&idx, x->lengths[i], 4);
    for (int i = 0; i < 3; i++) put(&idx, x->pointers[i], 8);
    for (int i = 0; i < 3; i++) put(&idx, x->firsts[i], 8);
    const char *path = test_path(folder, "d.idx");
    CHECK_STATUS(OK, file_write(path, idx.data, idx.len));
    text_release(&idx);
    return path;
}

static const char *write_tokens(const char *folder, const int64_t *tokens, int bytes)
{
    struct text bin = {0};
    for (int i = 0; i < 5; i++) put(&bin, (uint64_t)tokens[i], bytes);
    CHECK_STATUS(OK, file_write(test_path(folder, "d.bin"), bin.data, bin.len));
    text_release(&bin);
    return test_path(folder, "d");
}

static const int64_t five[5] = {1, 200, 3, 0, 127};

TEST(megatron_reads_documents_of_every_integer_type)
{
    static const struct {
        int dtype, bytes;
    } types[] = {{1, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const char *folder = test_folder();
        struct index x = good(types[k].dtype, (uint64_t)types[k].bytes);
        struct megatron m;
        int32_t ids[3];
        write_index(folder, &x);
        CHECK_STATUS(OK, megatron_open(&m, write_tokens(folder, five, types[k].bytes)));
        CHECK(m.num_documents == 2 && m.num_sequences == 3);
        CHECK(megatron_document_length(&m, 0) == 2 && megatron_document_length(&m, 1) == 3);
        CHECK_STATUS(OK, megatron_read_document(&m, 0, 2, 0, ids));
        CHECK(ids[0] == 1 && ids[1] == 200);
        CHECK_STATUS(OK, megatron_read_document(&m, 1, 3, 128, ids));
        CHECK(ids[0] == 3 && ids[1] == 0 && ids[2] == 127);
        megatron_close(&m);
    }
}

TEST(megatron_reads_nothing_outside_an_index_that_changes)
{
    static const struct {
        size_t at; /* in the file */
        int64_t value;
        int bytes;
    } changes[] = {{79, INT64_MAX, 8}, {79, -1, 8}, {71, INT64_MIN, 8}, {34, -1, 4}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const char *folder = test_folder();
        struct index x = good(4, 4);
        struct megatron m;
        int32_t ids[3];
        const char *path = write_index(folder, &x);
        CHECK_STATUS(OK, megatron_open(&m, write_tokens(folder, five, 4)));
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        size_t n = (size_t)changes[i].bytes;
        CHECK(pwrite(fd, &changes[i].value, n, (off_t)changes[i].at) == (ssize_t)n);
        close(fd);
        CHECK(megatron_document_length(&m, 0) == 0);
        CHECK_STATUS(DATA, megatron_read_document(&m, 0, 2, 0, ids));
        CHECK_MESSAGE("has changed since the file was opened");
        megatron_close(&m);
    }
}

TEST(megatron_reads_any_part_of_a_sequence)
{
    const char *folder = test_folder();
    struct index x = good(8, 2);
    struct megatron m;
    write_index(folder, &x);
    CHECK_STATUS(OK, megatron_open(&m, write_tokens(folder, five, 2)));
    for (uint64_t s = 0, first = 0; s < 3; first += x.lengths[s++]) {
        CHECK(megatron_sequence_length(&m, s) == x.lengths[s]);
        for (uint64_t from = 0; from <= x.lengths[s]; from++)
            for (uint64_t count = 0; from + count <= x.lengths[s]; count++) {
                int32_t ids[4] = {-7, -7, -7, -7};
                CHECK_STATUS(OK, megatron_read_sequence(&m, (struct megatron_range){s, from, count},
                                                        0, ids));
                for (uint64_t i = 0; i < count; i++) CHECK(ids[i] == five[first + from + i]);
                CHECK(ids[count] == -7);
            }
    }
    megatron_close(&m);
}

TEST(megatron_accepts_sequence_modes_of_text_only)
{
    const char *folder = test_folder(), *prefix = write_tokens(folder, five, 4);
    static const struct {
        int bytes, modes;
        const char *message;
    } rows[] = {{3, 0, NULL},
                {3, 0x010000, "sequence 2 has mode 1: multimodal data is not supported"},
                {2, 0, "2 bytes follow the document indices"},
                {4, 0, "4 bytes follow the document indices"}};
    struct index x = good(4, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text idx = {0};
        struct megatron m;
        int32_t ids[3];
        CHECK_STATUS(OK, file_read(write_index(folder, &x), 1 << 20, &idx));
        put(&idx, (uint64_t)rows[i].modes, rows[i].bytes);
        CHECK_STATUS(OK, file_write(test_path(folder, "d.idx"), idx.data, idx.len));
        if (rows[i].message) {
            CHECK_STATUS(DATA, megatron_open(&m, prefix));
            CHECK_MESSAGE(rows[i].message);
        } else {
            CHECK_STATUS(OK, megatron_open(&m, prefix));
            CHECK_STATUS(OK, megatron_read_document(&m, 1, 3, 0, ids));
            CHECK(m.num_documents == 2 && ids[0] == 3 && ids[2] == 127);
            megatron_close(&m);
        }
        text_release(&idx);
    }
}

TEST(megatron_opens_by_prefix_or_either_file)
{
    const char *folder = test_folder();
    struct index x = good(4, 4);
    const char *names[] = {write_tokens(folder, five, 4), test_path(folder, "d.bin"),
                           write_index(folder, &x)};
    for (int i = 0; i < 3; i++) {
        struct megatron m;
        CHECK_STATUS(OK, megatron_open(&m, names[i]));
        CHECK(!strcmp(m.prefix, names[0]));
        megatron_close(&m);
    }
    struct megatron m;
    CHECK(remove(names[1]) == 0);
    CHECK_STATUS(MISSING, megatron_open(&m, names[0]));
    CHECK_MESSAGE("d.bin");
}

TEST(megatron_rejects_ids_outside_the_vocabulary)
{
    static const struct {
        int dtype, bytes;
        int64_t id, vocab;
        const char *why;
    } cases[] = {
        {4, 4, -1, 0, "token ID -1"},
        {2, 1, -128, 0, "token ID -128"},
        {3, 2, -2, 0, "token ID -2"},
        {5, 8, INT64_C(1) << 40, 0, "token ID 1099511627776"},
        {5, 8, INT64_MIN, 0, "token ID -9223372036854775808"},
        {8, 2, 65535, 65535, "token ID 65535; the vocabulary size is 65535"},
        {1, 1, 255, 255, "token ID 255; the vocabulary size is 255"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *folder = test_folder();
        struct index x = good(cases[k].dtype, (uint64_t)cases[k].bytes);
        int64_t tokens[5] = {1, 2, 3, 4, cases[k].id};
        int32_t ids[3];
        struct megatron m;
        write_index(folder, &x);
        CHECK_STATUS(OK, megatron_open(&m, write_tokens(folder, tokens, cases[k].bytes)));
        CHECK_STATUS(OK, megatron_read_document(&m, 0, 2, cases[k].vocab, ids));
        CHECK_STATUS(RECORD, megatron_read_document(&m, 1, 3, cases[k].vocab, ids));
        CHECK_MESSAGE("d.bin: sequence 2 ");
        CHECK_MESSAGE(cases[k].why);
        megatron_close(&m);
    }
}

TEST(megatron_rejects_inconsistent_indexes)
{
    static const struct {
        size_t field; /* offset in struct index */
        uint64_t value;
        const char *why;
    } cases[] = {
        {offsetof(struct index, version), 2, "index version 2"},
        {offsetof(struct index, dtype), 0, "dtype 0"},
        {offsetof(struct index, dtype), 6, "dtype 6"},
        {offsetof(struct index, dtype), 7, "dtype 7"},
        {offsetof(struct index, dtype), 9, "dtype 9"},
        {offsetof(struct index, dtype), 255, "dtype 255"},
        {offsetof(struct index, dtype), 5, "is outside the .bin of 20 bytes"},
        {offsetof(struct index, sequences), 4, "d.idx"},
        {offsetof(struct index, sequences), UINT64_MAX, "the lengths"},
        {offsetof(struct index, sequences), UINT64_MAX / 4 + 2, "the lengths"},
        {offsetof(struct index, sequences), UINT64_C(1) << 61, "the lengths"},
        {offsetof(struct index, ends), 0, "the document indices are empty"},
        {offsetof(struct index, ends), 2, "documents cover sequences 0 to 1, but the index has 3"},
        {offsetof(struct index, ends), 4, "the documents"},
        {offsetof(struct index, ends), UINT64_MAX / 8 + 2, "the documents"},
        {offsetof(struct index, lengths), 0xFFFFFFFF, "sequence 0 (-1 tokens"},
        {offsetof(struct index, lengths), 6, "sequence 0 (6 tokens at byte 0)"},
        {offsetof(struct index, lengths), 0x7FFFFFFF, "sequence 0"},
        {offsetof(struct index, pointers[1]), 21, "sequence 1 (0 tokens at byte 21)"},
        {offsetof(struct index, pointers[2]), 9, "sequence 2 (3 tokens at byte 9)"},
        {offsetof(struct index, pointers[2]), UINT64_MAX - 3, "sequence 2 (3 tokens at byte -4)"},
        {offsetof(struct index, pointers[2]), INT64_MAX, "sequence 2"},
        {offsetof(struct index, firsts), 1, "sequences 1 to 3"},
        {offsetof(struct index, firsts), UINT64_MAX, "document 0 starts at invalid sequence -1"},
        {offsetof(struct index, firsts[1]), 4, "document 1 starts at invalid sequence 4"},
        {offsetof(struct index, firsts[2]), 0, "document 2 starts at invalid sequence 0"},
        {offsetof(struct index, firsts[2]), 2, "sequences 0 to 2"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *folder = test_folder();
        struct index x = good(4, 4);
        struct megatron m;
        memcpy((char *)&x + cases[k].field, &cases[k].value, sizeof cases[k].value);
        write_index(folder, &x);
        CHECK_STATUS(DATA, megatron_open(&m, write_tokens(folder, five, 4)));
        CHECK_MESSAGE("d.idx");
        CHECK_MESSAGE(cases[k].why);
    }
}

TEST(megatron_rejects_truncated_indexes)
{
    const char *folder = test_folder(), *prefix = write_tokens(folder, five, 4);
    struct index x = good(4, 4);
    const char *path = write_index(folder, &x);
    struct text idx = {0};
    struct megatron m;
    CHECK_STATUS(OK, file_read(path, 1000, &idx));
    for (size_t len = 0; len < idx.len; len++) {
        CHECK_STATUS(OK, file_write(path, idx.data, len));
        CHECK_STATUS(DATA, megatron_open(&m, prefix));
        CHECK_MESSAGE("d.idx");
    }
    idx.data[0] = 'N';
    CHECK_STATUS(OK, file_write(path, idx.data, idx.len));
    CHECK_STATUS(DATA, megatron_open(&m, prefix));
    CHECK_MESSAGE("not a Megatron index");
    text_release(&idx);
}

TEST(megatron_header_is_what_the_reader_expects)
{
    unsigned char head[MEGATRON_HEADER_BYTES];
    static const unsigned char want[MEGATRON_HEADER_BYTES] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        8,   2,   1,   0,   0,   0,   0,   0, 0, 3, 1, 0, 0, 0, 0, 0, 0};
    megatron_build_header(MEGATRON_U16, 258, head);
    CHECK(!memcmp(head, want, sizeof want));
}
