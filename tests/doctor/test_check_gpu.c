// SPDX-License-Identifier: Apache-2.0
#include "doctor/checks.h"
#include "machine/gpu.h"
#include "test.h"

TEST(doctor_says_what_gpu_there_is_or_that_there_is_none)
{
    struct findings f = {0};
    struct text out = {0};
    check_gpus(&f);
    findings_print(&f, &out);
    CHECK(strstr(out.data, "gpu"));
    CHECK(gpu_backend || strstr(out.data, "built without a backend"));
    text_release(&out);
    findings_release(&f);
}
