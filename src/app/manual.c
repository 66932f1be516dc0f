// SPDX-License-Identifier: Apache-2.0
#include "app/manual.h"
#include "app/commands.h"
#include "base/roff.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum format { FORMAT_HELP, FORMAT_MAN, FORMAT_MARKDOWN };

static const char program_synopsis[] = "COMMAND [arguments] [section.key=value ...]";
static const char program_summary[] =
    "Pretrains Llama models and close relatives, from raw text to a Hugging Face checkpoint.";

static const struct {
    const char *name, *help;
} variables[] = {
    {"GOMP_SPINCOUNT",
     "spins of a waiting compute thread before it sleeps (default " THREAD_SPINS ")"},
    {"HF_HOME", "folder of the Hugging Face Hub's files (default ~/.cache/huggingface)"},
    {"HF_HUB_CACHE", "its cache of downloads (default $HF_HOME/hub)"},
    {"HF_HUB_OFFLINE", "1: never use the network"},
    {"HF_TOKEN", "access token for the Hub"},
    {"LLAMERO_S3_CACHE", "cache of objects from s3:// paths"},
    {"LLAMERO_TRACE", "if set, an error prints the chain of calls too, and a bug ends by SIGABRT"},
    {"NO_COLOR", "if set and not empty, no colors"},
};

static enum status parse_request(const char *request, enum format *format)
{
    const char *word = strchr(request, '=');
    *format = FORMAT_HELP;
    if (!word) {
        if (!strcmp(request, "-h") || !strcmp(request, "--help")) return STATUS_OK;
        FAIL(USAGE, "unknown flag %s; did you mean --help?", request);
    }
    if (!strcmp(word, "=man"))
        *format = FORMAT_MAN;
    else if (!strcmp(word, "=markdown"))
        *format = FORMAT_MARKDOWN;
    else
        FAIL(USAGE, "--help: must be man or markdown, is \"%s\"", word + 1);
    return STATUS_OK;
}

enum { HELP_COLUMN = 27, HELP_WIDTH = 80 - HELP_COLUMN };

/* A flag's help in lines of at most 80 columns, of which the second and later ones are indented. */
static void add_wrapped(struct text *out, const char *help)
{
    while (strlen(help) > HELP_WIDTH) {
        size_t len = HELP_WIDTH;
        while (len && help[len] != ' ') len--;
        if (!len) break;
        text_addf(out, "%.*s\n%*s", (int)len, help, HELP_COLUMN, "");
        help += len + 1;
    }
    text_addf(out, "%s\n", help);
}

/* A flag's description; bit i of `given` as in manual_print. */
static const char *describe(const struct arguments_spec *spec, const struct flag *f, uint64_t given,
                            struct text *description)
{
    text_clear(description);
    flags_describe(f, given >> (f - spec->flags) & 1, description);
    return description->data;
}

static void print_help(const struct arguments_spec *spec, uint64_t given, struct text *out)
{
    const struct usage *u = spec->usage;
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, NULL));) {
        text_addf(out, "%s llamero ", s == u->synopses ? "usage:" : "      ");
        usage_add_synopsis(u, s, out);
        text_adds(out, "\n");
    }
    text_addf(out, "\n%s\n", u->description);
    if (spec->flags->name) text_adds(out, "\n");
    struct text left = {0}, description = {0};
    for (const struct flag *f = spec->flags; f->name; f++) {
        text_clear(&left);
        text_addf(&left, "  --%s%s%s", f->name, *f->value ? " " : "", f->value);
        bool fits = left.len < HELP_COLUMN;
        text_addf(out, "%s%s%*s", left.data, fits ? "" : "\n",
                  HELP_COLUMN - (fits ? (int)left.len : 0), "");
        add_wrapped(out, describe(spec, f, given, &description));
    }
    text_release(&left), text_release(&description);
}

/* The summary of "config" or "config import". */
static const char *summary_of(const char *command)
{
    const struct command *c = commands_find(command);
    return c ? c->summary : "convert other programs' configurations";
}

static void add_man_synopsis(const char *synopsis, struct text *out)
{
    text_adds(out, "\\fBllamero\\fR ");
    roff_add(out, synopsis);
}

static void add_man_flags(const struct arguments_spec *spec, uint64_t given, struct text *out)
{
    struct text description = {0};
    for (const struct flag *f = spec->flags; f->name; f++) {
        char name[64];
        snprintf(name, sizeof name, "--%s", f->name);
        roff_entry(out, name, f->value);
        roff_add(out, describe(spec, f, given, &description));
    }
    text_release(&description);
}

static void add_exit_codes(struct text *out)
{
    roff_section(out, "EXIT STATUS");
    for (int i = 0; i < STATUS_COUNT; i++) {
        char code[16];
        snprintf(code, sizeof code, "%d", status_exit_code((enum status)i));
        roff_entry(out, code, "");
        roff_add(out, status_text((enum status)i));
    }
}

static void add_man_page(const struct arguments_spec *spec, uint64_t given, struct text *out)
{
    const struct usage *u = spec->usage;
    struct text name = {0}, line = {0};
    text_addf(&name, "llamero-%s", u->command);
    for (char *at = name.data; *at; at++)
        if (*at == ' ') *at = '-';
    roff_begin(out, name.data, 1, "Llamero's commands");
    roff_section(out, "NAME");
    text_addf(out, "%s \\- ", name.data);
    roff_add(out, summary_of(u->command));
    roff_section(out, "SYNOPSIS");
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, NULL));) {
        if (s != u->synopses) text_adds(out, ".br\n");
        text_clear(&line);
        usage_add_synopsis(u, s, &line);
        add_man_synopsis(line.data, out);
    }
    roff_section(out, "DESCRIPTION");
    roff_paragraphs(out, u->description);
    roff_section(out, "OPTIONS");
    add_man_flags(spec, given, out);
    roff_entry(out, "--help", "");
    roff_add(out, "print a summary of this page");
    roff_section(out, "EXIT STATUS");
    roff_add(out, "0, or a code that llamero(1) lists.");
    roff_section(out, "SEE ALSO");
    text_adds(out, ".BR llamero (1),\n.BR llamero.toml (5)\n");
    text_release(&name), text_release(&line);
}

/* Bars separate the cells of a table. */
static void add_cell(struct text *out, const char *string)
{
    for (const char *at = string; *at; at++) {
        if (*at == '|') text_adds(out, "\\");
        text_add(out, at, 1);
    }
}

static void add_paragraphs(const char *string, struct text *out)
{
    for (const char *at = string, *next; *at; at = next) {
        const char *end = strstr(at, "\n\n");
        size_t len = end ? (size_t)(end - at) : strlen(at);
        bool table = roff_is_table(at, len);
        next = end ? end + 2 + strspn(end + 2, "\n") : at + len;
        text_addf(out, "\n%s%.*s\n%s", table ? "```text\n" : "", (int)len, at,
                  table ? "```\n" : "");
    }
}

static void add_markdown(const struct arguments_spec *spec, uint64_t given, struct text *out)
{
    const struct usage *u = spec->usage;
    const char *summary = summary_of(u->command);
    text_addf(out, "\n## llamero %s\n\n%c%s.\n\n```text\n", u->command, *summary - ('a' - 'A'),
              summary + 1);
    for (const struct synopsis *s = NULL; (s = usage_next(u, s, NULL));) {
        text_adds(out, "llamero ");
        usage_add_synopsis(u, s, out);
        text_adds(out, "\n");
    }
    text_adds(out, "```\n");
    add_paragraphs(u->description, out);
    if (spec->flags->name) text_adds(out, "\n| flag | what it does |\n|---|---|\n");
    struct text description = {0};
    for (const struct flag *f = spec->flags; f->name; f++) {
        text_addf(out, "| `--%s%s", f->name, *f->value ? " " : "");
        add_cell(out, f->value);
        text_adds(out, "` | ");
        add_cell(out, describe(spec, f, given, &description));
        text_adds(out, " |\n");
    }
    text_release(&description);
}

enum status manual_print(const struct arguments_spec *spec, uint64_t given, const char *request)
{
    enum format format;
    struct text out = {0};
    TRY(parse_request(request, &format));
    if (format == FORMAT_HELP)
        print_help(spec, given, &out);
    else
        (format == FORMAT_MAN ? add_man_page : add_markdown)(spec, given, &out);
    fputs(out.data, stdout);
    text_release(&out);
    return STATUS_OK;
}

static void add_program_help(struct text *out)
{
    text_addf(out, "usage: llamero %s\n\n%s\n\n", program_synopsis, program_summary);
    for (const struct command *c = commands; c->name; c++)
        text_addf(out, "  %-11s %s\n", c->name, c->summary);
    text_adds(
        out,
        "\n`llamero COMMAND --help` describes a command, `llamero config explain` the keys,\n"
        "`llamero --version --verbose` the build.  Every command takes --color auto, always or\n"
        "never.\n");
}

static void add_program_man(struct text *out)
{
    roff_begin(out, "llamero", 1, "Llamero");
    roff_section(out, "NAME");
    text_adds(out, "llamero \\- pretrain Llama models\n");
    roff_section(out, "SYNOPSIS");
    add_man_synopsis(program_synopsis, out);
    roff_section(out, "DESCRIPTION");
    roff_add(out, program_summary);
    roff_add(out, "Results go to standard output, everything else to standard error.");
    roff_section(out, "COMMANDS");
    for (const struct command *c = commands; c->name; c++) {
        char name[64];
        snprintf(name, sizeof name, "llamero-%s(1)", c->name);
        roff_entry(out, name, "");
        roff_add(out, c->summary);
    }
    roff_section(out, "OPTIONS");
    const struct flag color = FLAG_COLOR(NULL);
    roff_entry(out, "--color", color.value);
    roff_add(out, color.help);
    roff_entry(out, "--version", "");
    roff_add(out, "print the version; with `--verbose` also build options and libraries");
    add_exit_codes(out);
    roff_section(out, "ENVIRONMENT");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        roff_entry(out, variables[i].name, "");
        roff_add(out, variables[i].help);
    }
    roff_section(out, "SEE ALSO");
    text_adds(out, ".BR llamero.toml (5)\n");
}

static void add_program_markdown(struct text *out)
{
    text_adds(out, "# Commands\n\nGenerated by `make docs` from the tables that parse the "
                   "arguments; so are `--help`, the man pages and\nshell completion. Every command "
                   "also takes `--help` and `--color auto`, `always` or `never`.\nResults go to "
                   "stdout, everything else to stderr; `--json` prints results for scripts.\n\n"
                   "| command | what it does |\n|---|---|\n");
    for (const struct command *c = commands; c->name; c++) {
        text_addf(out, "| [%s](#llamero-%s) | ", c->name, c->name);
        add_cell(out, c->summary);
        text_adds(out, " |\n");
    }
}

enum status manual_print_program(const char *request, FILE *to)
{
    enum format format;
    struct text out = {0};
    TRY(parse_request(request, &format));
    if (format == FORMAT_HELP)
        add_program_help(&out);
    else
        (format == FORMAT_MAN ? add_program_man : add_program_markdown)(&out);
    fputs(out.data, to);
    text_release(&out);
    return STATUS_OK;
}
