// SPDX-License-Identifier: Apache-2.0
#include "app/import.h"

#include "app/flags.h"
#include "app/manual.h"
#include "app/run_memory.h"
#include "base/byte_size.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "config/import/import.h"
#include "optim/optim.h"
#include "tensor/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_WORDS = 1024 };

static const struct usage usage = {
    "config import",
    {{NULL, {USAGE_ONE(FILE, "FILE.yaml"), USAGE_FLAGS("[key=value ...]")}},
     {NULL,
      {USAGE_ONE(FILE, "SCRIPT.sh"), USAGE_FLAGS("[VAR=VALUE ...] [ARGUMENT ...]"),
       USAGE_SETTINGS}},
     {NULL, {USAGE_FLAGS("--from megatron [--flag value ...]"), USAGE_SETTINGS}}},
    "Converts NxD Training's YAML, flags and scripts of Megatron-LM's pretrain_gpt.py, or scripts\n"
    "that run `accelerate launch` with frontier-guide's train.py, to a Llamero configuration on\n"
    "stdout.  Its comments list what each key became, which keys have no effect, and where the\n"
    "original differs from its own documentation.  A key that would change the result and is not\n"
    "supported is an error; config.accept_loss=KEY,... makes it a warning.  A script is parsed,\n"
    "not executed.  section.key=value overrides the result; key=value with a key of the YAML\n"
    "changes the YAML before it is converted.",
};

/* For --help; parse_arguments reads them, as what follows a file belongs to that. */
static const struct flag flags[] = {
    {"json", FLAG_SWITCH, NULL, "print one JSON object: format, file, ranks, keys, toml"},
    {"lenient", FLAG_SWITCH, NULL, "list unknown keys and flags instead of failing"},
    {"from", FLAG_CHOICE("megatron"), NULL,
     "read the flags of this program from the command line, not a file"},
    {0},
};

struct import_arguments {
    const char *file, *from;
    bool json, lenient;
    const char *help; /* the argument that requests it, or NULL */
    const char *words[MAX_WORDS];
    size_t num_words;
};

static enum status parse_arguments(struct import_arguments *r, int argc, char **argv)
{
    *r = (struct import_arguments){0};
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!text_is_utf8(word, strlen(word))) FAIL(USAGE, "argument %d is not UTF-8", i + 1);
        bool ours = !r->file && !r->from; /* arguments after a file belong to it */
        if (ours && (!strncmp(word, "--help", 6) || !strcmp(word, "-h")))
            r->help = word;
        else if (!strcmp(word, "--json"))
            r->json = true;
        else if (!strcmp(word, "--lenient"))
            r->lenient = true;
        else if (ours && !strcmp(word, "--from") && i + 1 < argc)
            r->from = argv[++i];
        else if (ours && strncmp(word, "--", 2))
            r->file = word;
        else if (ours)
            FAIL(USAGE, "config import: %.80s: expected a file, or --from megatron, first", word);
        else if (r->num_words == MAX_WORDS)
            FAIL(USAGE, "config import: too many arguments: at most %d are supported", MAX_WORDS);
        else
            r->words[r->num_words++] = word;
    }
    if (r->from && strcmp(r->from, "megatron"))
        FAIL(USAGE, "--from %.80s: must be megatron", r->from);
    if (!r->file && !r->from && !r->help)
        FAIL(USAGE, "config import: a file is required; see llamero config import --help");
    return STATUS_OK;
}

static enum status convert(struct import *im, const struct import_arguments *r)
{
    struct text bytes = {0};
    if (r->from) return import_flags(im, r->words, r->num_words);
    if (file_has_suffix(r->file, ".toml"))
        FAIL(USAGE, "config import: %s: torchtitan's TOML needs no conversion: llamero check %s",
             r->file, r->file);
    enum status st = file_read(r->file, MAX_BYTES, &bytes);
    if (!st && (file_has_suffix(r->file, ".yaml") || file_has_suffix(r->file, ".yml"))) {
        for (size_t i = 0; i < r->num_words && !st; i++)
            if (!strchr(r->words[i], '='))
                st = FAILURE(USAGE, "config import: %.80s: expected key=value after a YAML file",
                             r->words[i]);
        if (!st) st = import_nxdt(im, bytes.data, bytes.len, r->file, r->words, (int)r->num_words);
    } else if (!st) {
        st = import_script(im, bytes.data, bytes.len, r->file, r->words, r->num_words);
    }
    text_release(&bytes);
    return st;
}

/* Memory of a run's steps on the rank that needs the most; without a vocabulary, the flavor's. */
static enum status step_bytes(const struct config *c, int ranks, size_t *bytes)
{
    struct run_memory m = {0};
    struct model_shape shape;
    TRY(model_shape_resolve(&shape, &c->model, 0));
    enum status st = run_memory_plan_steps(&m, c, &shape, ranks);
    if (!st) *bytes = run_memory_needed(&m);
    run_memory_release(&m);
    return st;
}

/* On named hardware: splits the master weights if they do not fit otherwise. */
static enum status choose_master_weights(struct import *im)
{
    struct config *c = &im->config;
    double memory = device_config_hardware(&c->device).memory_bytes;
    size_t whole = 0, split = 0;
    struct text note = {0};
    bool half = training_compute_dtype(&c->training) == BF16;
    if (!(memory > 0) || !im->num_ranks || !half || optim_uses_split_weights(&c->optimizer))
        return STATUS_OK;
    if (step_bytes(c, (int)im->num_ranks, &whole)) {
        log_line(LOG_WARN, "memory is not planned: %s", status_message());
        return STATUS_OK;
    }
    if ((double)whole <= memory) return STATUS_OK;
    TRY(config_assign(c, "optimizer.master_weights", "split", "config import"));
    enum status st = step_bytes(c, (int)im->num_ranks, &split);
    text_addf(&note, "With float32 master weights a rank needs %s, split %s; it has %s.",
              byte_size_format((double)whole).text, byte_size_format((double)split).text,
              byte_size_format(memory).text);
    if (!st) st = import_set(im, NULL, "optimizer.master_weights", "split", note.data);
    if (!st) log_line(LOG_INFO, "optimizer.master_weights = \"split\": %s", note.data);
    text_release(&note);
    return st;
}

static void log_notes(const struct import *im)
{
    size_t counts[IMPORT_UNKNOWN + 1] = {0};
    for (size_t i = 0; i < im->num_notes; i++) counts[im->notes[i].verdict]++;
    log_line(
        LOG_INFO,
        "keys: %zu converted, %zu without effect, %zu that would change the result but are not "
        "supported; defects of the original: %zu",
        counts[IMPORT_TRANSLATED], counts[IMPORT_IGNORED], counts[IMPORT_UNSUPPORTED],
        counts[IMPORT_ORIGINAL_BUG]);
    for (size_t i = 0; i < im->num_notes; i++)
        if (im->notes[i].verdict == IMPORT_UNKNOWN)
            log_line(LOG_WARN, "unknown: %s %s: %s", im->notes[i].key, im->notes[i].value,
                     im->notes[i].text);
}

enum status import_run(int argc, char **argv)
{
    struct import_arguments *r = heap(sizeof *r);
    struct import im = {0};
    struct text out = {0};
    enum status st = parse_arguments(r, argc, argv);
    if (!st && r->help) {
        st = manual_print(&(struct arguments_spec){&usage, flags}, 0, r->help);
    } else if (!st) {
        im.lenient = r->lenient;
        st = convert(&im, r);
        if (!st) st = import_check_refusals(&im);
        if (!st) st = choose_master_weights(&im);
        if (!st) {
            (r->json ? import_write_json : import_write)(&im, &out);
            fputs(out.data, stdout);
            log_notes(&im);
        }
        import_release(&im);
    }
    text_release(&out);
    free(r);
    return st;
}
