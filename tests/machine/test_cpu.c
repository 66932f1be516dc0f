// SPDX-License-Identifier: Apache-2.0
#include "machine/cpu.h"
#include "machine/machine.h"
#include "test.h"

TEST(auto_selects_the_kernels_of_the_best_supported_isa)
{
    const struct device_config c = {.kind = DEVICE_KIND_cpu, .threads = 1};
    const char *best = cpu_machine_best_isa();
    struct text isas = {0};
    struct machine m;
    cpu_machine_list_isas(&isas);
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(strstr(m.ops->backend, best ? best : "reference"));
    if (best) CHECK(strlen(best) <= isas.len && !strcmp(isas.data + isas.len - strlen(best), best));
    if (!best) CHECK(!isas.len);
    machine_close(&m);
    text_release(&isas);
}

TEST(onednn_has_a_version)
{
    struct text version = {0};
    cpu_machine_onednn_version(&version);
    CHECK(version.data[0] >= '1' && strchr(version.data, '.'));
    text_release(&version);
}
