// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/params.h"

TEST(params_of_blocks_have_a_layer_in_both_names)
{
    for (enum param_id id = 0; id < PARAM_COUNT; id++) {
        bool in_block = id >= PARAM_attn_norm && id <= PARAM_k_norm;
        CHECK(in_block == (strstr(params[id].name, "%d") != NULL));
        CHECK(in_block == (strstr(params[id].hf_name, "%d") != NULL));
        CHECK(params[id].is_norm == !params[id].axes[1]);
        CHECK(!params[id].tp || strchr(params[id].axes, params[id].tp));
    }
}
