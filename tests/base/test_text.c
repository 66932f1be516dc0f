// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"

TEST(text_grows_and_stays_terminated)
{
    struct text t = {0};
    for (int i = 0; i < 1000; i++) {
        text_addf(&t, "%d,", i);
        CHECK(strlen(t.data) == t.len && t.len < t.capacity);
    }
    CHECK(!strncmp(t.data, "0,1,2,3,", 8) && !strcmp(t.data + t.len - 8, "998,999,"));
    size_t capacity = t.capacity;
    text_clear(&t);
    CHECK(t.len == 0 && t.capacity == capacity && !*t.data);
    text_release(&t);
    CHECK(!t.data && !t.len && !t.capacity);
}

TEST(text_may_contain_any_bytes)
{
    struct text t = {0};
    text_add(&t, "a\0b", 3);
    text_add(&t, NULL, 0);
    text_adds(&t, "");
    CHECK(t.len == 3 && !memcmp(t.data, "a\0b", 4));
    text_release(&t);
}

TEST(text_reserve_makes_room_for_the_bytes_and_a_nul)
{
    struct text t = {0};
    text_reserve(&t, 0);
    CHECK(t.data && t.capacity >= 1);
    text_reserve(&t, 5000);
    CHECK(t.capacity >= 5001 && t.len == 0);
    text_release(&t);
}

TEST(text_trimmed_copies_without_outer_whitespace)
{
    static const char *const cases[][2] = {
        {"", ""}, {" \t\r\n", ""}, {"a b", "a b"}, {"\n a\tb \r\n", "a\tb"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy = text_trimmed(cases[i][0]);
        CHECK(!strcmp(copy, cases[i][1]));
        free(copy);
    }
}

TEST(utf8_validity_follows_rfc_3629)
{
    CHECK(text_is_utf8("", 0) && text_is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x99", 10));
    CHECK(text_is_utf8("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", 10));
    static const char *const wrong[] = {"\x80",         "\xc1\xbf",         "\xc3",
                                        "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80",
                                        "\xe2\x82",     "\xed\xbf\xbf",     "a\xff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!text_is_utf8(wrong[i], strlen(wrong[i])));
}

TEST(text_add_utf8_encodes_a_code_point_in_1_to_4_bytes)
{
    struct text t = {0};
    const uint32_t codes[] = {0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) text_add_utf8(&t, codes[i]);
    CHECK(!strcmp(t.data, "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80"
                          "\xF4\x8F\xBF\xBF"));
    text_release(&t);
}

TEST(text_add_le_appends_the_low_bytes_of_a_number)
{
    struct text t = {0};
    text_add_le(&t, 0x1234, 1), text_add_le(&t, 0x1234, 2), text_add_le(&t, UINT64_MAX - 1, 8);
    CHECK(t.len == 11 && !memcmp(t.data, "\x34\x34\x12\xfe\xff\xff\xff\xff\xff\xff\xff", 12));
    text_release(&t);
}

TEST(text_bom_length_finds_a_byte_order_mark_at_the_start)
{
    CHECK(text_bom_length("\xEF\xBB\xBFx", 4) == 3 && text_bom_length("\xEF\xBB\xBF", 3) == 3);
    CHECK(!text_bom_length("\xEF\xBB\xBF", 2) && !text_bom_length("x\xEF\xBB\xBF", 4));
    CHECK(!text_bom_length(NULL, 0));
}

TEST(text_add_escaped_escapes_control_characters)
{
    struct text t = {0};
    text_adds(&t, "file ");
    text_add_escaped(&t, "a\n\033b");
    text_add_escaped(&t, "");
    text_add_escaped(&t, "\001\002\003");
    CHECK(!strcmp(t.data, "file a\\n\\x1bb\\x01\\x02\\x03") && t.len == strlen(t.data));
    text_release(&t);
}

TEST(text_quotes_words_for_a_shell)
{
    static const char *const rows[][2] = {
        {"outputs/run-1.5", "outputs/run-1.5"},
        {"", "''"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"$x", "'$x'"},
        {"~", "'~'"},
        {"\n", "'\n'"},
    };
    struct text t = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        text_clear(&t);
        text_add_shell(&t, rows[i][0]);
        CHECK(!strcmp(t.data, rows[i][1]));
    }
    text_release(&t);
}

TEST(a_choice_is_a_whole_word_of_the_list)
{
    CHECK(text_is_choice("a|bc|d", "bc", 2) && text_is_choice("a|bc|d", "d more", 1));
    CHECK(!text_is_choice("a|bc|d", "b", 1) && !text_is_choice("a|bc|d", "bcd", 3));
    CHECK(!text_is_choice("", "a", 1));
}

TEST(choices_are_listed_with_commas_and_or)
{
    struct text t = {0};
    text_add_choices(&t, "a");
    text_add_choices(&t, "|b|cd");
    CHECK(!strcmp(t.data, "a, b or cd"));
    text_release(&t);
}
