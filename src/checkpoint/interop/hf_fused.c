// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_fused.h"

#include "base/text.h"
#include "checkpoint/interop/weight_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fused_matrix {
    const char *name;
    enum param_id first;
    int count;
    const char *parts[HF_FUSED_PARTS];
    const char *keys; /* that determine their rows */
} matrices[] = {
    {".qkv_proj.",
     PARAM_attn_q,
     3,
     {".q_proj.", ".k_proj.", ".v_proj."},
     "model.n_heads, model.n_kv_heads and model.head_dim"},
    {".gate_up_proj.", PARAM_mlp_gate, 2, {".gate_proj.", ".up_proj."}, "model.ffn_hidden"},
};
enum { NUM_MATRICES = sizeof matrices / sizeof *matrices };

static const struct fused_matrix *find_first(enum param_id id)
{
    for (size_t i = 0; i < NUM_MATRICES; i++)
        if (matrices[i].first == id) return &matrices[i];
    return NULL;
}

int hf_fused_count(enum param_id id)
{
    const struct fused_matrix *f = find_first(id);
    return f ? f->count : 1;
}

/* `name` with `from`, which it contains at `at`, replaced by `to`. */
static char *replaced(const char *name, const char *at, const char *from, const char *to)
{
    struct text out = {0};
    text_add(&out, name, (size_t)(at - name));
    text_addf(&out, "%s%s", to, at + strlen(from));
    return out.data;
}

void hf_fused_rename(enum param_id id, char *name, size_t size)
{
    const struct fused_matrix *f = find_first(id);
    const char *at = f ? strstr(name, f->parts[0]) : NULL;
    if (!at) return;
    char *fused = replaced(name, at, f->parts[0], f->name);
    snprintf(name, size, "%s", fused);
    free(fused);
}

static void part_rows(const struct fused_matrix *f, const struct model_shape *s, int64_t *rows)
{
    const int64_t Q = (int64_t)s->H * s->K, P = (int64_t)s->G * s->K;
    for (int i = 0; i < f->count; i++) rows[i] = f->first == PARAM_mlp_gate ? s->F : i ? P : Q;
}

/* Scales of a tensor, of each row or of blocks of rows. */
static enum status split_scales(struct hf_fused_split *s, const char *name, int64_t rows,
                                int64_t total)
{
    enum { BLOCK = 128 };
    bool fits = rows * BLOCK == total;
    for (int i = 0; i < s->count; i++) fits &= s->parts[i].rows % BLOCK == 0;
    if (!fits && rows > 1)
        FAIL(DATA, "tensor %s has %lld rows, which cannot be divided among the parts of the matrix",
             name, (long long)rows);
    for (int i = 0; i < s->count; i++)
        if (rows > 1)
            s->parts[i].row /= BLOCK, s->parts[i].rows /= BLOCK;
        else
            s->parts[i].row = 0, s->parts[i].rows = rows;
    return STATUS_OK;
}

enum status hf_fused_split(struct hf_fused_split *s, const char *name, int64_t rows,
                           const struct model_shape *shape)
{
    const struct fused_matrix *f = matrices;
    int64_t each[HF_FUSED_PARTS], total = 0;
    size_t len;
    *s = (struct hf_fused_split){0};
    while (f < matrices + NUM_MATRICES && !strstr(name, f->name)) f++;
    if (f == matrices + NUM_MATRICES) return STATUS_OK;
    part_rows(f, shape, each);
    for (; s->count < f->count; total += each[s->count++])
        s->parts[s->count] = (struct hf_fused_part){
            replaced(name, strstr(name, f->name), f->name, f->parts[s->count]), total,
            each[s->count]};
    if (rows == total) return STATUS_OK;
    if (weight_scale_is_name(name, &len)) return split_scales(s, name, rows, total);
    FAIL(CONFIG, "tensor %s has %lld rows, expected %lld: set %s to fit", name, (long long)rows,
         (long long)total, f->keys);
}

void hf_fused_split_release(struct hf_fused_split *s)
{
    for (int i = 0; i < s->count; i++) free(s->parts[i].name);
    *s = (struct hf_fused_split){0};
}
