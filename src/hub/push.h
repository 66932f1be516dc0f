/* push.h -- uploads the Hugging Face files of a folder to a repository of the Hub, as one commit.
 *
 * Files    Weights, configuration, tokenizer, and README.md if the folder has one; nothing else: no
 *          optimizer, state or configuration of the run.
 * Order    The Hub decides which files are large; those are uploaded by LFS, the others are part of
 *          the commit.  Files that the Hub has already are not sent again.
 * Errors   Those of client_send; CONFIG: no token, or HF_HUB_OFFLINE; MISSING: no such
 *          repository. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "hub/hub_path.h"
#include "hub/hub_settings.h"

struct push {
    const struct hub_settings *settings;
    const char *folder;
    const char *target;  /* hf://ORG/NAME[@BRANCH] */
    const char *message; /* of the commit */
    bool creates;        /* create the repository if it is missing, */
    bool is_private;     /* as a private one */
};

/* CONFIG: the target is not hf://ORG/NAME[@BRANCH], HF_TOKEN is missing, or HF_HUB_OFFLINE is set.
 * p->folder is not used. */
enum status push_check(const struct push *p);
/* Pushes the folder; *url becomes the URL of the commit, or of the branch if nothing changed. */
enum status push_run(const struct push *p, struct text *url);
