/* layouts.h -- short names for the settings of parallel layouts, for tables of layouts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define SHARD(n)  "parallelism.data_parallel_shard_degree=" #n
#define COPIES(n) "parallelism.data_parallel_replicate_degree=" #n
#define ZERO1     "parallelism.fsdp_shard_gradients=false"
#define TP(n)     "parallelism.tensor_parallel_degree=" #n
#define PP(n)     "parallelism.pipeline_parallel_degree=" #n
#define CP(n)     "parallelism.context_parallel_degree=" #n
#define HALF      "training.mixed_precision_param=bfloat16"

/* 8-bit moments, and a model with quantized matrices that two tensor-parallel ranks can share. */
#define EIGHT_BIT                                                                                  \
    "optimizer.state_dtype=int8", "model.dim=64", "model.head_dim=128", "model.ffn_hidden=512"
#define BF16_GRADIENTS "training.gradient_dtype=bfloat16"
