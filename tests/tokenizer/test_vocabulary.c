// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/vocabulary.h"

static void add_single_bytes(struct vocabulary *v)
{
    *v = (struct vocabulary){0};
    for (int i = 0; i < 256; i++)
        CHECK_STATUS(OK, vocabulary_add(v, &(unsigned char){(unsigned char)i}, 1, i));
}

TEST(vocabulary_finds_tokens_by_bytes_and_by_id)
{
    enum { MANY = 5000 };
    struct vocabulary v;
    char name[32];
    add_single_bytes(&v);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "token %d", i);
        CHECK_STATUS(OK, vocabulary_add(&v, name, strlen(name), 300 + 3 * (MANY - i)));
    }
    CHECK_STATUS(OK, vocabulary_finish(&v));
    CHECK(v.count == 256 + MANY && v.id_limit == 300 + 3 * MANY + 1 && v.byte_ids[65] == 65);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "token %d", i);
        int32_t id = vocabulary_find(&v, name, strlen(name));
        const struct token_bytes *t = vocabulary_token(&v, id);
        CHECK(id == 300 + 3 * (MANY - i) && t && t->id == id && t->len == strlen(name));
        CHECK(!memcmp(v.bytes + t->at, name, t->len) && !vocabulary_token(&v, id - 1));
    }
    CHECK(vocabulary_find(&v, "token", 5) == -1 && vocabulary_find(&v, "", 0) == -1);
    CHECK(!vocabulary_token(&v, -1) && !vocabulary_token(&v, v.id_limit));
    vocabulary_release(&v);
}

TEST(empty_vocabulary_finds_nothing)
{
    struct vocabulary v = {0};
    CHECK(vocabulary_find(&v, "a", 1) == -1 && !vocabulary_find_pair(&v, 1, 2));
    CHECK(!vocabulary_token(&v, 0));
    CHECK_STATUS(DATA, vocabulary_finish(&v));
    CHECK_MESSAGE("0x00");
    vocabulary_release(&v);
}

TEST(vocabulary_rejects_duplicate_and_out_of_range_tokens)
{
    struct vocabulary v;
    add_single_bytes(&v);
    CHECK_STATUS(DATA, vocabulary_add(&v, "a", 1, 256));
    CHECK_MESSAGE("97");
    CHECK_STATUS(DATA, vocabulary_add(&v, "ab", 2, 97));
    CHECK_STATUS(DATA, vocabulary_add(&v, "", 0, 256));
    CHECK_STATUS(DATA, vocabulary_add(&v, "ab", 2, -1));
    CHECK_STATUS(DATA, vocabulary_add(&v, "ab", 2, VOCABULARY_MAX_ID + 1));
    CHECK(v.count == 256 && vocabulary_find(&v, "ab", 2) == -1);
    CHECK_STATUS(OK, vocabulary_add(&v, "ab", 2, 256));
    vocabulary_release(&v);
}

TEST(vocabulary_requires_every_single_byte)
{
    struct vocabulary v = {0};
    for (int i = 0; i < 256; i++)
        if (i != 0xC3)
            CHECK_STATUS(OK, vocabulary_add(&v, &(unsigned char){(unsigned char)i}, 1, i));
    CHECK_STATUS(DATA, vocabulary_finish(&v));
    CHECK_MESSAGE("0xC3");
    vocabulary_release(&v);
}

TEST(vocabulary_replaces_a_merge_added_twice)
{
    struct vocabulary v = {0};
    for (int32_t i = 0; i < 3000; i++) vocabulary_add_pair(&v, i, i + 1, i, 2 * i);
    vocabulary_add_pair(&v, 7, 8, 4000, 14);
    CHECK(v.num_pairs == 3000);
    for (int32_t i = 0; i < 3000; i++) {
        const struct merge_pair *p = vocabulary_find_pair(&v, i, i + 1);
        CHECK(p && p->rank == (i == 7 ? 4000 : i) && p->merged == 2 * i);
        CHECK(!vocabulary_find_pair(&v, i + 1, i));
    }
    vocabulary_release(&v);
}

TEST(vocabulary_finds_every_merge_and_no_other_pair)
{
    enum { MANY = 3000 };
    struct vocabulary v = {0};
    for (int32_t i = 0; i < MANY; i++) {
        vocabulary_add_pair(&v, i, 2 * i + 1, i, MANY + i);
        CHECK(v.num_pairs == (size_t)i + 1);
    }
    for (int32_t i = 0; i < MANY; i++) {
        const struct merge_pair *p = vocabulary_find_pair(&v, i, 2 * i + 1);
        CHECK(p && p->rank == i && p->merged == MANY + i);
        for (int32_t k = 0; k < 8; k++) CHECK(!vocabulary_find_pair(&v, i, 2 * (i + k)));
        CHECK(!vocabulary_find_pair(&v, 2 * i + 1, i));
    }
    vocabulary_release(&v);
}

TEST(vocabulary_adds_every_split_of_a_token_as_a_merge)
{
    struct vocabulary v;
    add_single_bytes(&v);
    CHECK_STATUS(OK, vocabulary_add(&v, "ab", 2, 256));
    CHECK_STATUS(OK, vocabulary_add(&v, "bc", 2, 257));
    CHECK_STATUS(OK, vocabulary_add(&v, "abc", 3, 258));
    CHECK_STATUS(OK, vocabulary_add(&v, "abcxyz", 6, 259)); /* no split into two tokens */
    CHECK_STATUS(OK, vocabulary_finish(&v));
    vocabulary_add_all_splits(&v);
    CHECK(v.num_pairs == 4);
    CHECK(vocabulary_find_pair(&v, 'a', 'b')->rank == 256);
    CHECK(vocabulary_find_pair(&v, 'a', 257)->merged == 258);
    CHECK(vocabulary_find_pair(&v, 256, 'c')->merged == 258);
    vocabulary_release(&v);
}
