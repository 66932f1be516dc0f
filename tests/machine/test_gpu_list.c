// SPDX-License-Identifier: Apache-2.0
#include "machine/gpu_list.h"
#include "test.h"

static bool reads(const char *text, int installed, const char *want)
{
    struct gpu_list list;
    char got[256] = "";
    if (gpu_list_read(text, installed, &list)) return false;
    for (int i = 0; i < list.count; i++) {
        size_t len = strlen(got);
        snprintf(got + len, sizeof got - len, "%d ", list.index[i]);
    }
    return !strcmp(got, want);
}

TEST(gpu_list_reads_all_a_number_and_indices)
{
    CHECK(reads("", 2, "0 1 ") && reads("all", 3, "0 1 2 "));
    CHECK(reads("1", 8, "0 ") && reads("4", 4, "0 1 2 3 "));
    CHECK(reads("0,2,3", 4, "0 2 3 ") && reads("3,1", 4, "3 1 "));
}

TEST(gpu_list_rejects_what_is_malformed_or_not_installed)
{
    static const char *const malformed[] = {"0", "-1", "65", "x", "4x", "0,", ",1", "0,-1", "1;2"};
    struct gpu_list list;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        CHECK_STATUS(CONFIG, gpu_list_read(malformed[i], 8, &list));
        CHECK_MESSAGE("expected \"all\", a number of GPUs from 1 to 64, or their indices");
    }
    CHECK_STATUS(CONFIG, gpu_list_read("3", 2, &list));
    CHECK_MESSAGE("device.gpus = \"3\": this machine has 2 GPUs");
    CHECK_STATUS(CONFIG, gpu_list_read("0,2", 2, &list));
    CHECK_MESSAGE("GPU 2 does not exist: this machine has 2, from 0 on");
    CHECK_STATUS(CONFIG, gpu_list_read("1,0,1", 2, &list));
    CHECK_MESSAGE("GPU 1 is listed twice");
    CHECK_STATUS(DEVICE, gpu_list_read("all", 0, &list));
    CHECK_MESSAGE("no GPU found");
}
