// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/commands.h"
#include "base/file.h"

/* Whether the text has the line that begins so. */
static bool has(const struct text *t, const char *format, const char *name)
{
    char start[128];
    snprintf(start, sizeof start, format, name);
    return t->data && strstr(t->data, start);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* The flags that --help lists are those of the man page, of completion and of the page; the usage
 * shows some of them. */
static void compare(const struct command *c, const struct text *page)
{
    struct text help = {0}, man = {0}, words = {0};
    char start[64];
    int flags = 0;
    CHECK(LLAMERO(&help, NULL, c->name, "--help") == 0);
    CHECK(LLAMERO(&man, NULL, c->name, "--help=man") == 0);
    CHECK(LLAMERO(&words, NULL, "--complete", c->name, "--") == 0);
    snprintf(start, sizeof start, "\n## llamero %s\n", c->name);
    const char *section = strstr(page->data, start);
    CHECK(section && has(&man, "\nllamero-%s \\- ", c->name));
    for (const char *at = help.data; (at = strstr(at, "\n  --")); at++, flags++) {
        char name[64], dashed[64] = "";
        size_t len = strcspn(at + 5, " \n");
        snprintf(name, sizeof name, "%.*s", (int)len, at + 5);
        for (size_t i = 0, n = 0; i < len; i++)
            n += (size_t)snprintf(dashed + n, 64 - n, name[i] == '-' ? "\\-" : "%c", name[i]);
        CHECK(has(&man, ".TP\n\\fB\\-\\-%s\\fR", dashed) && has(&words, "--%s\t", name));
        CHECK(has(&(struct text){.data = strstr(page->data, start)}, "\n| `--%s", name));
    }
    CHECK(count(man.data, ".TP\n") == flags + 1); /* and --help */
    const char *description = strstr(help.data, "\n\n");
    for (const char *at = help.data; (at = strstr(at, "--")) && at < description; at += 2) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 2, " ]|\n"), at + 2);
        if (!has(&words, "--%s\t", name)) fail_msg("%s has no flag --%s", c->name, name);
    }
    text_release(&help), text_release(&man), text_release(&words);
}

TEST(help_man_pages_completion_and_pages_come_from_one_table)
{
    struct text page = {0}, program = {0}, man = {0}, words = {0}, is = {0};
    CHECK(LLAMERO(&page, NULL, "--help=markdown") == 0);
    CHECK(LLAMERO(&program, NULL, "--help") == 0);
    CHECK(LLAMERO(&man, NULL, "--help=man") == 0);
    CHECK(LLAMERO(&words, NULL, "--complete", "") == 0);
    CHECK_STATUS(OK, file_read("docs/commands.md", UINT64_MAX, &is));
    CHECK(!strcmp(is.data, page.data)); /* make docs */
    int rows = 0;
    for (const struct command *c = commands; c->name; c++, rows++) {
        CHECK(has(&program, "\n  %s ", c->name) && has(&man, "\\fBllamero\\-%s(1)", c->name));
        CHECK(has(&words, "%s\t", c->name) && has(&page, "\n| [%s](#", c->name));
        compare(c, &page);
    }
    CHECK(count(words.data, "\n") == rows && count(page.data, "\n## ") == rows);
    text_clear(&page), text_clear(&is);
    CHECK(LLAMERO(&page, NULL, "config", "document") == 0);
    CHECK_STATUS(OK, file_read("docs/options.md", UINT64_MAX, &is));
    CHECK(!strcmp(is.data, page.data));
    text_release(&page), text_release(&program), text_release(&man), text_release(&words);
    text_release(&is);
}

TEST(help_is_also_a_command_and_rejects_unknown_formats)
{
    struct text a = {0}, b = {0}, err = {0};
    CHECK(LLAMERO(&a, NULL, "help", "train") == 0 && LLAMERO(&b, NULL, "train", "--help") == 0);
    CHECK(!strcmp(a.data, b.data));
    CHECK(LLAMERO(NULL, &err, "help", "trian") == 64 && strstr(err.data, "did you mean \"train\""));
    CHECK(LLAMERO(NULL, &err, "train", "--help=html") == 64);
    CHECK(strstr(err.data, "--help: must be man or markdown, is \"html\""));
    CHECK(LLAMERO(NULL, &err, "train", "--helpful") == 64 && strstr(err.data, "--help?"));
    CHECK(LLAMERO(NULL, &err, "slurm", "x.toml", "--mpi", "openmpi") == 64);
    CHECK(strstr(err.data, "--mpi: \"openmpi\": expected pmix, pmi2 or cray_shasta"));
    CHECK(LLAMERO(&a, NULL, "config", "import", "--help=man") == 0);
    CHECK(strstr(a.data, ".TH LLAMERO-CONFIG-IMPORT 1"));
    text_release(&a), text_release(&b), text_release(&err);
}
