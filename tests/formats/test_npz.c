// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "formats/npz.h"

static int64_t number_at(const unsigned char *at)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)at[i] << (8 * i);
    return (int64_t)v;
}

/* Checks the header against NEP 1 for an array of this shape, and returns its data. */
static const unsigned char *check_npy(const struct zip *z, const char *name, const char *shape,
                                      size_t count)
{
    const struct zip_entry *e = zip_find(z, name, strlen(name));
    struct text want = {0};
    CHECK(e && zip_entry_crc_ok(e));
    size_t len = e->data[8] + 256u * e->data[9], head = 10 + len;
    CHECK(!memcmp(e->data, "\x93NUMPY\1\0", 8) && head % 64 == 0);
    CHECK(e->size == head + 8 * count && e->data[head - 1] == '\n');
    text_addf(&want, "{'descr': '<i8', 'fortran_order': False, 'shape': %s, }", shape);
    CHECK(!memcmp(e->data + 10, want.data, want.len));
    for (size_t i = 10 + want.len; i + 1 < head; i++) CHECK(e->data[i] == ' ');
    text_release(&want);
    return e->data + head;
}

TEST(npz_is_a_zip_of_npy_files)
{
    const char *path = test_path(test_folder(), "a.npz");
    const int32_t ids[] = {255, 0, INT32_MAX, 3, 4, 5, 6, 7, 8, 9, 10};
    struct npz_writer w = {0};
    struct text bytes = {0};
    struct zip z;
    npz_add_array(&w, "gen", ids, 11);
    npz_add_array(&w, "prompt", NULL, 0);
    npz_add_scalar(&w, "n_neurons", -2);
    CHECK_STATUS(OK, npz_close(&w, path));
    npz_release(&w);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    CHECK_STATUS(OK, zip_parse(&z, (const unsigned char *)bytes.data, bytes.len, path));
    CHECK(z.count == 3);
    const unsigned char *gen = check_npy(&z, "gen.npy", "(11,)", 11);
    for (int i = 0; i < 11; i++) CHECK(number_at(gen + 8 * i) == ids[i]);
    check_npy(&z, "prompt.npy", "(0,)", 0);
    CHECK(number_at(check_npy(&z, "n_neurons.npy", "()", 1)) == -2);
    zip_release(&z);
    text_release(&bytes);
}

TEST(an_npz_that_cannot_be_written_is_an_error)
{
    struct npz_writer w = {0};
    npz_add_scalar(&w, "one", 1);
    CHECK(npz_close(&w, "/nowhere/a.npz") != STATUS_OK);
    CHECK_MESSAGE("/nowhere/a.npz");
    npz_release(&w);
}
