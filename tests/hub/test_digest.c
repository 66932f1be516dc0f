// SPDX-License-Identifier: Apache-2.0
#include "hub/digest.h"
#include "test.h"

static void check(enum digest_kind kind, const char *bytes, size_t len, size_t piece,
                  const char *want)
{
    struct digest d;
    char hex[DIGEST_HEX];
    digest_init(&d, kind);
    for (size_t at = 0; at < len; at += piece)
        digest_add(&d, bytes + at, len - at < piece ? len - at : piece);
    digest_hex(&d, hex);
    if (strcmp(hex, want)) print_error("%s, expected %s\n", hex, want);
    CHECK(!strcmp(hex, want));
}

/* The examples of FIPS 180-4. */
TEST(digest_matches_the_standard)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    check(DIGEST_SHA1, "", 0, 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    check(DIGEST_SHA1, "abc", 3, 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
    check(DIGEST_SHA1, two, 56, 56, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    check(DIGEST_SHA256, "", 0, 1,
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(DIGEST_SHA256, "abc", 3, 3,
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(DIGEST_SHA256, two, 56, 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(digest_does_not_depend_on_chunking)
{
    enum { MILLION = 1000000 };
    char *many = heap(MILLION);
    memset(many, 'a', MILLION);
    static const size_t pieces[] = {1, 55, 63, 64, 65, 4096, MILLION};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        check(DIGEST_SHA1, many, MILLION, pieces[i], "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        check(DIGEST_SHA256, many, MILLION, pieces[i],
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(many);
}
