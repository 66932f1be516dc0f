// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_generation.h"

#include <string.h>

#define EXCLUDE_DATALOADER "set checkpoint.exclude_from_loading to [\"dataloader\"] in torchtitan"

const struct dcp_generation_spec dcp_generations[DCP_GENERATIONS] = {
    [DCP_FRONTIER] = {.name = "frontier",
                      .nests_model = true,
                      .nests_run_model = true,
                      .has_empty_loader = true,
                      .without_loader =
                          "torchtitan-mlm requires it: convert with --dp-size; the other forks "
                          "keep their own",
                      .train_state = {{"step", DCP_STEP_INT32},
                                      {"global_avg_losses", DCP_EMPTY_LIST},
                                      {"global_max_losses", DCP_EMPTY_LIST},
                                      {"log_steps", DCP_EMPTY_LIST},
                                      {NULL, DCP_TRAIN_VALUES}}},
    [DCP_V0_1] = {.name = "v0.1",
                  .nests_run_model = true,
                  .has_rope_table = true,
                  .has_empty_loader = true,
                  .loader_size = "world_size",
                  .without_loader = EXCLUDE_DATALOADER " or convert with --dp-size",
                  .train_state = {{"step", DCP_STEP}, {NULL, DCP_TRAIN_VALUES}}},
    [DCP_V0_2] = {.name = "v0.2",
                  .has_qk_norm = true,
                  .has_empty_loader = true,
                  .loader_size = "world_size",
                  .without_loader = EXCLUDE_DATALOADER " or convert with --dp-size",
                  .train_state = {{"step", DCP_STEP},
                                  {"ntokens_seen", DCP_TOKENS},
                                  {NULL, DCP_TRAIN_VALUES}}},
    [DCP_NEW] = {.name = "new",
                 .has_qk_norm = true,
                 .has_newest_names = true,
                 .ties = true,
                 .without_loader = EXCLUDE_DATALOADER,
                 .train_state = {{"step", DCP_STEP},
                                 {"ntokens_seen", DCP_TOKENS},
                                 {NULL, DCP_TRAIN_VALUES}}},
};

enum dcp_generation dcp_generation_of_model(const char *model_name)
{
    return strcmp(model_name, dcp_generations[DCP_FRONTIER].name) ? DCP_V0_2 : DCP_FRONTIER;
}
