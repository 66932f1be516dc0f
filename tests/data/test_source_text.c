// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

/* Lines of up to 6000 bytes, so that some span a chunk and some end at its boundary. */
static void write_prose(struct text *t)
{
    for (int i = 0; t->len < 100000; i++) {
        int words = i % 7 ? i * 13 % 60 : i * 97 % 1200;
        for (int w = 0; w < words; w++) text_addf(t, "w\xC3\xA9%d ", w % 10);
        text_adds(t, "\n");
    }
}

TEST(source_text_chunks_concatenate_to_the_file_with_one_bos_and_eos)
{
    struct text prose = {0}, got = {0};
    write_prose(&prose);
    struct source_config c = source_rig_config(rig_text(test_folder(), "a.txt", prose.data));
    struct source s = source_rig_open(&c);
    CHECK_STATUS(OK, source_rig_read_part(&s, 0, 1, &got));
    size_t n = 0, chunks = 0, begins = 0, ends = 0, longest = 0, begin = 0;
    for (size_t i = 0; i < got.len; i++) {
        begins += got.data[i] == '<', ends += got.data[i] == '>';
        if (got.data[i] == '|') {
            longest = i - begin > longest ? i - begin : longest;
            begin = i + 1;
            chunks++;
        }
        if (!strchr("<>|", got.data[i])) got.data[n++] = got.data[i];
    }
    CHECK(n == prose.len && !memcmp(got.data, prose.data, n));
    CHECK(got.data[0] != '<' && begins == 1 && ends == 1);
    CHECK(chunks > prose.len / 8192 && chunks <= prose.len / 4096 + 1 && longest < 8200);
    source_close(&s);
    text_release(&prose), text_release(&got);
}

TEST(source_text_is_without_the_byte_order_mark_of_its_file)
{
    source_rig_check(rig_text(test_folder(), "a.txt", "\xEF\xBB\xBFsnow\n"), "<snow\n>|");
    source_rig_check(rig_text(test_folder(), "b.txt", "snow\xEF\xBB\xBF"), "<snow\xEF\xBB\xBF>|");
    source_rig_check(
        source_rig_compressed(test_folder(), "c.txt.gz", "\xEF\xBB\xBFsnow\n\xEF\xBB\xBFice\n"),
        "<snow>|<\xEF\xBB\xBFice>|");
}

TEST(source_splits_text_without_line_breaks_at_words_or_characters)
{
    struct text plain = {0};
    for (int spaces = 0; spaces < 2; spaces++) {
        struct text got = {0};
        text_clear(&plain);
        text_adds(&plain, "x");
        while (plain.len < 20000) text_adds(&plain, spaces ? "\xE2\x82\xAC " : "\xE2\x82\xAC");
        struct source_config c = source_rig_config(rig_text(test_folder(), "a.txt", plain.data));
        struct source s = source_rig_open(&c);
        CHECK_STATUS(OK, source_rig_read_part(&s, 0, 1, &got)); /* fails on invalid UTF-8 */
        size_t chunks = 0;
        for (size_t i = 0; i < got.len; i++) {
            if (got.data[i] != '|') continue;
            CHECK(!spaces || i + 1 == got.len || got.data[i - 1] == ' ');
            chunks++;
        }
        CHECK(chunks == 5 && got.len == plain.len + chunks + 2);
        source_close(&s);
        text_release(&got);
    }
    text_release(&plain);
}
