// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/matcher.h"

static int32_t at(const struct matcher *m, const char *text, size_t *len)
{
    return matcher_find(m, (const unsigned char *)text, strlen(text), len);
}

TEST(matcher_finds_the_longest_prefix)
{
    struct matcher m = {0};
    size_t len = 0;
    CHECK(matcher_is_empty(&m) && at(&m, "abc", &len) == -1);
    CHECK_STATUS(OK, matcher_add(&m, "ab", 2, 7));
    CHECK_STATUS(OK, matcher_add(&m, "abcd", 4, 8));
    CHECK_STATUS(OK, matcher_add(&m, "a", 1, 9));
    CHECK_STATUS(OK, matcher_add(&m, "axyz", 4, 10));
    CHECK(at(&m, "abcd", &len) == 8 && len == 4);
    CHECK(at(&m, "abcx", &len) == 7 && len == 2);
    CHECK(at(&m, "ac", &len) == 9 && len == 1);
    CHECK(at(&m, "xab", &len) == -1 && at(&m, "", &len) == -1);
    CHECK(!matcher_is_empty(&m) && matcher_may_start(&m, 'a') && !matcher_may_start(&m, 'b'));
    matcher_release(&m);
}

TEST(matcher_rejects_duplicates_and_overlong_strings)
{
    static char much[MATCHER_MAX_BYTES + 1];
    struct matcher m = {0};
    memset(much, 'x', sizeof much);
    CHECK_STATUS(UNSUPPORTED, matcher_add(&m, much, sizeof much, 1));
    CHECK_MESSAGE("1025 bytes");
    CHECK_STATUS(OK, matcher_add(&m, much, sizeof much - 1, 1));
    CHECK_STATUS(DATA, matcher_add(&m, much, sizeof much - 1, 2));
    CHECK_STATUS(DATA, matcher_add(&m, "", 0, 3));
    matcher_release(&m);
}
