// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_model.h"
#include "checkpoint/rig.h"

static enum status collect(void *context, const void *bytes, size_t len)
{
    text_add(context, bytes, len);
    return STATUS_OK;
}

TEST(torch_model_streams_rows_in_metas_order)
{
    struct saved s;
    saved_open(&s, false);
    const struct torch_model m = {&s.shape, &s.layout, &s.shard, tensor_source_flat(s.weights),
                                  SAFETENSORS_F32};
    for (int i = 0; i < s.layout.num_tensors; i++) {
        const struct tensor_slot *t = &s.layout.tensors[i];
        const float *want = s.weights + t->offset;
        size_t columns = (size_t)t->columns, K = (size_t)s.shape.K;
        bool reordered = t->id == PARAM_attn_q || t->id == PARAM_attn_k;
        struct text bytes = {0};
        CHECK_STATUS(OK, torch_model_stream(&m, i, collect, &bytes));
        CHECK(bytes.len == t->elements * sizeof(float));
        for (size_t r = 0; r < (size_t)t->rows; r++) {
            /* The two rows of a rotary pair, half a head apart, become adjacent. */
            size_t from = reordered ? r / K * K + r % 2 * (K / 2) + r % K / 2 : r;
            CHECK(!memcmp(bytes.data + r * columns * 4, want + from * columns, columns * 4));
        }
        text_release(&bytes);
    }
    saved_close(&s);
}

TEST(torch_model_describes_tensors_with_metas_names)
{
    struct saved s;
    saved_open(&s, true);
    const struct torch_model m = {&s.shape, &s.layout, &s.shard, {0}, SAFETENSORS_BF16};
    struct torch_tensor embed = torch_model_tensor(&m, 0), norm = torch_model_tensor(&m, 1);
    CHECK(!strcmp(embed.name, "tok_embeddings.weight") && embed.num_dims == 2);
    CHECK(embed.shape[0] == 37 && embed.shape[1] == 16 && embed.dtype == SAFETENSORS_BF16);
    CHECK(!strcmp(norm.name, "layers.0.attention_norm.weight") && norm.num_dims == 1);
    free(embed.name), free(norm.name);
    saved_close(&s);
}
