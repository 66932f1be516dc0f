// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/recompute.h"

TEST(recompute_is_none_selective_full_or_every_nth)
{
    enum recompute kind;
    int every;
    struct activation_checkpoint_config c = {ACTIVATION_CHECKPOINT_none, "2", false};
    CHECK_STATUS(OK, recompute_resolve(&c, &kind, &every));
    CHECK(kind == RECOMPUTE_NONE && every == 1);
    c = (struct activation_checkpoint_config){ACTIVATION_CHECKPOINT_selective, "op", false};
    CHECK_STATUS(OK, recompute_resolve(&c, &kind, &every));
    CHECK(kind == RECOMPUTE_SELECTIVE);
    c = (struct activation_checkpoint_config){ACTIVATION_CHECKPOINT_memory_budget, "2", false};
    CHECK_STATUS(OK, recompute_resolve(&c, &kind, &every));
    CHECK(kind == RECOMPUTE_SELECTIVE);
    c = (struct activation_checkpoint_config){ACTIVATION_CHECKPOINT_full, "op", false};
    CHECK_STATUS(OK, recompute_resolve(&c, &kind, &every));
    CHECK(kind == RECOMPUTE_FULL && every == 1);
    c = (struct activation_checkpoint_config){ACTIVATION_CHECKPOINT_selective, "2", false};
    CHECK_STATUS(OK, recompute_resolve(&c, &kind, &every));
    CHECK(kind == RECOMPUTE_FULL && every == 2);
    c = (struct activation_checkpoint_config){ACTIVATION_CHECKPOINT_selective, "2x", false};
    CHECK_STATUS(CONFIG, recompute_resolve(&c, &kind, &every));
    CHECK_MESSAGE("2x");
}
