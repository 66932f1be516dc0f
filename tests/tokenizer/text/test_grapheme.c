// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/grapheme.h"

TEST(grapheme_clusters_follow_uax_29)
{
    static const struct {
        const char *text;
        size_t len;
    } rows[] = {
        {"ab", 1},
        {"\r\n", 2},
        {"\n\r", 1},
        {"a\xCC\x81\xCC\x80"
         "b",
         5},               /* combining marks */
        {"\r\xCC\x81", 1}, /* none after a control */
        {"\xCC\x81\xCC\x81"
         "a",
         4},                                                       /* nor a base */
        {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8\xE1\x86\xA8x", 12}, /* Hangul L V T T */
        {"\xEA\xB0\x80\xE1\x86\xA8", 6},                           /* LV T */
        {"\xEA\xB0\x81\xE1\x85\xA1", 3},                           /* LVT does not join V */
        {"\xF0\x9F\x87\xA6\xF0\x9F\x87\xA7\xF0\x9F\x87\xA8", 8},   /* flags: pairs */
        {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7", 11},      /* emoji ZWJ emoji */
        {"a\xE2\x80\x8D\xF0\x9F\x91\xA7", 4},                      /* not after a letter */
        {"\xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\xB7", 9},               /* an Indic conjunct */
        {"\xE0\xA4\x95\xE0\xA4\xB7", 3},                           /* without a linker */
        {"\xD8\x80"
         "1",
         3},                             /* Prepend */
        {"\xE0\xA4\x95\xE0\xA4\xBE", 6}, /* SpacingMark */
        {"\xFF\xCC\x81", 1},             /* not UTF-8 */
        {"a\xFF", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t got = grapheme_next((const unsigned char *)rows[i].text, strlen(rows[i].text));
        if (got != rows[i].len) fail_msg("row %zu: %zu bytes, expected %zu", i, got, rows[i].len);
    }
}
