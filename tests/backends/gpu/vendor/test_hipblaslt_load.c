/* With HIP=1 this is the real library, if it is installed; otherwise the stub. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/hipblaslt.h"

TEST(hipblaslt_load_finds_every_function_that_the_backend_calls)
{
    if (hipblaslt_load() == STATUS_UNSUPPORTED) {
        CHECK_MESSAGE("hipBLASLt is not installed"); /* and not: has no function */
        skip();
    }
    CHECK(sizeof(struct hipblaslt_algorithm) == 24 && sizeof(struct hipblaslt_result) == 56);
}
