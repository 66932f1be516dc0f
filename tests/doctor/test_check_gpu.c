// SPDX-License-Identifier: Apache-2.0
#include "doctor/check.h"
#include "machine/gpu.h"
#include "tensor/hardware.h"
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

/* Large GEMMs reach 42 % of an AMD GPU's peak (tensor/hardware.h). */
TEST(doctor_expects_of_a_gpu_the_speed_that_its_kind_reaches)
{
    const struct hardware *amd = hardware_row(HARDWARE_mi300x), *pcie = hardware_find("H100 PCIe");
    CHECK(check_gpu_slow_fraction(amd) > 0.3 && check_gpu_slow_fraction(amd) < 0.35);
    CHECK_NEAR(check_gpu_slow_fraction(hardware_row(HARDWARE_h100)), 0.49, 0.01);
    CHECK(pcie && check_gpu_slow_fraction(pcie) == check_gpu_slow_fraction(NULL));
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
