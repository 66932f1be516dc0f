/* megatron_args.h -- args of a small Llama, as checkpoints of Megatron-LM have them: H 2, G 2, K 2,
 * D 4, F 4, V 8. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/pickle_write.h"

struct megatron_args {
    int layers, tp, pp, chunks; /* 0: 1 */
    bool tied, qkv_bias;
};

/* Adds the key and the value to an open dict. */
static inline void megatron_args_write(struct text *t, const struct megatron_args *a)
{
    const struct {
        const char *name;
        int value;
    } args[] = {{"swiglu", 1},
                {"hidden_size", 4},
                {"num_layers", a->layers ? a->layers : 1},
                {"kv_channels", 2},
                {"ffn_hidden_size", 4},
                {"num_attention_heads", 2},
                {"padded_vocab_size", 8},
                {"tensor_model_parallel_size", a->tp ? a->tp : 1},
                {"pipeline_model_parallel_size", a->pp ? a->pp : 1},
                {"virtual_pipeline_model_parallel_size", a->chunks ? a->chunks : 1},
                {"untie_embeddings_and_output_weights", !a->tied},
                {"add_qkv_bias", a->qkv_bias}};
    pickle_write_string(t, "args"), pickle_write_empty_dict(t), pickle_write_mark(t);
    pickle_write_string(t, "normalization"), pickle_write_string(t, "RMSNorm");
    pickle_write_string(t, "position_embedding_type"), pickle_write_string(t, "rope");
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        pickle_write_string(t, args[i].name), pickle_write_int(t, args[i].value);
    pickle_write_setitems(t);
}
