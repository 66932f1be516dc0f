// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_origins.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

bool tensor_origins_excludes(const struct option_list *exclude, const char *name)
{
    for (size_t i = 0; exclude && i < exclude->count; i++)
        if (!fnmatch(exclude->items[i], name, 0)) return true;
    return false;
}

enum status tensor_origins_check_excluded(const struct option_list *exclude, const struct layout *l)
{
    static const char *const others[] = {"optimizer", "lr_scheduler", "dataloader",
                                         "lm_head.weight"}; /* also of a tied model's origin */
    for (size_t i = 0; exclude && i < exclude->count; i++) {
        const struct option_list one = {&exclude->items[i], 1};
        bool matches = false;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            matches |= tensor_origins_excludes(&one, others[k]);
        for (int t = 0; t < l->num_tensors && !matches; t++) {
            char name[96];
            layout_tensor_name(&l->tensors[t], true, name);
            matches = tensor_origins_excludes(&one, name);
        }
        if (!matches)
            FAIL(CONFIG,
                 "checkpoint.exclude_from_loading: \"%s\" matches no tensor of the model: expected "
                 "optimizer, lr_scheduler, dataloader, or names such as "
                 "\"model.layers.0.mlp.up_proj.weight\" or \"model.layers.*\"",
                 exclude->items[i]);
    }
    return STATUS_OK;
}

/* The keys that determine the size of an axis of llama.params. */
static const char *keys_of(char axis)
{
    switch (axis) {
    case 'V': return "model.vocab_size";
    case 'D': return "model.dim";
    case 'Q': return "model.n_heads and model.head_dim";
    case 'P': return "model.n_kv_heads and model.head_dim";
    case 'F': return "model.ffn_hidden";
    case 'K': return "model.head_dim";
    }
    BUG("unknown axis in llama.params");
}

static enum status check_shape(const struct model_files *files, const struct tensor_slot *t,
                               const struct safetensors_tensor *have)
{
    const struct param *p = &params[t->id];
    int dims = p->axes[1] ? 2 : 1;
    long long rows = (long long)have->shape[0], columns = have->num_dims > 1 ? have->shape[1] : 1;
    if (have->num_dims != dims)
        FAIL(DATA, "%s: tensor %s has %d dimensions, expected %d", files->folder, have->name,
             have->num_dims, dims);
    if (rows == t->rows && columns == t->columns) return STATUS_OK;
    bool by_rows = rows != t->rows;
    FAIL(CONFIG,
         "%s: tensor %s has shape [%lld, %lld], expected [%lld, %lld]: set %s to fit, or "
         "leave it out with checkpoint.exclude_from_loading",
         files->folder, have->name, rows, columns, (long long)t->rows, (long long)t->columns,
         keys_of(by_rows ? p->axes[0] : p->axes[1]));
}

static enum status open_named(struct tensor_origins *o, int i, const struct tensor_slot *t,
                              const char *suffix, bool *found)
{
    struct model_tensor have;
    char stem[96], name[160];
    layout_tensor_name(t, true, stem);
    snprintf(name, sizeof name, "%s%s", stem, suffix);
    *found = model_files_named(o->files, name, &have);
    if (!*found) return STATUS_OK;
    TRY(check_shape(o->files, t, &have.is));
    TRY(model_files_open_scale(o->files, &have.reader));
    o->readers[i] = have.reader;
    return STATUS_OK;
}

static enum status find_origin(struct tensor_origins *o, int i, const char *suffix,
                               const struct tensor_rules *rules)
{
    const struct tensor_slot *t = &o->layout->tensors[i];
    struct tensor_slot embedding = *t;
    char name[96];
    bool found;
    layout_tensor_name(t, true, name);
    o->of[i] = ORIGIN_EXCLUDED;
    if (param_set_has(rules->omitted, t->id)) return STATUS_OK;
    if (tensor_origins_excludes(rules->exclude, name)) return STATUS_OK;
    o->of[i] = ORIGIN_FILE;
    TRY(open_named(o, i, t, suffix, &found));
    if (found) return STATUS_OK;
    embedding.id = PARAM_embed;
    if (t->id == PARAM_head && rules->tied) TRY(open_named(o, i, &embedding, suffix, &found));
    o->of[i] = found ? ORIGIN_EMBEDDING : ORIGIN_MISSING;
    if (found || rules->partial) return STATUS_OK;
    if (*suffix)
        FAIL(CONFIG,
             "%s: %s%s is missing, so this is not the whole state of AdamW; to start with empty "
             "moments, set checkpoint.exclude_from_loading = [\"optimizer\"]",
             o->files->folder, name, suffix);
    FAIL(CONFIG,
         "%s: tensor %s is missing; to start from its initial values, add it to "
         "checkpoint.exclude_from_loading",
         o->files->folder, name);
}

enum status tensor_origins_find(struct tensor_origins *o, const struct model_files *files,
                                const struct layout *l, const char *suffix,
                                const struct tensor_rules *rules)
{
    size_t count = (size_t)l->num_tensors;
    enum status st = STATUS_OK;
    *o = (struct tensor_origins){l, files, heap(count * sizeof *o->of),
                                 heap(count * sizeof *o->readers)};
    for (int i = 0; i < l->num_tensors; i++) TRY_OUT(find_origin(o, i, suffix, rules));
    return STATUS_OK;
out:
    tensor_origins_release(o);
    return st;
}

void tensor_origins_release(struct tensor_origins *o)
{
    free(o->of), free(o->readers);
    *o = (struct tensor_origins){0};
}

int tensor_origins_count(const struct tensor_origins *o, enum tensor_origin origin)
{
    int count = 0;
    for (int i = 0; i < o->layout->num_tensors; i++) count += o->of[i] == origin;
    return count;
}

/* The number of tensors from the i-th on that are one whole block of that origin; 0: they are
 * not. */
static int whole_block(const struct tensor_origins *o, enum tensor_origin origin, int i)
{
    const struct tensor_slot *t = &o->layout->tensors[i];
    int n = 0;
    if (t->layer < 0 || (i && t[-1].layer == t->layer)) return 0;
    for (; i + n < o->layout->num_tensors && t[n].layer == t->layer; n++)
        if (o->of[i + n] != origin) return 0;
    return n;
}

void tensor_origins_list(const struct tensor_origins *o, enum tensor_origin origin,
                         struct text *out)
{
    const char *separator = "";
    for (int i = 0, n; i < o->layout->num_tensors; i += n ? n : 1) {
        const struct tensor_slot *t = &o->layout->tensors[i];
        int more;
        n = whole_block(o, origin, i);
        if (n) {
            while (i + n < o->layout->num_tensors && (more = whole_block(o, origin, i + n)))
                n += more;
            text_addf(out, "%smodel.layers.%d", separator, t->layer);
            if (t[n - 1].layer > t->layer) text_addf(out, "-%d", t[n - 1].layer);
            text_adds(out, ".*");
        } else if (o->of[i] == origin) {
            char name[96];
            layout_tensor_name(t, true, name);
            text_addf(out, "%s%s", separator, name);
        } else {
            continue;
        }
        separator = ", ";
    }
}
