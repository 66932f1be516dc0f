/* degrees.h -- a [parallelism] section from its five degrees. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/mesh.h"

static inline struct parallelism_config degrees(int pp, int replicate, int shard, int cp, int tp)
{
    return (struct parallelism_config){.pipeline_parallel_degree = pp,
                                       .data_parallel_replicate_degree = replicate,
                                       .data_parallel_shard_degree = shard,
                                       .context_parallel_degree = cp,
                                       .tensor_parallel_degree = tp};
}
