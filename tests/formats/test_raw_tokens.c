// SPDX-License-Identifier: Apache-2.0
#include "formats/raw_tokens.h"

#include "test.h"

enum { HEADER = 1024 };

static enum status parse(struct npy *n, const void *bytes, size_t len)
{
    *n = (struct npy){.path = heap_string("a.bin", 5)};
    enum status st = raw_tokens_parse(n, bytes, len);
    if (st) CHECK_MESSAGE("a.bin: ");
    return st;
}

static void check_ids(const void *bytes, size_t len, const int32_t *want, uint64_t count)
{
    struct npy n;
    int32_t ids[8];
    CHECK_STATUS(OK, parse(&n, bytes, len));
    CHECK(n.num_axes == 1 && n.rows == 1 && n.columns == count);
    CHECK_STATUS(OK, npy_read(&n, 0, count, 0, ids));
    CHECK(!memcmp(ids, want, count * sizeof *ids));
    npy_close(&n);
}

static enum status status_of(const void *bytes, size_t len)
{
    struct npy n;
    enum status st = parse(&n, bytes, len);
    npy_close(&n);
    return st;
}

TEST(raw_tokens_without_a_header_are_16_bit_ids)
{
    check_ids((const unsigned char[]){1, 0, 0x50, 0xC4, 255, 255}, 6,
              (const int32_t[]){1, 50256, 65535}, 3);
    check_ids("", 0, (const int32_t[]){0}, 0);
    CHECK_STATUS(DATA, status_of("abc", 3));
    CHECK_MESSAGE("this one has 3 bytes");
}

TEST(raw_tokens_have_the_width_that_llm_c_writes)
{
    unsigned char file[HEADER + 8] = {0};
    uint32_t head[3] = {20240520, 1, 4};
    memcpy(file, head, sizeof head);
    memcpy(file + HEADER, (const uint16_t[]){50256, 7, 0, 65535}, 8);
    check_ids(file, sizeof file, (const int32_t[]){50256, 7, 0, 65535}, 4);
    head[0] = 20240801, head[1] = 7, head[2] = 2;
    memcpy(file, head, sizeof head);
    memcpy(file + HEADER, (const uint32_t[]){128000, 9}, 8);
    check_ids(file, sizeof file, (const int32_t[]){128000, 9}, 2);
    CHECK_STATUS(DATA, status_of(file, sizeof file - 1));
    CHECK_MESSAGE("the header counts 2 tokens of 4 bytes, but 7 bytes follow");
    CHECK_STATUS(DATA, status_of(file, HEADER));
    head[1] = 1;
    memcpy(file, head, sizeof head);
    CHECK_STATUS(UNSUPPORTED, status_of(file, sizeof file));
    CHECK_MESSAGE("version 1 of llm.c's token files is not supported: expected 7");
}

TEST(raw_tokens_that_look_like_32_bit_ids_are_refused)
{
    uint32_t ids[128];
    for (uint32_t i = 0; i < 128; i++) ids[i] = i * 1001;
    CHECK_STATUS(DATA, status_of(ids, sizeof ids));
    CHECK_MESSAGE("look like 32-bit ones; write them as .npy");
    ids[100] = 1 << 20;
    CHECK_STATUS(OK, status_of(ids, sizeof ids));
}
