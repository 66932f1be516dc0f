// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/params.h"

TEST(params_of_blocks_have_a_layer_in_both_names)
{
    for (enum param_id id = 0; id < PARAM_COUNT; id++) {
        bool in_block = id >= PARAM_attn_norm && id <= PARAM_down_bias;
        CHECK(in_block == (strstr(params[id].name, "%d") != NULL));
        CHECK(in_block == (strstr(params[id].hf_name, "%d") != NULL));
        bool is_constant =
            params[id].init == PARAM_INIT_ONES || params[id].init == PARAM_INIT_ZEROS;
        CHECK(is_constant == param_is_vector(id));
        CHECK(!params[id].tp || strchr(params[id].axes, params[id].tp));
    }
}
