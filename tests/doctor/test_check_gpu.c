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

TEST(doctor_lists_the_libraries_that_a_gpu_backend_opens)
{
    struct text name = {0};
    const char *use;
    enum status st;
    int count = 0;
    for (; gpu_machine_library(count, &use, &name, &st); count++) CHECK(*use);
    CHECK(gpu_backend ? count >= 2 : !count);
    text_release(&name);
}
