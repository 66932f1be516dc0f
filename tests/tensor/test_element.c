// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tensor/element.h"

TEST(element_of_null_is_null)
{
    float x[4];
    CHECK(element(NULL, 3, F32) == NULL);
    CHECK(element(x, 3, F32) == &x[3] && element(x, 2, BF16) == &x[1]);
}
