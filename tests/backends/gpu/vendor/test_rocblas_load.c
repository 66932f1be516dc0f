/* With HIP=1 this is the real library, if it is installed; otherwise the stub. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/rocblas.h"

TEST(rocblas_load_finds_every_function_that_the_backend_calls)
{
    if (rocblas_load() == STATUS_UNSUPPORTED) {
        CHECK_MESSAGE("rocBLAS is not installed"); /* and not: has no function */
        skip();
    }
}
