/* test_corruption.c -- a run whose memory another process changes ends with exit code 83. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PLACES = 16, TIMEOUT_S = 300 };

/* The process's largest anonymous mapping: weights, moments and gradients. */
static size_t largest_mapping(pid_t pid, unsigned long *begin)
{
    char path[64], line[512];
    size_t largest = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to, inode;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, mode, &inode) != 4) continue;
        if (inode || strcmp(mode, "rw-p") || strchr(line, '[') || to - from <= largest) continue;
        *begin = from, largest = to - from;
    }
    if (f) fclose(f);
    return largest;
}

/* Flips the lowest bit of a float in PLACES places; false if the system does not allow it. */
static bool flip_bits(pid_t pid)
{
    char path[64];
    unsigned long begin = 0;
    unsigned char byte;
    size_t size = largest_mapping(pid, &begin);
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return false;
    for (size_t i = 1; size && i < PLACES; i++) {
        off_t at = (off_t)(begin + size / PLACES * i / 4096 * 4096);
        if (pread(fd, &byte, 1, at) != 1) continue;
        byte ^= 1;
        if (pwrite(fd, &byte, 1, at) != 1) continue;
    }
    close(fd);
    return true;
}

TEST(flipped_bits_in_a_running_process_end_the_run_with_exit_code_83)
{
    struct rlimit stack;
    if (TEST_SLOWED) skip(); /* the largest mapping would be the shadow memory of ASan */
    CHECK(!getrlimit(RLIMIT_STACK, &stack));
    stack.rlim_cur = 1 << 20; /* no thread's stack is the largest mapping */
    CHECK(!setrlimit(RLIMIT_STACK, &stack));
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *dump = test_path(folder, "dump"), *log = test_path(folder, "err");
    char dump_folder[512];
    struct text err = {0};
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(config, test_path(folder, "corpus.txt"));
    snprintf(dump_folder, sizeof dump_folder, "job.dump_folder=%s", dump);
    pid_t pid = RUNS_START(log, "train", config, dump_folder, "guard.hash_every=1", "model.dim=128",
                           "model.ffn_hidden=512", "model.n_layers=4",
                           "training.mixed_precision_param=float32", "training.steps=100000",
                           "metrics.log_freq=1", "checkpoint.enable=true", "checkpoint.interval=1",
                           "checkpoint.keep_latest_k=3", "device.threads=1");
    runs_wait_for_bytes(test_path(dump, "metrics.jsonl"), 1500); /* some steps */
    int code, flips = 0;
    bool ended = false, is_allowed = true;
    for (int ms = 0; !ended && is_allowed && ms < TIMEOUT_S * 1000; ms += 10) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        ended = waitpid(pid, &code, WNOHANG) == pid;
        if (ended) continue;
        is_allowed = flip_bits(pid), flips += PLACES - 1;
    }
    if (!ended) kill(pid, SIGKILL), waitpid(pid, &code, 0);
    if (!is_allowed) skip();
    CHECK_STATUS(OK, file_read(log, 1 << 20, &err));
    if (!ended || !WIFEXITED(code) || WEXITSTATUS(code) != 83) print_error("%s\n", err.data);
    CHECK(ended && WIFEXITED(code) && WEXITSTATUS(code) == 83);
    print_message("exit code 83 after %d flipped bits\n", flips);
    const char *message = strstr(err.data, "changed in memory after the update of step ");
    CHECK(message && strstr(err.data, "rank 0 on "));
    long long step;
    char name[64];
    CHECK(sscanf(strstr(message, "of step ") + 8, "%lld", &step) == 1);
    snprintf(name, sizeof name, "dump/checkpoint/step-%lld", step - 1);
    CHECK(file_exists(test_path(folder, name)));
    snprintf(name, sizeof name, "dump/checkpoint/step-%lld", step);
    CHECK(!file_exists(test_path(folder, name)));
    text_release(&err);
}
