// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_name.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* If `name` starts with `prefix`, skips it. */
static bool skip_prefix(const char **name, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*name, prefix, len)) return false;
    *name += len;
    return true;
}

/* Skips a layer number.  Leading zeros are rejected, so that no two names mean the same tensor. */
static bool parse_layer(const char **name, int *layer)
{
    const char *at = *name;
    if (!isdigit((unsigned char)*at) || (*at == '0' && at[1] != '.')) return false;
    for (*layer = 0; isdigit((unsigned char)*at); at++) {
        if (*layer > 1000000) return false;
        *layer = 10 * *layer + *at - '0';
    }
    *name = at;
    return true;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = strlen(name), n = strlen(suffix);
    return len >= n && !strcmp(name + len - n, suffix);
}

/* torchtitan's newer names, and those of llama.params. */
static const char *const renamed[][2] = {
    {"attention.qkv_linear.wq.weight", "attention.wq.weight"},
    {"attention.qkv_linear.wk.weight", "attention.wk.weight"},
    {"attention.qkv_linear.wv.weight", "attention.wv.weight"},
    {"lm_head.weight", "output.weight"},
};
enum { NUM_RENAMED = sizeof renamed / sizeof *renamed };

static const char *to_older_name(const char *name)
{
    for (size_t i = 0; i < NUM_RENAMED; i++)
        if (!strcmp(name, renamed[i][0])) return renamed[i][1];
    return name;
}

char *tensor_name_torchtitan(const char *name)
{
    struct text out = {0};
    for (size_t i = 0; i < NUM_RENAMED && !out.len; i++)
        if (ends_with(name, renamed[i][1]))
            text_addf(&out, "%.*s%s", (int)(strlen(name) - strlen(renamed[i][1])), name,
                      renamed[i][0]);
    if (!out.len) text_adds(&out, name);
    return out.data;
}

char *tensor_name_unwrap(const char *name)
{
    static const char *const wrappers[] = {"_orig_mod.", "module.", "_checkpoint_wrapped_module.",
                                           "_fsdp_wrapped_module."};
    struct text out = {0};
    if (!skip_prefix(&name, "state_dict.")) skip_prefix(&name, "model_state_dict.");
    for (text_adds(&out, ""); *name;) {
        bool is_wrapper = false;
        for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers && !is_wrapper; i++)
            is_wrapper = skip_prefix(&name, wrappers[i]);
        size_t len = is_wrapper ? 0 : strcspn(name, ".");
        if (!is_wrapper) len += name[len] == '.';
        text_add(&out, name, len);
        name += len;
    }
    return out.data;
}

/* What follows a weight's name. */
static const char *const suffixes[] = {
    [TENSOR_WEIGHT] = "", [TENSOR_EXP_AVG] = ".exp_avg", [TENSOR_EXP_AVG_SQ] = ".exp_avg_sq"};

const char *tensor_name_suffix(enum tensor_kind kind) { return suffixes[kind]; }

enum tensor_kind tensor_name_kind(const char *name)
{
    for (int p = 1; p < 3; p++)
        if (ends_with(name, suffixes[p])) return (enum tensor_kind)p;
    return TENSOR_WEIGHT;
}

static bool parse_stem(const char *name, struct tensor_name *out)
{
    skip_prefix(&name, "model.");
    if (skip_prefix(&name, "layers.")) {
        if (!parse_layer(&name, &out->layer) || *name++ != '.') return false;
    }
    for (int id = 0; id < PARAM_COUNT; id++) {
        const char *form = params[id].name;
        if (skip_prefix(&form, "layers.%d.") != (out->layer >= 0) ||
            strcmp(to_older_name(name), form))
            continue;
        out->id = (enum param_id)id;
        return true;
    }
    return false;
}

bool tensor_name_parse(const char *name, struct tensor_name *out)
{
    bool moment = skip_prefix(&name, "optimizer.state.");
    char *stem = tensor_name_unwrap(name);
    *out = (struct tensor_name){.layer = -1};
    if (moment) out->kind = tensor_name_kind(stem);
    stem[strlen(stem) - strlen(suffixes[out->kind])] = '\0';
    bool found = (out->kind != TENSOR_WEIGHT) == moment && parse_stem(stem, out);
    free(stem);
    return found;
}

bool tensor_name_is_ignored(const char *name)
{
    static const char *const prefixes[] = {"optimizer.", "lr_scheduler.", "train_state.",
                                           "dataloader."};
    skip_prefix(&name, "model.");
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) return true;
    return !strcmp(name, "rope.freqs") || !strcmp(name, "freqs_cis") ||
           ends_with(name, "inner_attention.rope.freqs");
}

bool tensor_name_matches(const char *form, const char *name, int *layer)
{
    const char *number = strstr(form, "%d");
    size_t front = number ? (size_t)(number - form) : 0;
    *layer = -1;
    if (!number) return !strcmp(form, name);
    if (strncmp(form, name, front)) return false;
    name += front;
    return parse_layer(&name, layer) && !strcmp(number + 2, name);
}

bool tensor_name_parse_hf(const char *name, struct tensor_name *out)
{
    char *stem = tensor_name_unwrap(name);
    bool found = false;
    *out = (struct tensor_name){0};
    for (int id = 0; id < PARAM_COUNT && !found; id++) {
        found = tensor_name_matches(params[id].hf_name, stem, &out->layer);
        if (found) out->id = (enum param_id)id;
    }
    free(stem);
    return found;
}

enum param_id tensor_name_hf_id(enum param_id id)
{
    int first = 0;
    while (strcmp(params[first].hf_name, params[id].hf_name)) first++;
    return (enum param_id)first;
}

bool tensor_name_is_ignored_hf(const char *name)
{
    return strstr(name, "rotary_emb.inv_freq") != NULL;
}
