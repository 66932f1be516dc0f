// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/charsmap.h"

/* A trie that maps "a" to "x" and "ab" to "yz": unit 0 is the root, whose children are at
 * 128 ^ letter; those of "a" at (128 ^ 'a') ^ 512 ^ letter. */
enum { UNITS = 1024, A = 128 ^ 'a', UNDER_A = A ^ 512, AB = UNDER_A ^ 'b', UNDER_AB = AB ^ 128 };

static size_t write_blob(unsigned char *blob, uint32_t value)
{
    static uint32_t units[UNITS];
    static const char strings[] = "x\0yz";
    uint32_t bytes = sizeof units;
    memset(units, 0xFF, sizeof units);
    units[0] = 128 << 10;
    units[A] = 512 << 10 | 0x100 | 'a';
    units[UNDER_A] = 0x80000000u;
    units[AB] = 128 << 10 | 0x100 | 'b';
    units[UNDER_AB] = 0x80000000u | value;
    memcpy(blob, &bytes, 4);
    memcpy(blob + 4, units, sizeof units);
    memcpy(blob + 4 + sizeof units, strings, sizeof strings);
    return 4 + sizeof units + sizeof strings;
}

static const char *find(const struct charsmap *c, const char *text, size_t *len)
{
    return charsmap_find(c, (const unsigned char *)text, strlen(text), len);
}

TEST(charsmap_finds_the_longest_prefix)
{
    static unsigned char blob[8192];
    struct charsmap c;
    size_t len = 0;
    CHECK_STATUS(OK, charsmap_init(&c, blob, write_blob(blob, 2)));
    CHECK(!strcmp(find(&c, "a", &len), "x") && len == 1);
    CHECK(!strcmp(find(&c, "ac", &len), "x") && len == 1);
    CHECK(!strcmp(find(&c, "abc", &len), "yz") && len == 2);
    CHECK(!strcmp(charsmap_find_shortest(&c, (const unsigned char *)"ab", 2), "x"));
    CHECK(!find(&c, "b", &len) && !find(&c, "", &len) && !find(&c, "\xFF", &len));
    charsmap_release(&c);
    CHECK(!find(&c, "a", &len));
}

TEST(charsmap_ignores_offsets_out_of_range)
{
    static unsigned char blob[8192];
    struct charsmap c;
    size_t len = 0;
    CHECK_STATUS(OK, charsmap_init(&c, blob, write_blob(blob, 5)));
    CHECK(!strcmp(find(&c, "ab", &len), "x") && len == 1);
    charsmap_release(&c);
    uint32_t far = 0x1FFFFF << 10 | 0x300;
    write_blob(blob, 2);
    memcpy(blob + 4, &far, 4);
    CHECK_STATUS(OK, charsmap_init(&c, blob, write_blob(blob, 2)));
    charsmap_release(&c);
    memcpy(blob + 4, &far, 4);
    CHECK_STATUS(OK, charsmap_init(&c, blob, 4 + UNITS * 4 + 5));
    CHECK(!find(&c, "ab", &len));
    charsmap_release(&c);
}

TEST(charsmap_rejects_a_malformed_blob)
{
    static unsigned char blob[8192];
    struct charsmap c;
    size_t whole = write_blob(blob, 2);
    for (size_t len = 0; len < whole; len++) {
        if (len == 4 + UNITS * 4 + 2) continue; /* ends in the NUL of "x" */
        CHECK_STATUS(DATA, charsmap_init(&c, blob, len));
        charsmap_release(&c);
    }
    blob[0] = 3, blob[1] = 0;
    CHECK_STATUS(DATA, charsmap_init(&c, blob, whole));
    CHECK_MESSAGE("multiple of 4");
    charsmap_release(&c);
}
