// SPDX-License-Identifier: Apache-2.0
#include "app/import.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "config/import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_WORDS = 1024 };

static const char help[] =
    "usage: llamero config import FILE.yaml [key=value ...]\n"
    "       llamero config import SCRIPT.sh [VAR=VALUE ...] [ARGUMENT ...] [section.key=value "
    "...]\n"
    "       llamero config import --from megatron [--flag value ...] [section.key=value ...]\n\n"
    "Turns NxD Training's YAML, or flags and scripts of Megatron-LM's pretrain_gpt.py, into a\n"
    "configuration of ours, on stdout: what each key became, what has no meaning here, where the\n"
    "original does something else than it says, and what is not done here. A script is read, not\n"
    "run. section.key=value of ours is set over what was imported; key=value of a YAML's own\n"
    "changes it before.\n\n"
    "  --json                   print one JSON object: format, file, ranks, keys, toml\n"
    "  --from megatron          no file: the flags stand here\n";

static bool ends_with(const char *word, const char *end)
{
    size_t len = strlen(word), want = strlen(end);
    return len >= want && !strcmp(word + len - want, end);
}

struct request {
    const char *file, *from;
    bool json, help;
    const char *words[MOST_WORDS];
    size_t num_words;
};

static enum status read_request(struct request *r, int argc, char **argv)
{
    *r = (struct request){0};
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!text_is_utf8(word, strlen(word))) FAIL(USAGE, "argument %d is not UTF-8", i + 1);
        bool ours = !r->file && !r->from; /* behind a file its own words come */
        if (ours && (!strcmp(word, "--help") || !strcmp(word, "-h")))
            r->help = true;
        else if (!strcmp(word, "--json"))
            r->json = true;
        else if (ours && !strcmp(word, "--from") && i + 1 < argc)
            r->from = argv[++i];
        else if (ours && strncmp(word, "--", 2))
            r->file = word;
        else if (ours)
            FAIL(USAGE, "config import: %.80s: a file, or --from megatron, comes first", word);
        else if (r->num_words == MOST_WORDS)
            FAIL(USAGE, "config import: more than %d arguments", MOST_WORDS);
        else
            r->words[r->num_words++] = word;
    }
    if (r->from && strcmp(r->from, "megatron"))
        FAIL(USAGE, "--from %.80s: megatron is wanted", r->from);
    if (!r->file && !r->from && !r->help)
        FAIL(USAGE, "config import: which file? See llamero config import --help");
    return STATUS_OK;
}

static enum status convert(struct import *im, const struct request *r)
{
    struct text bytes = {0};
    if (r->from) return import_flags(im, r->words, r->num_words);
    if (ends_with(r->file, ".toml"))
        FAIL(USAGE, "config import: %s: torchtitan's TOML is taken as it is: llamero check %s",
             r->file, r->file);
    enum status st = file_read(r->file, MOST_BYTES, &bytes);
    if (!st && (ends_with(r->file, ".yaml") || ends_with(r->file, ".yml"))) {
        for (size_t i = 0; i < r->num_words && !st; i++)
            if (!strchr(r->words[i], '='))
                st = status_fail(STATUS_USAGE, __FILE__, __LINE__,
                                 "config import: %.80s: key=value is wanted behind a YAML",
                                 r->words[i]);
        if (!st) st = import_nxdt(im, bytes.data, bytes.len, r->file, r->words, (int)r->num_words);
    } else if (!st) {
        st = import_script(im, bytes.data, bytes.len, r->file, r->words, r->num_words);
    }
    text_release(&bytes);
    return st;
}

/* What `llamero check` would refuse is said, but the file is printed: some of it may be changed. */
static void warn(const struct import *im)
{
    size_t counts[4] = {0};
    for (size_t i = 0; i < im->num_notes; i++) counts[im->notes[i].verdict]++;
    log_line(LOG_INFO,
             "%zu keys of ours set, %zu of theirs without meaning here, %zu not done here, %zu "
             "defects of the original",
             counts[IMPORT_OURS], counts[IMPORT_NONE], counts[IMPORT_MISSING], counts[IMPORT_BUG]);
    for (size_t i = 0; i < im->num_notes; i++)
        if (im->notes[i].verdict == IMPORT_MISSING)
            log_line(LOG_WARN, "not done here: %s %s%s%s", im->notes[i].key, im->notes[i].value,
                     im->notes[i].text[0] ? ": " : "", im->notes[i].text);
}

enum status import_run(int argc, char **argv)
{
    struct request *r = heap(sizeof *r);
    struct import im = {0};
    struct text out = {0};
    enum status st = read_request(r, argc, argv);
    if (!st && r->help) {
        fputs(help, stdout);
    } else if (!st) {
        st = convert(&im, r);
        if (!st) {
            (r->json ? import_write_json : import_write)(&im, &out);
            fputs(out.data, stdout);
            warn(&im);
        }
        import_release(&im);
    }
    text_release(&out);
    free(r);
    return st;
}
