/* check_node.c -- this machine: program, ranks, CPU, memory, limits, clock, speed. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/port.h"
#include "base/thread.h"
#include "doctor/build.h"
#include "doctor/check.h"
#include "machine/bandwidth.h"
#include "machine/cpu.h"
#include "machine/launch.h"
#include "machine/machine.h"
#include "machine/node.h"
#include "machine/peak.h"
#include "metrics/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const double gib = 1 << 30;

void check_program(struct findings *f)
{
    struct text libraries = {0};
    build_add_libraries(&libraries);
    findings_add(f, "program", "llamero %s, compiled by %s for %s", LLAMERO_VERSION, PORT_COMPILER,
                 PORT_PROCESSOR);
    if (!PORT_OPTIMIZED) findings_warn(f, "compiled without optimization: rebuild without OPT=");
    findings_add(f, "libraries", "%s", libraries.data);
    text_release(&libraries);
}

void check_ranks(struct findings *f)
{
    struct launch l = launch_find();
    const char *library = launch_library(), *launchers = launch_launchers();
    struct text line = {0};
    text_addf(&line, "up to %d on this host: --ranks", LAUNCHER_MAX_RANKS);
    if (library)
        text_addf(&line, "; on several hosts over %s: start them with %s", library, launchers);
    else
        text_adds(&line, "; on several hosts none: built without MPI");
    if (l.size > 1)
        text_addf(&line, "; this is rank %d of %d, started by %s", l.rank, l.size, l.launcher);
    findings_add(f, "ranks", "%s", line.data);
    if (!launch_can_join(&l) && library)
        findings_warn(f, "a run cannot join these ranks: start it with %s", launchers);
    if (!launch_can_join(&l) && !library)
        findings_warn(f, "a run cannot join these ranks: install Open MPI or MPICH and rebuild");
    text_release(&line);
}

void check_load(struct findings *f)
{
    double load[3];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(load, 3) != 3) return;
    findings_add(f, "load", "average %.2f, %.2f, %.2f over the last 1, 5, 15 minutes, on %ld cores",
                 load[0], load[1], load[2], cores);
    if (load[0] > 0.5 * (double)cores)
        findings_warn(f, "other processes use these cores: expect slower steps and lower figures");
}

/* Cores allowed by a cpu.max file, "QUOTA PERIOD"; 0: unlimited ("max PERIOD"), or no such file. */
static double read_quota(const char *path)
{
    struct text line = {0};
    char *end;
    node_line(path, &line);
    double quota = strtod(line.data, &end), cores = 0;
    if (end != line.data) {
        double period = strtod(end, NULL);
        cores = period > 0 ? quota / period : 0;
    }
    text_release(&line);
    return cores;
}

/* The lowest CPU quota of this process's control group and its ancestors, in cores; 0:
 * unlimited. */
static double read_cgroup_cores(void)
{
    struct text groups = {0}, group = {0}, path = {0};
    double least = 0;
    node_file("/proc/self/cgroup", &groups);
    node_value(groups.data, "0:", &group); /* cgroup v2's line is "0::/path" */
    for (;;) {
        text_clear(&path);
        text_addf(&path, "/sys/fs/cgroup%s/cpu.max", group.data);
        double cores = read_quota(path.data);
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
        char *slash = strrchr(group.data, '/');
        if (!slash) break;
        *slash = 0;
    }
    text_release(&groups);
    text_release(&group);
    text_release(&path);
    return least;
}

void check_processor(struct findings *f)
{
    struct text name = {0}, isas = {0};
    int mine = thread_cores();
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    double group = read_cgroup_cores();
    const char *best = cpu_machine_best_isa();
    node_processor(&name);
    findings_add(f, "processor", "%s", name.len ? name.data : "unknown");
    findings_add(f, "cores", "%d of %ld usable", mine, all);
    if (mine < all)
        findings_warn(f, "CPU affinity (taskset, a cpuset, the batch system) excludes the others");
    if (group > 0 && group < mine)
        findings_warn(f,
                      "the control group (cgroup) limits CPU time to %.2f cores: set "
                      "device.threads, or request more",
                      group);
    cpu_machine_list_isas(&isas);
    findings_add(f, "kernels", "%s supported; device.cpu = \"auto\" selects %s",
                 best ? isas.data : "only reference loops", best ? best : "reference");
    if (!best)
        findings_warn(f, "the reference loops are very slow: the CPU is older than x86-64-v3");
    text_release(&name);
    text_release(&isas);
}

void check_clock(struct findings *f)
{
    enum { READINGS = 20000 };
    struct text source = {0};
    double begin = clock_monotonic_s(), last = begin;
    bool back = false;
    for (int i = 0; i < READINGS; i++) {
        double now = clock_monotonic_s();
        back |= now < last;
        last = now;
    }
    double each = (last - begin) / READINGS;
    node_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", &source);
    if (back || !(last > begin)) {
        enum status st = FAILURE(DEVICE, "the monotonic clock %s (source %s)",
                                 back ? "goes backwards" : "does not advance", source.data);
        findings_fail(f, "clock", st, "step times are meaningless: select another clock source");
    } else {
        findings_add(f, "clock", "%s, %.0f ns per reading", source.len ? source.data : "works",
                     each * 1e9);
        if (each > 2e-6)
            findings_warn(f, "reading the clock is slow: profiling traces distort step times");
    }
    text_release(&source);
}

void check_memory(struct findings *f)
{
    struct text words = {0}, pages = {0};
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double mine = (double)memory_total_bytes(), available = (double)memory_available_bytes();
    findings_add(f, "memory", "%.2f GiB, %.2f GiB available", machine / gib, available / gib);
    if (available < mine / 4)
        findings_warn(f, "other processes use most of it; `llamero plan` shows what a run needs");
    if (mine < machine) {
        findings_add(f, "memory limit", "%.2f GiB, set by the control group (cgroup)", mine / gib);
        if (mine < machine / 2)
            findings_warn(f, "the OOM killer ends a run that exceeds it: request more if needed");
    }
    node_line("/sys/kernel/mm/transparent_hugepage/enabled", &words);
    node_choice(words.data, &pages);
    findings_add(f, "huge pages", "transparent: %s", pages.len ? pages.data : "unknown");
    if (!strcmp(pages.data, "never"))
        findings_warn(f, "matrix multiplications are several percent slower; as root: "
                         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    text_release(&words);
    text_release(&pages);
}

/* "1024", "64 MiB" or "unlimited". */
static void format_limit(struct text *t, rlim_t limit, bool bytes)
{
    if (limit == RLIM_INFINITY)
        text_adds(t, "unlimited");
    else if (bytes)
        text_addf(t, "%.4g MiB", (double)limit / (1 << 20));
    else
        text_addf(t, "%llu", (unsigned long long)limit);
}

void check_limits(struct findings *f)
{
    static const struct {
        const char *name;
        int resource; /* of setrlimit */
        bool bytes;
        rlim_t least;       /* warn below this */
        const char *advice; /* what needs more, and how to raise it */
    } rows[] = {
        {"open files", RLIMIT_NOFILE, false, 1024,
         "too low for corpora of many files: raise it with ulimit -n"},
        {"stack", RLIMIT_STACK, true, 1 << 20, "threads need at least 1 MiB: ulimit -s"},
        {"address space", RLIMIT_AS, true, RLIM_INFINITY,
         "a run that needs more fails: ulimit -v unlimited"},
        {"file size", RLIMIT_FSIZE, true, RLIM_INFINITY,
         "saving a larger checkpoint file fails: ulimit -f unlimited"},
        {"locked memory", RLIMIT_MEMLOCK, true, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rlimit r;
        struct text limit = {0};
        if (getrlimit((__rlimit_resource_t)rows[i].resource, &r) != 0) continue;
        format_limit(&limit, r.rlim_cur, rows[i].bytes);
        findings_add(f, rows[i].name, "%s", limit.data);
        if (r.rlim_cur < rows[i].least) findings_warn(f, "%s", rows[i].advice);
        text_release(&limit);
    }
}

static void check_compute(struct findings *f, int threads)
{
    double alone = peak_measure_flops(NULL, 1, F32), f32 = peak_measure_flops(NULL, threads, F32);
    double half = peak_measure_flops(NULL, threads, BF16);
    findings_add(f, "peak compute", "%.0f GFLOP/s in float32, %.0f in bfloat16, with %d threads",
                 f32 / 1e9, half / 1e9, threads);
    if (f32 < 0.7 * threads * alone)
        findings_warn(f,
                      "one thread alone reaches %.0f: other processes use these cores, or they "
                      "are hyperthreads (set device.threads to the number of physical cores)",
                      alone / 1e9);
}

static void check_bandwidth(struct findings *f, int threads)
{
    enum { MIB = 1 << 20 };
    struct arena memory = {0};
    double max_bytes = (double)memory_available_bytes() / 8;
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = l3 > 64L * MIB ? 512 * (size_t)MIB : 128 * (size_t)MIB;
    while ((double)bytes > max_bytes && bytes > MIB) bytes /= 2;
    enum status st = arena_init(&memory, bytes, NULL);
    if (st) {
        findings_fail(f, "bandwidth", st, "almost no memory is available");
        return;
    }
    double best[BANDWIDTH_COUNT];
    for (enum bandwidth_kernel s = 0; s < BANDWIDTH_COUNT; s++)
        best[s] = bandwidth_measure_best(s, memory.base, bytes, threads, 2) / 1e9;
    findings_add(f, "bandwidth",
                 "read %.1f, write %.1f, copy %.1f, update in place %.1f GB/s, with %d threads",
                 best[BANDWIDTH_read], best[BANDWIDTH_write], best[BANDWIDTH_copy],
                 best[BANDWIDTH_update], threads);
    arena_release(&memory);
}

void check_speed(struct findings *f)
{
    int threads = thread_cores();
    check_compute(f, threads);
    check_bandwidth(f, threads);
}
