// SPDX-License-Identifier: Apache-2.0
#include "formats/npy.h"

#include "test.h"

/* A file as NumPy writes it: the header is padded so that the data is aligned to 64 bytes. */
static void write_npy(struct text *out, int version, const char *header, const void *data,
                      size_t bytes)
{
    size_t head = version == 1 ? 10 : 12, len = 64 - head;
    while (len < strlen(header) + 1) len += 64;
    text_clear(out);
    text_add(out, "\x93NUMPY", 6);
    text_add(out, (char[]){(char)version, 0, (char)len, (char)(len >> 8), 0, 0}, head - 6);
    text_adds(out, header);
    while (out->len < head + len - 1) text_adds(out, " ");
    text_adds(out, "\n");
    text_add(out, data, bytes);
}

static enum status parse(struct npy *n, const struct text *t)
{
    *n = (struct npy){.path = heap_string("a.npy", 5)};
    return npy_parse(n, (const unsigned char *)t->data, t->len);
}

static void check_numbers(int version, const char *header, const void *data, size_t bytes,
                          uint64_t rows, uint64_t columns, const int32_t *want)
{
    struct text t = {0};
    struct npy n;
    int32_t ids[8];
    write_npy(&t, version, header, data, bytes);
    CHECK_STATUS(OK, parse(&n, &t));
    CHECK(n.rows == rows && n.columns == columns);
    CHECK_STATUS(OK, npy_read(&n, 0, rows * columns, 0, ids));
    CHECK(!memcmp(ids, want, rows * columns * sizeof *ids));
    npy_close(&n);
    text_release(&t);
}

TEST(npy_reads_every_integer_dtype_and_version)
{
    const int32_t want[] = {3, 1, 255, 0};
    check_numbers(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }",
                  (uint8_t[]){3, 1, 255, 0}, 4, 1, 4, want);
    check_numbers(2, "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }",
                  (uint16_t[]){3, 1, 255, 0}, 8, 2, 2, want);
    check_numbers(3, "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }",
                  (uint32_t[]){3, 1, 255, 0}, 16, 1, 4, want);
    check_numbers(1, "{\"shape\": (4L,), \"descr\": \"<i4\", \"fortran_order\": True}",
                  (int32_t[]){3, 1, 255, 0}, 16, 1, 4, want);
    check_numbers(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 4), }",
                  (int64_t[]){3, 1, 255, 0}, 32, 1, 4, want);
}

static void check_rejected(enum status want, const char *header, size_t bytes, const char *why)
{
    struct text t = {0};
    struct npy n;
    write_npy(&t, 1, header, (char[64]){0}, bytes);
    CHECK(parse(&n, &t) == want);
    CHECK_MESSAGE(why);
    npy_close(&n);
    text_release(&t);
}

#define DICT(descr, fortran, shape)                                                                \
    "{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }"

TEST(npy_rejects_unsupported_arrays_with_the_reason)
{
    check_rejected(STATUS_UNSUPPORTED, DICT("'<f4'", "False", "(4,)"), 16, "integer dtype");
    check_rejected(STATUS_UNSUPPORTED, DICT("'>u2'", "False", "(4,)"), 8, "big-endian");
    check_rejected(STATUS_UNSUPPORTED, DICT("[('a', '<u2')]", "False", "(4,)"), 8, "structured");
    check_rejected(STATUS_UNSUPPORTED, DICT("'<u2'", "True", "(2, 2)"), 8, "Fortran");
    check_rejected(STATUS_UNSUPPORTED, DICT("'<u2'", "False", "()"), 2, "got 0");
    check_rejected(STATUS_UNSUPPORTED, DICT("'<u2'", "False", "(1, 2, 2)"), 8, "got 3");
    check_rejected(STATUS_DATA, DICT("'<u2'", "False", "(5,)"), 8,
                   "8 bytes of data do not match shape 1 x 5");
    check_rejected(STATUS_DATA, DICT("'<u2'", "False", "(3,)"), 8,
                   "8 bytes of data do not match shape 1 x 3");
    check_rejected(STATUS_DATA, DICT("'<u2'", "False", "(4294967296, 4294967296)"), 8, "8 bytes");
    check_rejected(STATUS_DATA, DICT("'<u2'", "Maybe", "(4,)"), 8,
                   "corrupt .npy header at \"Maybe");
    check_rejected(STATUS_DATA, "{'descr': '<u2', 'shape': (4,), }", 8, "lacks");
    struct text t = {0};
    struct npy n;
    write_npy(&t, 1, DICT("'<u2'", "False", "(4,)"), (char[8]){0}, 8);
    t.data[6] = 4;
    CHECK(parse(&n, &t) == STATUS_UNSUPPORTED);
    CHECK_MESSAGE("version 4");
    npy_close(&n);
    text_release(&t);
}

TEST(truncated_npy_files_are_rejected)
{
    struct text t = {0};
    struct npy n;
    write_npy(&t, 1, DICT("'<u2'", "False", "(4,)"), (char[8]){0}, 8);
    for (size_t len = t.len; len-- > 0;) {
        struct text cut = {.data = t.data, .len = len};
        CHECK(parse(&n, &cut) == STATUS_DATA);
        npy_close(&n);
    }
    text_release(&t);
}

TEST(npy_elements_that_are_not_token_ids_are_rejected)
{
    struct text t = {0};
    struct npy n;
    int32_t ids[4];
    write_npy(&t, 1, DICT("'<i8'", "False", "(4,)"),
              (int64_t[]){INT32_MAX, -1, INT64_C(1) << 31, 50}, 32);
    CHECK_STATUS(OK, parse(&n, &t));
    CHECK_STATUS(RECORD, npy_read(&n, 0, 2, 0, ids));
    CHECK_MESSAGE("element 1 is -1");
    CHECK(ids[0] == INT32_MAX);
    CHECK_STATUS(RECORD, npy_read(&n, 2, 1, 0, ids));
    CHECK_MESSAGE("element 2 is 2147483648: token IDs must be between 0 and 2147483647");
    CHECK_STATUS(RECORD, npy_read(&n, 3, 1, 50, ids));
    CHECK_MESSAGE("element 3 is 50: token IDs must be between 0 and 49");
    CHECK_STATUS(OK, npy_read(&n, 3, 1, 51, ids));
    CHECK(ids[0] == 50);
    npy_close(&n);
    text_release(&t);
}
