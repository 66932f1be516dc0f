// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/unicode_normalize.h"

static bool becomes(enum unicode_form form, const char *text, const char *want)
{
    struct text out = {0};
    text_adds(&out, "");
    bool changed = unicode_normalize(form, (const unsigned char *)text, strlen(text), &out);
    bool same = changed ? !strcmp(out.data, want) : !strcmp(text, want) && !out.len;
    if (!same) print_error("\"%s\", not \"%s\"\n", out.data, want);
    text_release(&out);
    return same;
}

TEST(nfc_composes_and_nfd_decomposes)
{
    static const char *const rows[][3] = {
        {"", "", ""},
        {"plain text", "plain text", "plain text"},
        {"e\xCC\x81", "\xC3\xA9", "e\xCC\x81"},                             /* e with acute */
        {"\xC3\xA9", "\xC3\xA9", "e\xCC\x81"},                              /* precomposed */
        {"x\xC3\xAA\xCC\x81y", "x\xE1\xBA\xBFy", "xe\xCC\x82\xCC\x81y"},    /* two marks */
        {"\xE2\x84\xAB", "\xC3\x85", "A\xCC\x8A"},                          /* Angstrom sign */
        {"a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81", "a\xCC\xA3\xCC\x81"}, /* canonical order */
        {"a\xCC\x81\xCC\x80", "\xC3\xA1\xCC\x80",
         "a\xCC\x81\xCC\x80"}, /* equal classes keep order */
        {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81",
         "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"},
        {"\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"},
        {"\xEA\xB0\x81\xE1\x86\xA8", "\xEA\xB0\x81\xE1\x86\xA8",
         "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8\xE1\x86\xA8"},
        {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC",
         "\xE0\xA4\x95\xE0\xA4\xBC"}, /* composition exclusion */
        {"\xCC\x81"
         "e",
         "\xCC\x81"
         "e",
         "\xCC\x81"
         "e"}, /* no starter before it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(becomes(FORM_NFC, rows[i][0], rows[i][1]));
        CHECK(becomes(FORM_NFD, rows[i][0], rows[i][2]));
        CHECK(becomes(FORM_NONE, rows[i][0], rows[i][0]));
    }
}

TEST(nfkc_and_nfkd_decompose_compatibility_characters)
{
    static const char *const rows[][3] = {
        {"plain", "plain", "plain"},
        {"\xEF\xAC\x81", "fi", "fi"},
        {"\xEF\xBC\xA1\xCC\x8A", "\xC3\x85", "A\xCC\x8A"}, /* composes afterwards */
        {"\xC3\xA9", "\xC3\xA9", "e\xCC\x81"},             /* canonical */
        {"\xE3\x84\xB1\xE3\x85\x8F", "\xEA\xB0\x80",
         "\xE1\x84\x80\xE1\x85\xA1"}, /* Hangul letters */
        {"\xC2\xA8\xCC\x81", " \xCC\x88\xCC\x81", " \xCC\x88\xCC\x81"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(becomes(FORM_NFKC, rows[i][0], rows[i][1]));
        CHECK(becomes(FORM_NFKD, rows[i][0], rows[i][2]));
    }
    CHECK(becomes(FORM_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81"));
}

TEST(normalization_copies_invalid_utf8_and_does_not_compose_across_it)
{
    CHECK(becomes(FORM_NFC, "e\xFF\xCC\x81", "e\xFF\xCC\x81"));
    CHECK(becomes(FORM_NFC,
                  "\xCC"
                  "e\xCC\x81\xCC",
                  "\xCC\xC3\xA9\xCC"));
    CHECK(becomes(FORM_NFD, "\xC3\xA9\xC3", "e\xCC\x81\xC3"));
    CHECK(becomes(FORM_NFC, "\xA9\xC3", "\xA9\xC3"));
}

TEST(normalization_sorts_many_combining_marks_in_linear_time)
{
    enum { MANY = 500000 };
    struct text text = {0}, out = {0};
    text_adds(&text, "a");
    for (int i = 0; i < MANY; i++) text_adds(&text, i % 2 ? "\xCC\xA7" : "\xCC\x80");
    CHECK(unicode_normalize(FORM_NFD, (const unsigned char *)text.data, text.len, &out));
    CHECK(out.len == text.len && !strncmp(out.data, "a\xCC\xA7\xCC\xA7", 5));
    CHECK(!strcmp(out.data + out.len - 4, "\xCC\x80\xCC\x80"));
    text_release(&text), text_release(&out);
}
