// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_shard.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Which of its dimensions tensor parallelism splits; -1: none. */
static int split_axis(const struct megatron_tensor *n)
{
    const struct tensor_name first = megatron_tensor_first(n, 0);
    const struct param *p = &params[first.id];
    if (!p->tp) return -1;
    return p->axes[1] == p->tp;
}

/* Adds the rows that the piece has of either half. */
static enum status add_halves(struct tensor_slices *slices, const struct megatron_sizes *z,
                              const struct megatron_shard *s, const struct file_slice *piece)
{
    int64_t half = s->rows / 2, end = piece->row + piece->tensor->shape[0];
    if (s->rows % 2 || half * s->num_tp != z->F)
        FAIL(DATA, "%s: %s has %lld rows on each of %d ranks, expected %lld in all", slices->path,
             piece->tensor->name, (long long)s->rows, s->num_tp, (long long)(2 * z->F));
    for (int i = 0; i < 2; i++) {
        int64_t from = piece->row > i * half ? piece->row : i * half;
        int64_t to = end < (i + 1) * half ? end : (i + 1) * half;
        if (from >= to) continue;
        struct torch_tensor part =
            megatron_tensor_part(piece->tensor, from - piece->row, to - from);
        const struct file_slice slice = {&part, piece->map, from + s->tp * half + i * (z->F - half),
                                         piece->column};
        TRY(megatron_tensor_add(slices, z, &s->tensor, s->layer, &slice));
    }
    return STATUS_OK;
}

enum status megatron_shard_add(struct tensor_slices *slices, const struct megatron_sizes *z,
                               const struct megatron_shard *s, const struct file_slice *piece)
{
    int axis = split_axis(&s->tensor);
    struct file_slice slice = *piece;
    if (axis < 0 && s->tp) return STATUS_OK; /* the ranks' copies are equal */
    if (axis == 0 && megatron_tensor_has_halves(&s->tensor) && s->num_tp > 1)
        return add_halves(slices, z, s, piece);
    if (axis == 0) slice.row += s->rows * s->tp;
    if (axis > 0) slice.column += s->columns * s->tp;
    TRY(megatron_tensor_add(slices, z, &s->tensor, s->layer, &slice));
    return STATUS_OK;
}

struct torch_tensor megatron_shard_next_flat(struct torch_tensor *rest, int dims, int64_t columns,
                                             int64_t at)
{
    int64_t column = at % columns, count = rest->shape[0];
    int64_t rows = column || count < columns ? 1 : count / columns;
    int64_t width = column ? columns - column : columns;
    if (rows == 1 && width > count) width = count;
    struct torch_tensor one = {.name = rest->name,
                               .dtype = rest->dtype,
                               .num_dims = dims,
                               .shape = {rows, width},
                               .strides = {dims > 1 ? columns : 1, 1},
                               .data = rest->data};
    rest->shape[0] -= rows * width;
    rest->data += (size_t)(rows * width) * safetensors_dtype_bytes(rest->dtype);
    return one;
}

enum status megatron_shard_add_flat(struct tensor_slices *slices, const struct megatron_sizes *z,
                                    const struct megatron_shard *s, const struct file_slice *piece)
{
    struct torch_tensor rest = *piece->tensor;
    int64_t count = rest.shape[0];
    if (rest.num_dims != 1 || (count > 1 && rest.strides[0] != 1))
        FAIL(DATA, "%s: %s: expected contiguous elements", slices->path, rest.name);
    while (rest.shape[0]) {
        int64_t at = piece->row + count - rest.shape[0];
        struct torch_tensor one =
            megatron_shard_next_flat(&rest, megatron_tensor_dims(&s->tensor), s->columns, at);
        const struct file_slice slice = {&one, piece->map, at / s->columns, at % s->columns};
        TRY(megatron_shard_add(slices, z, s, &slice));
    }
    return STATUS_OK;
}

int64_t megatron_shard_align(int64_t at)
{
    enum { ALIGN = 64 };
    return at > INT64_MAX - ALIGN ? INT64_MAX : (at + ALIGN - 1) / ALIGN * ALIGN;
}

/* Sizes of the whole tensor, with the vocabulary's padding. */
static int64_t axis_size(const struct megatron_state *m, char axis)
{
    const struct model_shape *s = &m->shape;
    switch (axis) {
    case 'V': return m->padded_vocab;
    case 'D': return s->D;
    case 'Q': return (int64_t)s->H * s->K;
    case 'F': return s->F;
    case 'K': return s->K;
    default: return 1;
    }
}

/* What each parameter of a layer depends on. */
struct layer_param {
    const char *name;
    enum { ALWAYS, FUSED, NOT_FUSED, QK_NORM, QKV_BIAS, OUT_BIAS, MLP_BIAS } when;
};

/* In the order in which megatron-core's modules register them. */
static const struct layer_param layer_params[] = {
    {"input_layernorm.weight", NOT_FUSED},
    {"self_attention.linear_proj.weight", ALWAYS},
    {"self_attention.linear_proj.bias", OUT_BIAS},
    {"self_attention.linear_qkv.layer_norm_weight", FUSED},
    {"self_attention.linear_qkv.weight", ALWAYS},
    {"self_attention.linear_qkv.bias", QKV_BIAS},
    {"self_attention.q_layernorm.weight", QK_NORM},
    {"self_attention.k_layernorm.weight", QK_NORM},
    {"pre_mlp_layernorm.weight", NOT_FUSED},
    {"mlp.linear_fc1.layer_norm_weight", FUSED},
    {"mlp.linear_fc1.weight", ALWAYS},
    {"mlp.linear_fc1.bias", MLP_BIAS},
    {"mlp.linear_fc2.weight", ALWAYS},
    {"mlp.linear_fc2.bias", MLP_BIAS},
};
enum { LAYER_PARAMS = sizeof layer_params / sizeof *layer_params };

static bool exists(const struct layer_param *p, const struct model_shape *s, bool has_fused_norms)
{
    switch (p->when) {
    case FUSED: return has_fused_norms;
    case NOT_FUSED: return !has_fused_norms;
    case QK_NORM: return s->qk_norm;
    case QKV_BIAS: return s->qkv_bias;
    case OUT_BIAS: return s->out_bias;
    case MLP_BIAS: return s->mlp_bias;
    default: return true;
    }
}

struct lister {
    struct megatron_shards *shards;
    const struct megatron_state *state;
    const struct megatron_sizes *sizes;
    const struct megatron_chunk *chunk;
};

/* Adds the parameter of that name; layer -1: of none. */
static enum status list_param(const struct lister *l, const char *name, int layer)
{
    struct megatron_shard *s = &l->shards->all[l->shards->count++];
    *s = (struct megatron_shard){
        .layer = layer, .tp = l->chunk->tp, .num_tp = l->state->tp, .columns = 1};
    if (layer < 0)
        snprintf(s->name, sizeof s->name, "%s", name);
    else
        snprintf(s->name, sizeof s->name, "decoder.layers.%d.%s", layer, name);
    BUG_IF(!megatron_tensor_parse(s->name, &s->tensor));
    const struct tensor_name first = megatron_tensor_first(&s->tensor, layer);
    const char *axes = params[first.id].axes;
    int axis = split_axis(&s->tensor);
    int64_t fused = megatron_tensor_rows(&s->tensor, l->sizes), elements;
    s->rows = fused ? fused : axis_size(l->state, axes[0]);
    if (axes[1]) s->columns = axis_size(l->state, axes[1]);
    int64_t *split = axis == 0 ? &s->rows : &s->columns;
    if (axis >= 0 && *split % s->num_tp)
        FAIL(UNSUPPORTED, "%s is not a multiple of %d tensor-parallel ranks", s->name, s->num_tp);
    if (axis >= 0) *split /= s->num_tp;
    if (s->rows < 1 || s->columns < 1 || __builtin_mul_overflow(s->rows, s->columns, &elements))
        FAIL(DATA, "%s has an invalid shape", s->name);
    return STATUS_OK;
}

static enum status list_layer(const struct lister *l, int layer)
{
    for (int i = 0; i < LAYER_PARAMS; i++)
        if (exists(&layer_params[i], &l->state->shape, l->chunk->has_fused_norms))
            TRY(list_param(l, layer_params[i].name, layer));
    return STATUS_OK;
}

/* Layers of all ranks' chunk c precede those of chunk c + 1. */
enum status megatron_shards_list(struct megatron_shards *s, const struct megatron_state *m,
                                 const struct megatron_sizes *z, const struct megatron_chunk *c)
{
    const struct lister l = {s, m, z, c};
    int64_t stages = (int64_t)m->pp * m->chunks, stage = (int64_t)c->chunk * m->pp + c->pp;
    *s = (struct megatron_shards){0};
    if (z->L > MEGATRON_MAX_LAYERS || z->L % stages || z->G % m->tp)
        FAIL(UNSUPPORTED, "%lld layers on %lld pipeline stages, %lld key/value heads on %d ranks",
             (long long)z->L, (long long)stages, (long long)z->G, m->tp);
    int each = (int)(z->L / stages);
    s->all = heap_grow(NULL, (size_t)each * LAYER_PARAMS + 3, sizeof *s->all);
    if (!stage) TRY(list_param(&l, "embedding.word_embeddings.weight", -1));
    for (int k = 0; k < each; k++) TRY(list_layer(&l, (int)stage * each + k));
    if (stage < stages - 1) return STATUS_OK;
    TRY(list_param(&l, "decoder.final_layernorm.weight", -1));
    if (m->shape.tied && !stage) return STATUS_OK;
    TRY(list_param(&l, "output_layer.weight", -1));
    s->all[s->count - 1].is_copy = m->shape.tied;
    return STATUS_OK;
}

void megatron_shards_release(struct megatron_shards *s)
{
    free(s->all);
    *s = (struct megatron_shards){0};
}

/* bfloat16 has 8 bits of precision; float16's subnormals are multiples of 2^-24. */
static bool are_close(const float *a, const float *b, size_t count, enum safetensors_dtype dtype)
{
    float least = dtype == SAFETENSORS_F16 ? 0x1p-24f : 1e-38f;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= ldexpf(fabsf(b[i]), -7) + least)) return false;
    return true;
}

enum status megatron_shard_check_copies(const struct tensor_slices *copies,
                                        const struct tensor_slices *model)
{
    enum { EACH = 64, PLACES = 3 };
    for (size_t i = 0; i < copies->count; i++) {
        const struct sliced_tensor *copy = &copies->tensors[i];
        const struct sliced_tensor *weight = tensor_slices_find(model, &copy->name);
        float a[EACH], b[EACH];
        bool fits = weight && weight->count && weight->rows == copy->rows &&
                    weight->columns == copy->columns;
        size_t elements = (size_t)(copy->rows * copy->columns);
        size_t n = elements < EACH ? elements : EACH;
        for (size_t k = 0; k < PLACES && fits; k++) {
            size_t first = (elements - n) / (PLACES - 1) * k;
            TRY(tensor_slices_read(copies, copy, first, n, a));
            TRY(tensor_slices_read(model, weight, first, n, b));
            fits = are_close(a, b, n, weight->all->dtype);
        }
        if (fits) continue;
        TRY(tensor_slices_check(copy)); /* what cannot be read is zeros */
        if (weight) TRY(tensor_slices_check(weight));
        FAIL(UNSUPPORTED, "%s: the optimizer's float32 copy of %s is not the model's weight",
             copies->path, copy->hf_name);
    }
    return STATUS_OK;
}

void megatron_shard_warn_of_copies(void)
{
    if (log_rank() > 0) return;
    log_line(LOG_WARN,
             "loading the model's own weights, without the optimizer's float32 copies: %s",
             status_message());
}
