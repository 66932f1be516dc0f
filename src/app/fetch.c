// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "base/file.h"
#include "data/source.h"
#include "hub/hub.h"
#include "hub/hub_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    "fetch",
    {{NULL, {USAGE_SOME(FILE, "PATH")}}},
    "Downloads hf://datasets/ORG/NAME[@REVISION]/GLOB or hf://ORG/MODEL[@REVISION] from the\n"
    "Hugging Face Hub into its cache (HF_HUB_CACHE, $HF_HOME/hub), or objects and models of\n"
    "s3://BUCKET/KEY into $LLAMERO_S3_CACHE, and prints the local paths.\n"
    "Other commands download what they need.  Use this one on a machine with a network, for\n"
    "machines without one, where HF_HUB_OFFLINE=1 is set.",
};

static bool is_data_set(const char *path) { return !strncmp(path, "hf://datasets/", 14); }

/* A file of a model, or an object, whose suffix is that of data or weights alone. */
static bool has_other_suffix(const struct hub_path *p)
{
    bool may_be = file_has_suffix(p->path, ".json") || file_has_suffix(p->path, ".txt") ||
                  (p->is_s3 && file_has_suffix(p->path, ".bin"));
    return !may_be && (source_has_suffix(p->path) || hub_is_weights(file_name(p->path)));
}

static enum status check_has_tokenizer(const char *path)
{
    struct hub_path p;
    TRY(hub_path_parse(&p, path));
    bool has_none = p.is_dataset || has_other_suffix(&p);
    hub_path_release(&p);
    if (has_none)
        FAIL(USAGE,
             "--tokenizer has no effect with data or weights: \"%s\"; expected hf://ORG/MODEL or "
             "s3://BUCKET/KEY",
             path);
    return STATUS_OK;
}

/* Checks all paths before the first download. */
static enum status check_paths(const struct arguments *a, bool tokenizer)
{
    for (int i = 0; i < a->num_words; i++) {
        const char *path = a->words[i];
        if (!hub_is_path(path))
            FAIL(USAGE,
                 "fetch: \"%s\": expected hf://datasets/ORG/NAME/GLOB, hf://ORG/MODEL or "
                 "s3://BUCKET/KEY",
                 path);
        if (tokenizer) TRY(check_has_tokenizer(path));
    }
    return STATUS_OK;
}

enum status command_fetch(int argc, char **argv)
{
    bool tokenizer = false;
    const struct flag flags[] = {
        {"tokenizer", FLAG_SWITCH, &tokenizer, "fetch only the tokenizer of a model"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(check_paths(&a, tokenizer));
    for (int i = 0; i < a.num_words; i++) {
        const char *path = a.words[i];
        char *local;
        TRY(hub_fetch(path,
                      is_data_set(path) ? HUB_DATA
                      : tokenizer       ? HUB_TOKENIZER
                                        : HUB_WEIGHTS,
                      comm_self()));
        TRY(hub_find(path, &local));
        printf("%s\n", local);
        free(local);
    }
    return STATUS_OK;
}
