// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "plot/chart.h"

static size_t count_characters(const char *line, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)line[i] & 0xC0) != 0x80;
    return n;
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static const double up[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static const double down[] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

TEST(chart_terminal_draws_a_line_from_corner_to_corner)
{
    struct chart_line l = {.name = "loss", .x = up, .y = up, .count = 10};
    struct chart c = {
        .x_label = "step", .y_label = "y", .lines = &l, .num_lines = 1, .width = 30, .height = 8};
    struct text t = {0};
    chart_terminal(&c, false, &t);
    CHECK(strstr(t.data, " y\n"));
    const char *first = strchr(t.data, '\n') + 1, *end = strchr(first, '\n');
    CHECK(count_characters(first, (size_t)(end - first)) ==
          30); /* the last column has the last point */
    CHECK(strstr(t.data, "\u2500") && strstr(t.data, "\u2502"));
    CHECK(strstr(t.data, "\u28e4\u28e4 loss 9\n"));
    CHECK(count_lines(t.data) == 8);
    text_release(&t);
}

TEST(chart_terminal_fits_the_requested_size)
{
    struct chart_line l[] = {{.name = "a run with a long name", .x = up, .y = down, .count = 10},
                             {.name = "another one", .x = up, .y = up, .count = 10, .color = 1},
                             {.name = "marks", .x = up, .y = up, .count = 3, .marks = true}};
    for (int width = 30; width < 200; width += 13)
        for (int height = 8; height < 60; height += 7)
            for (int count = 1; count < 4; count++) {
                struct chart c = {.title = "Title",
                                  .x_label = "step",
                                  .y_label = "loss",
                                  .lines = l + 3 - count,
                                  .num_lines = count,
                                  .width = width,
                                  .height = height};
                struct text t = {0};
                chart_terminal(&c, false, &t);
                CHECK(text_is_utf8(t.data, t.len));
                for (const char *line = t.data; *line; line = strchr(line, '\n') + 1)
                    CHECK(count_characters(line, (size_t)(strchr(line, '\n') - line)) <=
                          (size_t)width);
                CHECK(count_lines(t.data) <= (size_t)height + 2); /* the legend may wrap */
                CHECK(strstr(t.data, "\u25cf"));
                text_release(&t);
            }
}

TEST(chart_terminal_uses_color_only_on_request)
{
    struct chart_line l = {.name = "loss", .x = up, .y = up, .count = 10};
    struct chart c = {
        .x_label = "step", .y_label = "y", .lines = &l, .num_lines = 1, .width = 40, .height = 10};
    struct text plain = {0}, painted = {0}, bare = {0};
    chart_terminal(&c, false, &plain);
    chart_terminal(&c, true, &painted);
    CHECK(!strchr(plain.data, '\033'));
    for (const char *at = painted.data; *at; at++)
        if (*at == '\033')
            at = strchr(at, 'm');
        else
            text_add(&bare, at, 1);
    CHECK(bare.len < painted.len && !strcmp(bare.data, plain.data));
    text_release(&plain);
    text_release(&painted);
    text_release(&bare);
}

TEST(chart_terminal_draws_a_single_point)
{
    struct chart_line l = {.name = "loss", .x = up, .y = up, .count = 1};
    struct chart c = {
        .x_label = "step", .y_label = "y", .lines = &l, .num_lines = 1, .width = 30, .height = 8};
    struct text t = {0};
    chart_terminal(&c, false, &t);
    int dots = 0;
    for (const char *at = t.data; (at = strstr(at, "\xe2\xa0")); at++) dots++;
    CHECK(dots == 1);
    text_release(&t);
}

TEST(chart_terminal_uses_only_ascii_if_the_terminal_shows_nothing_else)
{
    struct chart_line l[] = {{.name = "loss", .x = up, .y = up, .count = 10},
                             {.name = "marks", .x = up, .y = down, .count = 3, .marks = true}};
    struct chart c = {.x_label = "step",
                      .y_label = "y",
                      .lines = l,
                      .num_lines = 2,
                      .ascii = true,
                      .width = 60,
                      .height = 12};
    struct text t = {0};
    chart_terminal(&c, false, &t);
    for (size_t i = 0; i < t.len; i++) CHECK((unsigned char)t.data[i] < 128);
    CHECK(strstr(t.data, ".. loss 9") && strstr(t.data, " o marks 7") && strchr(t.data, '+'));
    CHECK(count_lines(t.data) == 12);
    text_release(&t);
}
