// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/line_editor.h"

static enum line_event type(struct line_editor *e, const char *keys)
{
    enum line_event event = LINE_more;
    for (; *keys; keys++) event = line_editor_feed(e, (unsigned char)*keys);
    return event;
}

static void check_line(const struct line_editor *e, const char *want, size_t cursor)
{
    CHECK(e->line.len == strlen(want) && !memcmp(e->line.data, want, e->line.len));
    CHECK(e->cursor == cursor);
}

#define LEFT  "\033[D"
#define RIGHT "\033[C"
#define UP    "\033[A"
#define DOWN  "\033OB"

TEST(keys_edit_the_line_by_characters_words_and_ends)
{
    struct line_editor e = {0};
    CHECK(type(&e, "one two" LEFT LEFT "X") == LINE_more);
    check_line(&e, "one tXwo", 6);
    type(&e, "\001<\005>\002\002\006!");
    check_line(&e, "<one tXwo!>", 10);
    type(&e, "\027");
    check_line(&e, "<one >", 5);
    type(&e, "\010\177");
    check_line(&e, "<on>", 3);
    type(&e, "\033[H\033[3~\033[F?");
    check_line(&e, "on>?", 4);
    type(&e, LEFT LEFT "\013");
    check_line(&e, "on", 2);
    type(&e, "\025");
    check_line(&e, "", 0);
    CHECK(type(&e, LEFT "\010\004") == LINE_end);
    line_editor_release(&e);
}

TEST(characters_of_several_bytes_move_and_go_as_one)
{
    struct line_editor e = {0};
    type(&e, "a\xc3\xa4\xe2\x82\xac\xf0\x9f\xa6\x99");
    check_line(&e, "a\xc3\xa4\xe2\x82\xac\xf0\x9f\xa6\x99", 10);
    type(&e, LEFT LEFT "\177");
    check_line(&e, "a\xe2\x82\xac\xf0\x9f\xa6\x99", 1);
    type(&e, RIGHT "\033[3~");
    check_line(&e, "a\xe2\x82\xac", 4);
    type(&e, "\xff\xc3"
             "b\xe2\x82"); /* not UTF-8, and cut short */
    check_line(&e,
               "a\xe2\x82\xac"
               "b",
               5);
    line_editor_release(&e);
}

TEST(control_keys_and_unknown_sequences_are_not_text)
{
    struct line_editor e = {0};
    CHECK(type(&e, "a\003") == LINE_interrupt);
    CHECK(type(&e, "\032") == LINE_suspend);
    CHECK(type(&e, "\033[1;5C\033[200~\033[99999999999~\033x") == LINE_more);
    check_line(&e, "ax", 2);
    line_editor_feed(&e, 27);
    line_editor_flush(&e);
    CHECK(type(&e, "[A\r") == LINE_done);
    check_line(&e, "ax[A", 4);
    line_editor_release(&e);
}

TEST(up_and_down_show_earlier_lines)
{
    struct line_editor e = {0};
    type(&e, "first");
    line_editor_next(&e);
    type(&e, "second");
    line_editor_next(&e);
    type(&e, "second"); /* kept once */
    line_editor_next(&e);
    type(&e, "new" UP);
    check_line(&e, "second", 6);
    type(&e, UP UP);
    check_line(&e, "first", 5);
    type(&e, DOWN DOWN DOWN);
    check_line(&e, "new", 3);
    for (int i = 0; i < LINE_EDITOR_LINES + 5; i++) {
        type(&e, i % 2 ? "x" : "yy");
        line_editor_next(&e);
    }
    CHECK(e.num_earlier == LINE_EDITOR_LINES);
    line_editor_release(&e);
}

TEST(a_long_line_is_drawn_around_the_cursor)
{
    struct line_editor e = {0};
    struct text out = {0};
    type(&e, "abc" LEFT);
    line_editor_draw(&e, "> ", 20, &out);
    CHECK(!strcmp(out.data, "\r> abc\033[K\r\033[4C"));
    text_clear(&out);
    type(&e, "\005defghijklmnopqrstuvwxyz");
    line_editor_draw(&e, "> ", 10, &out);
    CHECK(!strcmp(out.data, "\r> tuvwxyz\033[K\r\033[9C"));
    text_clear(&out);
    type(&e, "\001");
    line_editor_draw(&e, "> ", 10, &out);
    CHECK(!strcmp(out.data, "\r> abcdefg\033[K\r\033[2C"));
    text_clear(&out);
    type(&e, "\025\013\xe4\xb8\xad\xe6\x96\x87"
             "a"); /* two columns each */
    line_editor_draw(&e, "> ", 20, &out);
    CHECK(strstr(out.data, "\033[K\r\033[7C"));
    text_release(&out);
    line_editor_release(&e);
}
