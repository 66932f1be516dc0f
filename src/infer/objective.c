// SPDX-License-Identifier: Apache-2.0
#include "infer/objective.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/torch_files.h"
#include "tokenizer/files/hf_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char from_config[] = "config.json", from_tokenizer[] = "tokenizer_config.json";

/* Sets a key that neither the run nor the command line has set. */
static enum status set_unless_set(struct config *c, const char *key, const char *value,
                                  const char *file)
{
    if (strcmp(config_key_origin(c, key), "default") != 0) return STATUS_OK;
    TRY(config_assign(c, key, value, file));
    return STATUS_OK;
}

static enum status read_config(struct config *c, const char *path)
{
    struct hf_usage usage;
    char number[32];
    TRY(hf_config_read_usage(path, &usage));
    const char *bidirectional = usage.is_diffusion ? "diffusion" : "masked";
    if (usage.is_causal)
        TRY(set_unless_set(c, "objective.name",
                           usage.is_causal == HF_CAUSAL_FALSE ? bidirectional : "causal",
                           from_config));
    if (usage.mlm_probability <= 0) return STATUS_OK;
    snprintf(number, sizeof number, "%.17g", usage.mlm_probability);
    TRY(set_unless_set(c, "objective.mask_probability", number, from_config));
    return STATUS_OK;
}

static enum status read_tokenizer_config(struct config *c, const char *path)
{
    struct json *root;
    enum status st = STATUS_OK;
    TRY(json_read(path, 16 << 20, &root));
    const char *mask = hf_json_token_name(root, "mask_token");
    if (mask) st = set_unless_set(c, "objective.mask_token", mask, from_tokenizer);
    json_free(root);
    return st;
}

static void describe(const struct config *c, bool has_config, struct text *text)
{
    const char *name = objective_kind_word(c->objective.name);
    const char *origin = config_key_origin(c, "objective.name");
    bool is_assumed = !has_config && !strcmp(origin, "default");
    if (c->objective.name == OBJECTIVE_causal && !is_assumed) return;
    if (!strcmp(origin, from_config))
        text_addf(text, "%s (config.json: is_causal = false%s)", name,
                  c->objective.name == OBJECTIVE_diffusion ? ", masked_diffusion = true" : "");
    else if (!strcmp(origin, "default"))
        text_addf(text, "%s (the default: no config.json)", name);
    else
        text_addf(text, "%s (%s: objective.name)", name, origin);
}

enum status objective_resolve(struct config *c, const char *path, const char *config_json,
                              struct text *text)
{
    char *folder = torch_files_folder(path);
    char *config = config_json ? heap_strdup(config_json) : file_join(folder, from_config);
    char *tokenizer = file_join(folder, from_tokenizer);
    enum status st = STATUS_OK;
    if (file_exists(config)) TRY_OUT(read_config(c, config));
    if (file_exists(tokenizer)) TRY_OUT(read_tokenizer_config(c, tokenizer));
    describe(c, file_exists(config), text);
out:
    free(folder), free(config), free(tokenizer);
    return st;
}
