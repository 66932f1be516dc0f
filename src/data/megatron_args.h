/* megatron_args.h -- compares the arguments of a run of Megatron-LM that decide the order of its
 * samples, as its checkpoints have them, with the settings of data.order = "megatron".
 *
 * A JSON object: "seed", "seq_length", "split"; "samples" that the order is built for
 * (--train-samples, or --train-iters times --global-batch-size); "dataloader_type", and for
 * "cyclic" "data_sharding", "micro_batch_size" and "data_parallel_size"; "data_path", an array like
 * the flag.  What a checkpoint does not say is missing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "data/cyclic.h"
#include "data/order.h"

struct megatron_settings {
    const struct order_setup *setup;
    bool by_weights;             /* sources are blended by their weights */
    const struct cyclic *cyclic; /* samples 0: rows are samples in their order */
};

/* Logs, unless the loader is quiet, where sources have other names.  CONFIG: the samples are in
 * another order; the message names all arguments that differ, except "samples". */
enum status megatron_args_check(const struct json *args, const struct megatron_settings *s);
