/* With CUDA=1 this is the real library, if it is installed; otherwise the stub. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/vendor/cublaslt.h"

TEST(cublaslt_load_finds_every_function_that_the_backend_calls)
{
    if (cublaslt_load() == STATUS_UNSUPPORTED) {
        CHECK_MESSAGE("cuBLASLt is not installed"); /* and not: has no function */
        skip();
    }
    CHECK(cublasLtGetVersion() > 0);
    CHECK(*cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED));
}
