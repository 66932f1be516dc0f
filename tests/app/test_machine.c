// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/machine.h"
#include "base/thread.h"
#include "ops/ops.h"

TEST(a_machine_has_every_operation_and_the_threads_it_was_given)
{
    static const char *const kinds[] = {"auto", "reference"};
    for (size_t i = 0; i < 2; i++) {
        struct machine m;
        struct device_config c = {.kind = "auto", .cpu = kinds[i], .threads = 1};
        CHECK_STATUS(OK, machine_open(&m, &c));
        CHECK(!ops_missing(m.ops));
        CHECK(m.on->num_threads == 1);
        machine_measure_peak(&m, F32);
        CHECK(m.peak_flops > 1e8);
        machine_close(&m);
    }
}

TEST(a_machine_has_at_least_one_core_and_takes_all_of_them)
{
    struct machine m;
    struct device_config c = {.kind = "auto", .cpu = "auto"};
    CHECK(thread_cores() >= 1);
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(m.on->num_threads == thread_cores());
    machine_close(&m);
}
