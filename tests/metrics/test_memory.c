// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "comm/ranks.h"
#include "metrics/memory.h"
#include "tensor/device.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(memory_peak_follows_touched_pages)
{
    enum { MORE = 64 << 20 };
    int64_t before = memory_peak_bytes();
    CHECK(before > 0);
    void *p = mmap(NULL, MORE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 1, MORE);
    int64_t held = memory_peak_bytes();
    munmap(p, MORE);
    CHECK(held >= MORE);
    CHECK(memory_peak_bytes() >=
          held - (1 << 20)); /* the peak stays; the kernel counts in batches */
}

TEST(memory_total_is_at_most_physical_memory)
{
    int64_t total = memory_total_bytes();
    CHECK(total > 0);
    CHECK(total <= (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE));
    CHECK(memory_available_bytes() > 0 && memory_available_bytes() <= total);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    CHECK_STATUS(OK, file_write(test_path(folder, name), text, strlen(text)));
}

TEST(memory_left_in_a_control_group_is_its_limit_less_its_use_without_page_cache)
{
    const char *root = test_folder(), *job = test_path(root, "job"), *step = test_path(job, "step");
    CHECK(mkdir(job, 0700) == 0 && mkdir(step, 0700) == 0);
    char group[] = "/job/step", same[] = "/job/step", other[] = "/job/step", none[] = "/job";
    CHECK(memory_cgroup_limit(2, root, none, true, INT64_MAX) == INT64_MAX);
    write_file(job, "memory.max", "1000\n");
    write_file(job, "memory.current", "900\n");
    write_file(job, "memory.stat", "anon 150\ninactive_file 600\nactive_file 100\n");
    write_file(step, "memory.max", "max\n");
    write_file(step, "memory.current", "5000\n");
    CHECK(memory_cgroup_limit(2, root, group, false, INT64_MAX) == 1000);
    CHECK(memory_cgroup_limit(2, root, same, true, INT64_MAX) == 800);
    write_file(step, "memory.max", "700\n");
    CHECK(memory_cgroup_limit(2, root, other, true, INT64_MAX) == 0);
}

TEST(memory_left_in_a_control_group_of_version_1_counts_its_children)
{
    const char *root = test_folder(), *job = test_path(root, "job");
    CHECK(mkdir(job, 0700) == 0);
    char group[] = "/job", left[] = "/job", low[] = "/job", other[] = "/job";
    write_file(job, "memory.limit_in_bytes", "1000\n");
    write_file(job, "memory.usage_in_bytes", "900\n");
    write_file(job, "memory.stat",
               "inactive_file 1\nactive_file 2\ntotal_inactive_file 600\ntotal_active_file 100\n");
    CHECK(memory_cgroup_limit(1, root, group, false, INT64_MAX) == 1000);
    CHECK(memory_cgroup_limit(1, root, left, true, INT64_MAX) == 800);
    CHECK(memory_cgroup_limit(1, root, low, true, 500) == 500);
    CHECK(memory_cgroup_limit(2, root, other, true, 500) == 500); /* has other files */
}

TEST(memory_parse_field_matches_whole_names)
{
    const char *text = "Name:\tx VmHWM: 7\nXVmHWM: 3\nVmHWM:\t   123 kB\nVmRSS:\t none\n";
    CHECK(memory_parse_field(text, "VmHWM") == 123);
    CHECK(memory_parse_field(text, "VmRSS") == -1);
    CHECK(memory_parse_field(text, "VmHW") == -1);
    CHECK(memory_parse_field("", "VmHWM") == -1);
    CHECK(memory_parse_field("VmHWM: 5", "VmHWM") == 5);
    CHECK(memory_parse_field("inactive_file 3\nfile 4\n", "file") == 4);
}

static enum status ask_device(struct queue *queue, size_t *bytes, size_t *used)
{
    if (!queue->num_threads) FAIL(DEVICE, "the device is lost");
    *bytes = 100, *used = (size_t)queue->num_threads;
    return STATUS_OK;
}

/* The device of rank 1 fails, if there is one more rank than devices. */
static enum status find_most(const struct comm *world, void *num_devices)
{
    static const struct device device = {.memory_info = ask_device};
    bool fails = *(int *)num_devices < world->size;
    struct queue queue = {.device = &device,
                          .num_threads = fails && world->rank == 1 ? 0 : 1 + world->rank};
    int64_t used = 0;
    enum status st = memory_most_used(&queue, world, &used);
    RANK_CHECK(st == (fails ? STATUS_DEVICE : STATUS_OK) && (fails || used == world->size));
    return STATUS_OK;
}

TEST(memory_most_used_is_of_all_devices_and_fails_on_every_rank)
{
    CHECK_STATUS(OK, ranks_run(3, find_most, &(int){3}));
    CHECK_STATUS(OK, ranks_run(3, find_most, &(int){2}));
}
