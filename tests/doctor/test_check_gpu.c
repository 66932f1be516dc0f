// SPDX-License-Identifier: Apache-2.0
#include "doctor/check.h"
#include "machine/gpu.h"
#include "test.h"

TEST(doctor_lists_gpus_or_reports_none)
{
    struct findings f = {0};
    struct text out = {0};
    check_gpus(&f);
    findings_print(&f, &out);
    CHECK(strstr(out.data, "gpu"));
    CHECK(gpu_backend || strstr(out.data, "built without a GPU backend"));
    text_release(&out);
    findings_release(&f);
}
