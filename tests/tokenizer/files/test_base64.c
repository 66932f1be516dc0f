// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "tokenizer/files/base64.h"

static bool decodes(const char *text, const char *want)
{
    unsigned char bytes[8];
    int n = base64_decode(text, strlen(text), bytes, sizeof bytes);
    return want ? n == (int)strlen(want) && !memcmp(bytes, want, strlen(want)) : n < 0;
}

TEST(base64_decodes_rfc_4648s_test_vectors)
{
    CHECK(decodes("", ""));
    CHECK(decodes("Zg==", "f") && decodes("Zm8=", "fo") && decodes("Zm9v", "foo"));
    CHECK(decodes("Zm9vYg==", "foob") && decodes("Zm9vYmFy", "foobar"));
    CHECK(decodes("+/+/", "\xFB\xFF\xBF"));
}

TEST(base64_rejects_other_text_and_more_than_fits)
{
    CHECK(decodes("Zg=", NULL) && decodes("Z===", NULL) && decodes("====", NULL));
    CHECK(decodes("Z=g=", NULL) && decodes("Zm9*", NULL) && decodes("Zm9v\n", NULL));
    CHECK(decodes("MDEyMzQ1Njc=", "01234567") && decodes("MDEyMzQ1Njc4", NULL));
}

TEST(base64_encodes_what_it_decodes)
{
    static const char *const rows[] = {"", "AA==", "AAE=", "AAEC", "AAECAw=="};
    static const unsigned char bytes[] = {0, 1, 2, 3};
    for (size_t len = 0; len <= sizeof bytes; len++) {
        struct text out = {0};
        text_adds(&out, "");
        base64_encode(&out, bytes, len);
        CHECK(!strcmp(out.data, rows[len]));
        text_release(&out);
    }
}
