// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_load.h"

#include "test.h"

#include <cudnn.h>

TEST(cudnn_load_finds_every_function_that_the_backend_calls)
{
    if (cudnn_load() == STATUS_UNSUPPORTED) {
        CHECK_MESSAGE("cuDNN is not installed"); /* and not: has no function */
        skip();
    }
    CHECK(cudnnGetVersion() / 10000 == CUDNN_MAJOR);
    CHECK(*cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED));
}
