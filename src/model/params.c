// SPDX-License-Identifier: Apache-2.0
#include "model/params.h"

#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_ALIGN = 64, BLOCK_TENSORS = PARAM_mlp_down - PARAM_attn_norm + 1 };

const struct param params[PARAM_COUNT] = {
#define PARAM(id, name, ...) [PARAM_##id] = {name, __VA_ARGS__},
#include "model/llama.params"
#undef PARAM
};

static int64_t axis_size(const struct model_shape *m, char axis)
{
    switch (axis) {
    case 'V': return m->V;
    case 'D': return m->D;
    case 'Q': return (int64_t)m->H * m->K;
    case 'P': return (int64_t)m->G * m->K;
    case 'F': return m->F;
    }
    BUG("unknown axis in llama.params");
}

static void place(struct layout *l, const struct model_shape *m, enum param_id id, int layer)
{
    const struct param *p = &params[id];
    struct tensor_place *t = &l->tensors[l->num_tensors++];
    *t = (struct tensor_place){.id = id, .layer = layer, .rows = axis_size(m, p->axes[0])};
    t->columns = p->axes[1] ? axis_size(m, p->axes[1]) : 1;
    t->offset = l->elements;
    t->elements = (size_t)t->rows * (size_t)t->columns;
    l->elements += t->elements;
    l->parameters += (int64_t)t->elements;
}

/* Where unit_of has the unit that a tensor is of; NULL: no model has such a tensor. */
static int *unit_of(const struct layout *l, enum param_id id, int layer)
{
    bool in_block = id >= PARAM_attn_norm && id <= PARAM_mlp_down;
    if (in_block ? layer < 0 || layer >= l->num_blocks : layer != -1) return NULL;
    if (id == PARAM_embed) return &l->unit_of[0];
    return &l->unit_of[in_block ? 1 + layer : 1 + l->num_blocks];
}

int layout_unit(const struct layout *l, enum param_id id, int layer)
{
    const int *unit = unit_of(l, id, layer);
    return unit ? *unit : -1;
}

/* Tensors [first, last] of a layer are the next unit. */
static void add_unit(struct layout *l, const struct model_shape *m, enum param_id first,
                     enum param_id last, int layer, struct unit u, size_t multiple)
{
    u.first_tensor = l->num_tensors, u.offset = l->elements;
    for (enum param_id id = first; id <= last; id++) place(l, m, id, layer);
    u.num_tensors = l->num_tensors - u.first_tensor;
    l->elements = (l->elements + multiple - 1) / multiple * multiple;
    u.elements = l->elements - u.offset;
    *unit_of(l, first, layer) = l->num_units;
    l->units[l->num_units++] = u;
}

void layout_init_stages(struct layout *l, const struct model_shape *m, const struct stage *stages,
                        int num_stages, int parts)
{
    size_t multiple = (size_t)UNIT_ALIGN * (size_t)parts, units = (size_t)m->L + 2;
    *l = (struct layout){.num_blocks = m->L};
    l->tensors = heap(((size_t)m->L * BLOCK_TENSORS + 3) * sizeof *l->tensors);
    l->units = heap(units * sizeof *l->units);
    l->unit_of = heap(units * sizeof *l->unit_of);
    for (size_t i = 0; i < units; i++) l->unit_of[i] = -1;
    for (int i = 0; i < num_stages; i++) {
        const struct stage *s = &stages[i];
        const struct unit u = {.stage = i};
        if (s->embeds) add_unit(l, m, PARAM_embed, PARAM_embed, -1, u, multiple);
        for (int layer = s->begin; layer < s->end; layer++)
            add_unit(l, m, PARAM_attn_norm, PARAM_mlp_down, layer, u, multiple);
        if (!s->heads) continue;
        if (m->tied && layout_unit(l, PARAM_embed, -1) < 0)
            add_unit(l, m, PARAM_embed, PARAM_embed, -1, u, multiple);
        add_unit(l, m, PARAM_last_norm, m->tied ? PARAM_last_norm : PARAM_head, -1, u, multiple);
    }
}

struct stage stage_whole(const struct model_shape *m)
{
    return (struct stage){.end = m->L, .embeds = true, .heads = true};
}

void layout_init(struct layout *l, const struct model_shape *m, int parts)
{
    const struct stage whole = stage_whole(m);
    layout_init_stages(l, m, &whole, 1, parts);
}

void layout_release(struct layout *l)
{
    free(l->tensors);
    free(l->units);
    free(l->unit_of);
    *l = (struct layout){0};
}

static void add_piece(struct pieces *p, size_t *room, struct piece one)
{
    if (p->count == *room) p->all = heap_grow(p->all, *room *= 2, sizeof *p->all);
    p->all[p->count++] = one;
}

/* Elements [from, to) of the cut tensor `t` lie at `at`; where they are in the whole one. */
static void add_run(struct pieces *p, size_t *room, int tensor, const struct tensor_place *t,
                    const struct tensor_place *whole, int cut, int cuts, size_t from, size_t to,
                    size_t at)
{
    const struct param *kind = &params[t->id];
    struct piece run = {.tensor = tensor, .first = from, .count = to - from, .at = at};
    bool across = kind->tp && kind->axes[1] == kind->tp;
    /* Fewer heads of keys and values than cuts: neighbours have the same one. */
    size_t same = (size_t)cuts * t->elements / whole->elements;
    if (kind->tp && !across) run.first += (size_t)cut / same * t->elements;
    if (!across || t->columns == whole->columns) {
        add_piece(p, room, run);
        return;
    }
    size_t columns = (size_t)t->columns, all = (size_t)whole->columns;
    for (size_t i = from, n; i < to; i += n) { /* row by row */
        size_t row = i / columns, column = i % columns;
        n = columns - column < to - i ? columns - column : to - i;
        run.first = row * all + (size_t)cut * columns + column;
        run.count = n, run.at = at + i - from;
        add_piece(p, room, run);
    }
}

void pieces_init_cut(struct pieces *p, const struct layout *l, int part, int parts,
                     const struct layout *whole, int cut, int cuts)
{
    size_t room = (size_t)l->num_tensors;
    *p = (struct pieces){.all = heap(room * sizeof *p->all),
                         .elements = l->elements / (size_t)parts};
    BUG_IF(cut >= cuts);
    for (int i = 0; i < l->num_units; i++) {
        const struct unit *u = &l->units[i];
        size_t each = u->elements / (size_t)parts, begin = u->offset + (size_t)part * each;
        for (int t = u->first_tensor; t < u->first_tensor + u->num_tensors; t++) {
            const struct tensor_place *place = &l->tensors[t];
            const struct tensor_place *all = layout_find(whole, place->id, place->layer);
            size_t from = place->offset, to = from + place->elements;
            if (from < begin) from = begin;
            if (to > begin + each) to = begin + each;
            if (from < to)
                add_run(p, &room, (int)(all - whole->tensors), place, all, cut, cuts,
                        from - place->offset, to - place->offset,
                        u->offset / (size_t)parts + from - begin);
        }
    }
}

void pieces_init(struct pieces *p, const struct layout *l, int part, int parts)
{
    pieces_init_cut(p, l, part, parts, l, 0, 1);
}

void pieces_release(struct pieces *p)
{
    free(p->all);
    *p = (struct pieces){0};
}

const struct tensor_place *layout_find(const struct layout *l, enum param_id id, int layer)
{
    int unit = layout_unit(l, id, layer);
    if (unit < 0) return NULL;
    const struct unit *u = &l->units[unit];
    int at = (int)id - (int)l->tensors[u->first_tensor].id;
    return at < u->num_tensors ? &l->tensors[u->first_tensor + at] : NULL;
}

const struct tensor_place *layout_find_hf(const struct layout *l, const char *hf_name)
{
    static const char prefix[] = "model.layers.";
    long layer = -1;
    if (!strncmp(hf_name, prefix, sizeof prefix - 1) &&
        isdigit((unsigned char)hf_name[sizeof prefix - 1]))
        layer = strtol(hf_name + sizeof prefix - 1, NULL, 10);
    if (layer >= l->num_blocks) return NULL;
    for (enum param_id id = 0; id < PARAM_COUNT; id++) {
        const struct tensor_place *t = layout_find(l, id, (int)layer);
        char name[96];
        if (!t) continue;
        /* Compared with the name as it is written, so "layers.01" is not layer 1. */
        tensor_place_name(t, true, name);
        if (!strcmp(name, hf_name)) return t;
    }
    return NULL;
}

void tensor_place_name(const struct tensor_place *t, bool hf, char *name)
{
    const char *form = hf ? params[t->id].hf_name : params[t->id].name;
    const char *number = strstr(form, "%d");
    if (number)
        snprintf(name, 96, "%.*s%d%s", (int)(number - form), form, t->layer, number + 2);
    else
        snprintf(name, 96, "%s", form);
}

/* Two standard normals from one block of bits (Box-Muller). */
static void normals(uint64_t seed, uint64_t stream, uint64_t position, double pair[2])
{
    struct rng_block b = rng_bits(seed, RNG_INIT, stream, position);
    double u = (double)((uint64_t)b.bits[0] << 21 | b.bits[1] >> 11) * 0x1p-53;
    double radius = sqrt(-2.0 * log(1.0 - u));
    double angle =
        6.283185307179586 * 0x1p-53 * (double)((uint64_t)b.bits[2] << 21 | b.bits[3] >> 11);
    pair[0] = radius * cos(angle);
    pair[1] = radius * sin(angle);
}

static void fill_normal(const struct tensor_place *t, uint64_t seed, double std, double cut,
                        size_t first, size_t count, float *w)
{
    uint64_t stream = (uint64_t)(t->layer + 1) * PARAM_COUNT + t->id;
    int64_t end = (int64_t)(first + count), begin = (int64_t)first;
#pragma omp parallel for schedule(static)
    for (int64_t i = begin / 2 * 2; i < end; i += 2) {
        double pair[2];
        normals(seed, stream, (uint64_t)i, pair);
        for (int j = 0; j < 2; j++) {
            if (i + j < begin || i + j >= end) continue;
            /* Outside the cut another draw is taken, from a stream of its own an attempt. */
            for (uint64_t attempt = 1; fabs(pair[j]) > cut; attempt++) {
                double again[2];
                normals(seed, stream | attempt << 32, (uint64_t)(i + j), again);
                pair[j] = again[0];
            }
            w[i + j - begin] = (float)(pair[j] * std);
        }
    }
}

/* torchtitan cuts the 0.02 normals at +-2 absolute, a hundred deviations: not at all. */
void params_start_part(const struct tensor_place *t, const struct model_shape *m, uint64_t seed,
                       size_t first, size_t count, float *w)
{
    enum param_start start = params[t->id].start;
    /* A tied table serves as the head: unit variance would start it at absurd logits. */
    if (start == START_EMBED && m->tied) start = START_HEAD;
    double depth = 2.0 * (m->depth_init ? t->layer + 1 : m->L), std = m->init_std;
    if (std == 0) std = 0.02;
    if (m->init != INIT_TORCHTITAN && start != START_ONES) {
        bool scaled = t->id == PARAM_attn_out || t->id == PARAM_mlp_down;
        if (m->init == INIT_MEGATRON && scaled) std /= sqrt(2.0 * m->L);
        fill_normal(t, seed, std, INFINITY, first, count, w);
        return;
    }
    switch (start) {
    case START_ONES:
        for (size_t i = 0; i < count; i++) w[i] = 1;
        break;
    case START_EMBED: fill_normal(t, seed, 1, INFINITY, first, count, w); break;
    case START_INNER: fill_normal(t, seed, std, INFINITY, first, count, w); break;
    case START_DEPTH: fill_normal(t, seed, std / sqrt(depth), INFINITY, first, count, w); break;
    case START_HEAD: fill_normal(t, seed, 1 / sqrt(m->D), 3, first, count, w); break;
    }
}

/* Where it is not the host's f32, a run of elements at a time, which needs little memory. */
static enum status start_piece(const struct tensor_place *t, const struct piece *p,
                               const struct model_shape *m, uint64_t seed, const struct store *to)
{
    enum { MOST = 1 << 22 };
    if (store_plain(to)) {
        params_start_part(t, m, seed, p->first, p->count, store_plain(to) + p->at);
        return STATUS_OK;
    }
    float *run = heap((p->count < MOST ? p->count : MOST) * sizeof *run);
    enum status st = STATUS_OK;
    for (size_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < MOST ? p->count - done : MOST;
        params_start_part(t, m, seed, p->first + done, n, run);
        TRY_OUT(store_write(to, p->at + done, n, run));
    }
out:
    free(run);
    return st;
}

enum status params_start_store(const struct layout *l, const struct pieces *p,
                               const struct model_shape *m, uint64_t seed, const struct store *to)
{
    TRY(store_zero(to, p->elements)); /* the gaps between units */
    for (size_t i = 0; i < p->count; i++)
        TRY(start_piece(&l->tensors[p->all[i].tensor], &p->all[i], m, seed, to));
    return STATUS_OK;
}

enum status params_start(const struct layout *l, const struct pieces *p,
                         const struct model_shape *m, uint64_t seed, float *weights,
                         struct queue *on)
{
    struct store to = store_f32(weights, on);
    return params_start_store(l, p, m, seed, &to);
}
