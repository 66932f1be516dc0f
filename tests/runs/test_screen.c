// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/screen.h"

static bool shows(const struct screen *s, bool color, const char *want)
{
    struct text t = {0};
    screen_text(s, color, &t);
    bool same = !strcmp(t.data, want);
    if (!same) print_error("%s", t.data);
    text_release(&t);
    return same;
}

static void put(struct screen *s, int row, int column, enum screen_style style, const char *string)
{
    screen_put(s, (struct screen_place){row, column}, style, string);
}

TEST(screen_cuts_text_at_its_edges)
{
    struct screen s;
    screen_init(&s, 2, 6);
    put(&s, 0, 4, STYLE_plain, "abc");
    put(&s, 1, 0, STYLE_plain, "12345\346\227\245"); /* the wide character does not fit */
    put(&s, 2, 0, STYLE_plain, "below");
    put(&s, -1, 0, STYLE_plain, "above");
    CHECK(shows(&s, false, "    ab\n12345\n"));
    screen_release(&s);
}

TEST(screen_styles_text_only_on_request)
{
    struct screen s;
    screen_init(&s, 1, 8);
    put(&s, 0, 0, STYLE_plain, "a");
    put(&s, 0, 1, STYLE_red, "b");
    screen_put_chart(&s, (struct screen_place){0, 3}, "\033[34mc\033[0md");
    CHECK(shows(&s, false, "ab cd\n"));
    CHECK(shows(&s, true, "a\033[0;31mb\033[0m \033[0;34mc\033[0md\n"));
    screen_release(&s);
}

static bool updates_by(const struct screen *s, const struct screen *before, const char *want)
{
    struct text t = {0};
    screen_update(s, before, true, &t);
    bool same = !strcmp(t.data ? t.data : "", want);
    text_release(&t);
    return same;
}

TEST(screen_update_writes_only_changed_cells)
{
    struct screen a, b, other;
    screen_init(&a, 2, 10), screen_init(&b, 2, 10), screen_init(&other, 3, 10);
    put(&a, 0, 0, STYLE_plain, "loss 2.50"), put(&b, 0, 0, STYLE_plain, "loss 2.41");
    put(&a, 1, 0, STYLE_green, "ok"), put(&b, 1, 0, STYLE_green, "o");
    CHECK(updates_by(&b, &b, ""));
    CHECK(updates_by(&b, &a, "\033[1;8H\033[0m41\033[2;2H "));
    CHECK(updates_by(&b, &other,
                     "\033[0m\033[2J\033[1;1H\033[0mloss\033[1;6H2.41"
                     "\033[2;1H\033[0;32mo\033[0m"));
    screen_release(&a), screen_release(&b), screen_release(&other);
}

TEST(screen_update_replaces_wide_characters)
{
    struct screen a, b;
    screen_init(&a, 1, 4), screen_init(&b, 1, 4);
    put(&a, 0, 0, STYLE_plain, "\346\227\245x"), put(&b, 0, 0, STYLE_plain, "abx");
    CHECK(updates_by(&b, &a, "\033[1;1H\033[0mab"));
    CHECK(updates_by(&a, &b, "\033[1;1H\033[0m\346\227\245"));
    screen_release(&a), screen_release(&b);
}
