// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/gemm_blocking.h"
#include "test.h"

TEST(blockings_have_unique_names_and_fit_the_scratch)
{
    int count = 0;
    CHECK(!strcmp(gemm_blocking_at(0)->name, "usual"));
    for (; gemm_blocking_at(count); count++) {
        const struct gemm_blocking *w = gemm_blocking_at(count);
        CHECK(gemm_blocking_named(w->name) == w);
        CHECK(w->mc * w->nc <= GEMM_MAX_BLOCK && w->mc >= 1 && w->nc >= 1);
        CHECK(w->kc_halves >= 1);
    }
    CHECK(count >= 2);
    CHECK(!gemm_blocking_named("") && !gemm_blocking_named("of another version"));
}
