// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_extra.h"

#include "checkpoint/interop/hf_value.h"

static void write_multipliers(struct json_writer *w, const struct model_shape *s)
{
    json_write_real(w, "embedding_multiplier", model_shape_multiplier(s->embedding_multiplier));
    json_write_real(w, "residual_multiplier", model_shape_multiplier(s->residual_multiplier));
    json_write_real(w, "logits_scaling", model_shape_multiplier(s->logits_scaling));
    json_write_real(w, "attention_multiplier",
                    s->attention_multiplier > 0 ? s->attention_multiplier
                                                : (double)model_shape_attention_scale(s));
}

void hf_extra_write(struct json_writer *w, const struct hf_family *f, const struct model_shape *s)
{
    if (f->extra == HF_EXTRA_MULTIPLIERS) write_multipliers(w, s);
    if (f->extra < HF_EXTRA_NO_ROPE) return;
    json_write_null(w, "pad_token_id"); /* by default a row that small vocabularies do not have */
    if (f->extra > HF_EXTRA_NO_ROPE) return;
    json_write_int(w, "no_rope_layer_interval", s->no_rope_interval);
    json_begin_array(w, "no_rope_layers", JSON_INLINE); /* 1: has RoPE */
    for (int layer = 0; layer < s->L; layer++)
        json_write_int(w, NULL, model_shape_has_rope(s, layer));
    json_end_array(w);
}

static enum status read_multipliers(const struct json *root, struct model_shape *s)
{
    double embedding, residual, attention, logits;
    TRY(hf_value_real(root, "embedding_multiplier", 1, &embedding));
    TRY(hf_value_real(root, "residual_multiplier", 1, &residual));
    TRY(hf_value_real(root, "attention_multiplier", 1, &attention));
    TRY(hf_value_real(root, "logits_scaling", 1, &logits));
    if (!(embedding > 0) || !(residual > 0) || !(attention > 0) || !(logits > 0))
        FAIL(UNSUPPORTED,
             "embedding_multiplier %g, residual_multiplier %g, attention_multiplier "
             "%g, logits_scaling %g: must be above 0",
             embedding, residual, attention, logits);
    model_shape_set_multipliers(s, embedding, residual, attention, logits);
    return STATUS_OK;
}

/* Every Nth layer is 0, the others are 1; N may be above L, which is written as 0. */
static enum status read_no_rope(const struct json *root, struct model_shape *s)
{
    const struct json *layers = json_get(root, "no_rope_layers");
    int layer = 0;
    int64_t has_rope;
    if (!json_is_array(layers)) {
        TRY(hf_value_size(root, "no_rope_layer_interval", 4, &s->no_rope_interval));
        if (s->no_rope_interval > s->L) s->no_rope_interval = 0;
        return STATUS_OK;
    }
    for (const struct json *v = json_first(layers); v && layer < s->L; v = json_next(v), layer++) {
        if (!json_as_int(v, 0, 1, &has_rope))
            FAIL(DATA, "\"no_rope_layers\": expected an array of 0 and 1");
        if (!has_rope && !s->no_rope_interval) s->no_rope_interval = layer + 1;
        if (model_shape_has_rope(s, layer) != has_rope)
            FAIL(UNSUPPORTED,
                 "\"no_rope_layers\": layer %d %s RoPE: must be every Nth layer that has none",
                 layer, has_rope ? "has" : "does not have");
    }
    if (layer < s->L)
        FAIL(DATA, "\"no_rope_layers\" has %d items: expected one for each of %d layers", layer,
             s->L);
    return STATUS_OK;
}

enum status hf_extra_read(const struct json *root, const struct hf_family *f, struct model_shape *s)
{
    if (f->extra == HF_EXTRA_MULTIPLIERS) TRY(read_multipliers(root, s));
    if (f->extra == HF_EXTRA_NO_ROPE) TRY(read_no_rope(root, s));
    return STATUS_OK;
}
