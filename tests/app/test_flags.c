// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/commands.h"
#include "app/flags.h"

static void check_description(const struct flag *f, bool is_given, const char *want)
{
    struct text got = {0};
    flags_describe(f, is_given, &got);
    if (strcmp(got.data, want)) fail_msg("--%s: got \"%s\", not \"%s\"", f->name, got.data, want);
    text_release(&got);
}

TEST(descriptions_have_the_bounds_and_the_default_of_their_row)
{
    int64_t five = 5, none = -1;
    double half = 0.5;
    int second = 1, unset = -1;
    const char *name = "a.html", *empty = "";
    check_description(&(struct flag){"n", FLAG_INT(1, 64), &five, "rows"}, false,
                      "rows (1 to 64, default 5)");
    check_description(&(struct flag){"n", FLAG_INT(1, 64), &five, "rows (default; 1: one)"}, true,
                      "rows (1 to 64; 1: one)");
    check_description(&(struct flag){"n", FLAG_TEXT, &name, "page (default; -: stdout)"}, true,
                      "page (-: stdout)");
    check_description(&(struct flag){"n", FLAG_INT(1, 64), &five, "rows"}, true, "rows (1 to 64)");
    check_description(&(struct flag){"n", FLAG_INT(1, 64), NULL, "rows"}, false, "rows (1 to 64)");
    check_description(&(struct flag){"n", FLAG_INT(0, 64), &none, "rows"}, false, "rows (0 to 64)");
    check_description(&(struct flag){"n", FLAG_INT(1, FLAG_UNLIMITED), &none, "rows"}, false,
                      "rows (at least 1)");
    check_description(&(struct flag){"n", FLAG_INT(0, FLAG_UNLIMITED), &none, "rows"}, false,
                      "rows");
    check_description(&(struct flag){"n", FLAG_INT(0, 9), &five, "rows (default: all)"}, false,
                      "rows (0 to 9, default 5: all)");
    check_description(&(struct flag){"n", FLAG_INT(0, 9), &none, "rows (default: all) or so"},
                      false, "rows (0 to 9, default: all) or so");
    check_description(&(struct flag){"x", FLAG_REAL(0, 0.999), &half, "share (default; 0: none)"},
                      false, "share (0 to 0.999, default 0.5; 0: none)");
    check_description(&(struct flag){"c", FLAG_CHOICE("a|bc|d"), &second, "which"}, false,
                      "which (default bc)");
    check_description(&(struct flag){"c", FLAG_CHOICE("a|bc|d"), &unset, "which"}, false, "which");
    check_description(&(struct flag){"o", FLAG_FILE, &name, "page"}, false,
                      "page (default a.html)");
    check_description(&(struct flag){"o", FLAG_FILE, &empty, "page"}, false, "page");
    check_description(&(struct flag){"s", FLAG_SWITCH, NULL, "all"}, false, "all");
}

TEST(help_after_a_flag_does_not_print_its_value_as_the_default)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "bench", "--rounds", "7", "--help=markdown") == 0);
    CHECK(strstr(out.data, "of the step (1 to 1000) |"));
    CHECK(strstr(out.data, "measured (at least 1, default 512) |"));
    text_release(&out);
}

/* Whether the program rejects the value, and names the flag and what is allowed. */
static void check_rejected(const char *command, const char *flag, const char *value)
{
    struct text err = {0}, want = {0};
    text_addf(&want, "error: %s: \"%s\": expected ", flag, value);
    int code = LLAMERO(NULL, &err, command, flag, value);
    if (code != 64 || !strstr(err.data, want.data))
        fail_msg("%s %s %s: exit code %d: %s", command, flag, value, code, err.data);
    text_release(&err), text_release(&want);
}

/* The bounds in a description: "(1 to 64", "(at least 1"; of numbers without, 0. */
static void read_bounds(const char *description, double *least, double *most)
{
    *least = 0, *most = 0x1p63;
    for (const char *at = description; (at = strchr(at, '(')); at++)
        if (sscanf(at, "(%lf to %lf", least, most) == 2 || sscanf(at, "(at least %lf", least) == 1)
            return;
}

TEST(each_flag_of_each_command_rejects_what_its_description_does_not_allow)
{
    int numbers = 0, choices = 0;
    for (const struct command *c = commands; c->name; c++) {
        struct text page = {0};
        CHECK(LLAMERO(&page, NULL, c->name, "--help=markdown") == 0);
        char *rest = page.data;
        for (char *line; (line = strsep(&rest, "\n"));) {
            char flag[64], value[64], text[32];
            double least, most;
            if (sscanf(line, "| `%63[^ `] %63[^`]", flag, value) != 2) continue;
            if (strchr(value, '|')) choices++, check_rejected(c->name, flag, "@");
            if (strcmp(value, "N") && strcmp(value, "X")) continue;
            read_bounds(line, &least, &most);
            snprintf(text, sizeof text, "%.10g", least - 1);
            check_rejected(c->name, flag, text);
            snprintf(text, sizeof text, "%.*g", most < 1e15 ? 10 : 20, most + 1);
            check_rejected(c->name, flag, text);
            check_rejected(c->name, flag, "1x");
            numbers++;
        }
        text_release(&page);
    }
    CHECK(numbers >= 45 && choices >= 6);
}
