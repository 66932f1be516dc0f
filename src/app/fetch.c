// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status command_fetch(int argc, char **argv)
{
    bool tokenizer = false;
    const struct flag flags[] = {
        {"tokenizer", FLAG_SWITCH, &tokenizer, "of a model, the tokenizer's files only"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "fetch PATH...\n\n"
        "Brings what hf://datasets/ORG/NAME[@REVISION]/GLOB and hf://ORG/MODEL[@REVISION]\n"
        "mean from the Hugging Face Hub into its cache (HF_HUB_CACHE, $HF_HOME/hub), and\n"
        "prints where each is then.  Other commands do so by themselves; this one is for a\n"
        "machine with a network, before HF_HUB_OFFLINE=1 on machines without.",
        1, 64, argc, argv));
    if (a.help) return STATUS_OK;
    for (int i = 0; i < a.num_words; i++) {
        const char *path = a.words[i];
        char *local;
        if (!hub_is_path(path)) FAIL(USAGE, "fetch: \"%s\" is no hf:// path", path);
        bool data = !strncmp(path, "hf://datasets/", 14);
        TRY(hub_fetch(path,
                      data        ? HUB_DATA
                      : tokenizer ? HUB_TOKENIZER
                                  : HUB_WEIGHTS,
                      comm_self()));
        TRY(hub_find(path, &local));
        printf("%s\n", local);
        free(local);
    }
    return STATUS_OK;
}
