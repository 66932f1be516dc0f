// SPDX-License-Identifier: Apache-2.0
#include "hub/push.h"
#include "app/app.h"
#include "app/arguments.h"
#include "base/file.h"
#include "checkpoint/manifest.h"
#include "hub/hub.h"
#include "infer/loaded_model.h"

#include <stdio.h>
#include <stdlib.h>

/* Verifies the files of a checkpoint of ours that are about to be uploaded. */
static enum status verify_files(const char *folder)
{
    struct file_list names;
    enum status st = STATUS_OK;
    if (!file_exists_in(folder, MANIFEST_NAME)) return STATUS_OK;
    TRY(manifest_list(folder, &names));
    for (size_t i = 0; i < names.count && !st; i++)
        if (hub_is_model_file(names.paths[i])) st = manifest_verify(folder, names.paths[i]);
    file_list_release(&names);
    return st;
}

static enum status push(struct push *p, const char *path)
{
    struct hub_settings settings = {0};
    struct text url = {0};
    char *folder = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(hub_settings_read(&settings));
    p->settings = &settings;
    TRY_OUT(push_check(p));
    TRY_OUT(loaded_model_find(path, comm_self(), &folder));
    TRY_OUT(verify_files(folder));
    p->folder = folder;
    TRY_OUT(push_run(p, &url));
    printf("%s\n", url.data);
out:
    hub_settings_release(&settings);
    text_release(&url);
    free(folder);
    return st;
}

static const struct usage usage = {
    "push",
    {{NULL,
      {USAGE_ONE(FOLDER, "DIR"),
       {ITEM_FILE, "hf://ORG/NAME", false, false, "hf://ORG/NAME[@BRANCH]"}}}},
    "Uploads a model to a repository of the Hugging Face Hub, as one commit: the Hugging Face\n"
    "files of DIR (weights, config.json, tokenizer, and README.md if it exists), without\n"
    "optimizer, state or configuration of the run.  DIR is a Hugging Face folder, a checkpoint,\n"
    "or a run, whose newest checkpoint is uploaded.  Files that the Hub already has are not sent\n"
    "again, so an interrupted push can be repeated.  The token comes from HF_TOKEN or\n"
    "$HF_HOME/token, the Hub's address from HF_ENDPOINT.  Prints the URL of the commit.",
};

enum status command_push(int argc, char **argv)
{
    struct push p = {.message = "Upload with llamero"};
    const struct flag flags[] = {
        {"create", FLAG_SWITCH, &p.creates, "create the repository if it does not exist"},
        {"private", FLAG_SWITCH, &p.is_private, "with --create: make the new repository private"},
        {"message", FLAG_TEXT, &p.message, "summary of the commit"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (p.is_private && !p.creates) FAIL(USAGE, "push: --private requires --create");
    p.target = a.words[1];
    return push(&p, a.words[0]);
}
