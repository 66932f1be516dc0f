// SPDX-License-Identifier: Apache-2.0
#include "model/layout.h"

#include "base/status.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_OF_BLOCK PARAM_attn_norm
#define LAST_OF_BLOCK  PARAM_down_bias

enum { UNIT_ALIGN = 64, BLOCK_TENSORS = LAST_OF_BLOCK - FIRST_OF_BLOCK + 1 };

static int64_t axis_size(const struct model_shape *m, char axis)
{
    switch (axis) {
    case 'V': return model_shape_vocab(m, m->slice).rows;
    case 'D': return m->D;
    case 'Q': return (int64_t)m->H * m->K;
    case 'P': return (int64_t)m->G * m->K;
    case 'F': return m->F;
    case 'K': return m->K;
    }
    BUG("unknown axis in llama.params");
}

/* Whether the model has that weight in each block, if `id` is of a block. */
static bool has_tensor(const struct model_shape *m, enum param_id id)
{
    switch (id) {
    case PARAM_attn_norm:
    case PARAM_mlp_norm: return !m->post_norm;
    case PARAM_q_norm:
    case PARAM_k_norm: return m->qk_norm && !m->post_norm;
    case PARAM_post_attn_norm:
    case PARAM_post_mlp_norm:
    case PARAM_wide_q_norm:
    case PARAM_wide_k_norm: return m->post_norm;
    case PARAM_q_bias:
    case PARAM_k_bias:
    case PARAM_v_bias: return m->qkv_bias;
    case PARAM_out_bias: return m->out_bias;
    case PARAM_gate_bias:
    case PARAM_up_bias:
    case PARAM_down_bias: return m->mlp_bias;
    default: return true;
    }
}

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Whether the tensor forms one matrix with the tensor before. */
static bool continues_matrix(enum param_id id)
{
    return id == PARAM_attn_k || id == PARAM_attn_v || id == PARAM_mlp_up || id == PARAM_k_bias ||
           id == PARAM_v_bias || id == PARAM_up_bias;
}

/* A layout as it is filled in. */
struct layout_builder {
    struct layout *l;
    const struct model_shape *m;
    size_t align, multiple; /* elements that tensors are aligned to, and units padded to */
    int stage;
};

static void add_tensor(const struct layout_builder *b, enum param_id id, int layer)
{
    struct layout *l = b->l;
    const struct model_shape *m = b->m;
    const struct param *p = &params[id];
    if (!has_tensor(m, id)) return;
    if (!continues_matrix(id)) l->elements = round_up(l->elements, b->align);
    struct tensor_slot *t = &l->tensors[l->num_tensors++];
    *t = (struct tensor_slot){.id = id, .layer = layer, .rows = axis_size(m, p->axes[0])};
    t->columns = p->axes[1] ? axis_size(m, p->axes[1]) : 1;
    t->offset = l->elements;
    t->elements = (size_t)t->rows * (size_t)t->columns;
    l->elements += t->elements;
    l->parameters += (int64_t)t->elements;
}

/* The entry of l->unit_of for a tensor's unit; NULL: no model has such a tensor. */
static int *unit_entry(const struct layout *l, enum param_id id, int layer)
{
    bool in_block = id >= FIRST_OF_BLOCK && id <= LAST_OF_BLOCK;
    if (in_block ? layer < 0 || layer >= l->num_blocks : layer != -1) return NULL;
    if (id == PARAM_embed) return &l->unit_of[0];
    return &l->unit_of[in_block ? 1 + layer : 1 + l->num_blocks];
}

int layout_unit(const struct layout *l, enum param_id id, int layer)
{
    const int *unit = unit_entry(l, id, layer);
    return unit ? *unit : -1;
}

/* Appends the unit of tensors [first, last] of a layer. */
static void add_unit(const struct layout_builder *b, enum param_id first, enum param_id last,
                     int layer)
{
    struct layout *l = b->l;
    struct unit u = {.stage = b->stage, .first_tensor = l->num_tensors, .offset = l->elements};
    for (enum param_id id = first; id <= last; id++) add_tensor(b, id, layer);
    u.num_tensors = l->num_tensors - u.first_tensor;
    l->elements = round_up(l->elements, b->multiple);
    u.elements = l->elements - u.offset;
    *unit_entry(l, first, layer) = l->num_units;
    l->units[l->num_units++] = u;
}

void layout_init_part(struct layout *l, const struct model_shape *m, const struct model_part *part)
{
    size_t align = part->align ? part->align : UNIT_ALIGN;
    struct layout_builder b = {l, m, part->align ? align : 1, align * (size_t)part->num_shards, 0};
    size_t units = (size_t)m->L + 2;
    *l = (struct layout){.num_blocks = m->L};
    l->tensors = heap(((size_t)m->L * BLOCK_TENSORS + 3) * sizeof *l->tensors);
    l->units = heap(units * sizeof *l->units);
    l->unit_of = heap(units * sizeof *l->unit_of);
    for (size_t i = 0; i < units; i++) l->unit_of[i] = -1;
    for (int i = 0; i < part->num_stages; i++) {
        const struct stage *s = &part->stages[i];
        b.stage = i;
        if (s->embeds) add_unit(&b, PARAM_embed, PARAM_embed, -1);
        for (int layer = s->begin; layer < s->end; layer++)
            add_unit(&b, FIRST_OF_BLOCK, LAST_OF_BLOCK, layer);
        if (!s->heads) continue;
        if (m->tied && layout_unit(l, PARAM_embed, -1) < 0)
            add_unit(&b, PARAM_embed, PARAM_embed, -1);
        add_unit(&b, PARAM_last_norm, m->tied ? PARAM_last_norm : PARAM_head, -1);
    }
}

struct stage layout_whole_stage(const struct model_shape *m)
{
    return (struct stage){.end = m->L, .embeds = true, .heads = true};
}

void layout_init(struct layout *l, const struct model_shape *m, int num_shards)
{
    const struct stage whole = layout_whole_stage(m);
    layout_init_part(l, m, &(struct model_part){&whole, 1, num_shards, 0});
}

void layout_release(struct layout *l)
{
    free(l->tensors);
    free(l->units);
    free(l->unit_of);
    *l = (struct layout){0};
}

size_t layout_elements(const struct layout *l, uint32_t kinds)
{
    size_t elements = 0;
    for (int i = 0; i < l->num_tensors; i++)
        if (param_set_has(kinds, l->tensors[i].id)) elements += l->tensors[i].elements;
    return elements;
}

const struct tensor_slot *layout_find(const struct layout *l, enum param_id id, int layer)
{
    int unit = layout_unit(l, id, layer);
    if (unit < 0) return NULL;
    const struct unit *u = &l->units[unit];
    for (int i = u->first_tensor; i < u->first_tensor + u->num_tensors; i++)
        if (l->tensors[i].id == id) return &l->tensors[i];
    return NULL;
}

const struct tensor_slot *layout_find_hf(const struct layout *l, const char *hf_name)
{
    static const char prefix[] = "model.layers.";
    long layer = -1;
    if (!strncmp(hf_name, prefix, sizeof prefix - 1) &&
        isdigit((unsigned char)hf_name[sizeof prefix - 1]))
        layer = strtol(hf_name + sizeof prefix - 1, NULL, 10);
    if (layer >= l->num_blocks) return NULL;
    for (enum param_id id = 0; id < PARAM_COUNT; id++) {
        const struct tensor_slot *t = layout_find(l, id, (int)layer);
        char name[96];
        if (!t) continue;
        /* Compare whole names, so that "layers.01" is not taken for layer 1. */
        layout_tensor_name(t, true, name);
        if (!strcmp(name, hf_name)) return t;
    }
    return NULL;
}

void layout_tensor_name(const struct tensor_slot *t, bool hf, char *name)
{
    const char *format = hf ? params[t->id].hf_name : params[t->id].name;
    const char *number = strstr(format, "%d");
    if (number)
        snprintf(name, 96, "%.*s%d%s", (int)(number - format), format, t->layer, number + 2);
    else
        snprintf(name, 96, "%s", format);
}
