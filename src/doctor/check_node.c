/* check_node.c -- the program, the processor, memory, limits and the clock of this machine. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/onednn.h"
#include "backends/cpu/peak.h"
#include "backends/cpu/stream.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/port.h"
#include "base/thread.h"
#include "doctor/checks.h"
#include "machine/launch.h"
#include "machine/machine.h"
#include "machine/node.h"
#include "metrics/memory.h"
#include "tokenizer/text/regex.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static const double gib = 1 << 30;

void check_program(struct findings *f)
{
    struct text onednn = {0}, pcre2 = {0};
    onednn_version(&onednn);
    regex_library_version(&pcre2);
    findings_add(f, "program", "llamero %s, compiled by %s for %s", LLAMERO_VERSION, PORT_COMPILER,
                 PORT_PROCESSOR);
    if (!PORT_OPTIMIZED) findings_warn(f, "compiled without optimisation: make without OPT=");
    findings_add(f, "libraries", "oneDNN %s, zlib %s, zstd %s, PCRE2 %s, cJSON %s", onednn.data,
                 zlibVersion(), ZSTD_versionString(), pcre2.data, json_library_version());
    text_release(&onednn);
    text_release(&pcre2);
}

void check_ranks(struct findings *f)
{
    struct launch l = launch_find();
    const char *library = launch_library(), *ways = launch_launchers();
    struct text says = {0};
    if (library)
        text_addf(&says, "%s carries between them; they are started by %s", library, ways);
    else
        text_adds(&says, "one: this program was built without MPI");
    if (l.size > 1) text_addf(&says, "; this is rank %d of %d, of %s", l.rank, l.size, l.launcher);
    findings_add(f, "ranks", "%s", says.data);
    if (!launch_can_join(&l) && library)
        findings_warn(f, "runs cannot join these ranks: use %s", ways);
    if (!launch_can_join(&l) && !library)
        findings_warn(f, "runs cannot join these ranks: install Open MPI or MPICH and build anew");
    text_release(&says);
}

void check_load(struct findings *f)
{
    double load[3];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(load, 3) != 3) return;
    findings_add(f, "load",
                 "%.2f, %.2f, %.2f programs ran in the last 1, 5, 15 minutes, on %ld "
                 "cores",
                 load[0], load[1], load[2], cores);
    if (load[0] > 0.5 * (double)cores)
        findings_warn(f, "others use this machine: a run shares its cores, and figures are low");
}

/* Cores' worth of time in "QUOTA PERIOD"; 0: "max PERIOD", or no such file. */
static double quota_of(const char *path)
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

/* CPU time that the control group and those above it allow, in cores; 0: no limit. */
static double group_cores(void)
{
    struct text groups = {0}, group = {0}, path = {0};
    double least = 0;
    node_file("/proc/self/cgroup", &groups);
    node_value(groups.data, "0:", &group); /* version 2's line is "0::/path" */
    for (;;) {
        text_clear(&path);
        text_addf(&path, "/sys/fs/cgroup%s/cpu.max", group.data);
        double cores = quota_of(path.data);
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
    struct text name = {0}, sets = {0};
    int mine = thread_cores();
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    double group = group_cores();
    const struct isa *best = isa_best();
    node_processor(&name);
    findings_add(f, "processor", "%s", name.len ? name.data : "of unknown name");
    findings_add(f, "cores", "%d of %ld may be used", mine, all);
    if (mine < all)
        findings_warn(f, "a binding (taskset, a cpuset, the batch system) leaves out the others");
    if (group > 0 && group < mine)
        findings_warn(f,
                      "the control group allows the time of %.2f cores: set device.threads, or "
                      "ask for more",
                      group);
    for (int i = 0; isa_at(i); i++)
        if (isa_is_supported(isa_at(i)))
            text_addf(&sets, "%s%s", sets.len ? ", " : "", isa_at(i)->name);
    findings_add(f, "kernels", "%s run here; device.cpu = \"auto\" takes %s",
                 best ? sets.data : "only plain loops", best ? best->name : "reference");
    if (!best)
        findings_warn(f, "plain loops are very slow; this processor is older than x86-64-v3");
    text_release(&name);
    text_release(&sets);
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
        enum status st =
            status_fail(STATUS_DEVICE, __FILE__, __LINE__, "the monotonic clock %s (source %s)",
                        back ? "went back" : "stands still", source.data);
        findings_fail(f, "clock", st, "times of steps mean nothing here; try another clock source");
    } else {
        findings_add(f, "clock", "%s, %.0f ns a reading", source.len ? source.data : "running",
                     each * 1e9);
        if (each > 2e-6)
            findings_warn(f, "reading the time is slow: traces disturb what they time");
    }
    text_release(&source);
}

void check_memory(struct findings *f)
{
    struct text words = {0}, pages = {0};
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double mine = (double)memory_total_bytes(), available = (double)memory_available_bytes();
    findings_add(f, "memory", "%.2f GiB, of which %.2f GiB are available", machine / gib,
                 available / gib);
    if (available < mine / 4)
        findings_warn(f, "others hold most of it; `llamero plan` says what a run needs");
    if (mine < machine) {
        findings_add(f, "memory limit", "%.2f GiB by the control group", mine / gib);
        if (mine < machine / 2)
            findings_warn(f, "a run beyond it is killed; ask for more if needed");
    }
    node_line("/sys/kernel/mm/transparent_hugepage/enabled", &words);
    node_choice(words.data, &pages);
    findings_add(f, "huge pages", "transparent: %s", pages.len ? pages.data : "unknown");
    if (!strcmp(pages.data, "never"))
        findings_warn(f, "matrix products run several percent slower; as root: echo madvise > "
                         "/sys/kernel/mm/transparent_hugepage/enabled");
    text_release(&words);
    text_release(&pages);
}

/* "1024", "64.0 MiB" or "unlimited". */
static void add_limit(struct text *t, rlim_t limit, bool bytes)
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
        rlim_t least;       /* fewer are a warning */
        const char *advice; /* what for, and how to raise it */
    } rows[] = {
        {"open files", RLIMIT_NOFILE, false, 1024, "corpora of many files need more: ulimit -n"},
        {"stack", RLIMIT_STACK, true, 1 << 20, "threads need at least 1 MiB: ulimit -s"},
        {"address space", RLIMIT_AS, true, RLIM_INFINITY, "runs end where it ends: ulimit -v"},
        {"file size", RLIMIT_FSIZE, true, RLIM_INFINITY,
         "a checkpoint's file may be cut: ulimit -f"},
        {"locked memory", RLIMIT_MEMLOCK, true, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rlimit r;
        struct text limit = {0};
        if (getrlimit((__rlimit_resource_t)rows[i].resource, &r) != 0) continue;
        add_limit(&limit, r.rlim_cur, rows[i].bytes);
        findings_add(f, rows[i].name, "%s", limit.data);
        if (r.rlim_cur < rows[i].least) findings_warn(f, "%s", rows[i].advice);
        text_release(&limit);
    }
}

static void check_products(struct findings *f, int threads)
{
    struct queue one = {.num_threads = 1}, all = {.num_threads = threads};
    double alone = peak_measure_flops(&one, F32), f32 = peak_measure_flops(&all, F32);
    double half = peak_measure_flops(&all, BF16);
    findings_add(f, "products", "at best %.0f GFLOP/s in float32, %.0f in bfloat16, by %d threads",
                 f32 / 1e9, half / 1e9, threads);
    if (f32 < 0.7 * threads * alone)
        findings_warn(f,
                      "one thread alone does %.0f: others use these cores, or they are halves "
                      "of cores (set device.threads to the number of whole ones)",
                      alone / 1e9);
}

static void check_bandwidth(struct findings *f, int threads)
{
    enum { MIB = 1 << 20 };
    struct arena memory = {0};
    double most = (double)memory_available_bytes() / 8;
    long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = level3 > 64L * MIB ? 512 * (size_t)MIB : 128 * (size_t)MIB;
    while ((double)bytes > most && bytes > MIB) bytes /= 2;
    enum status st = arena_init(&memory, bytes, NULL);
    if (st) {
        findings_fail(f, "bandwidth", st, "there is hardly any memory left");
        return;
    }
    double best[STREAM_COUNT];
    for (enum stream_kernel s = 0; s < STREAM_COUNT; s++)
        best[s] = stream_measure_best(s, memory.base, bytes, threads, 2) / 1e9;
    findings_add(f, "bandwidth",
                 "read %.1f, write %.1f, copy %.1f, update in place %.1f GB/s, by "
                 "%d threads",
                 best[STREAM_read], best[STREAM_write], best[STREAM_copy], best[STREAM_update],
                 threads);
    arena_release(&memory);
}

void check_speed(struct findings *f)
{
    int threads = thread_cores();
    check_products(f, threads);
    check_bandwidth(f, threads);
}
