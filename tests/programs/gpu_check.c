/* gpu_check.c -- compares this machine's GPU with its CPU:
 *
 *   gpu_check odd                          every operation, at sizes no tile divides
 *   gpu_check step CONFIG [key=value ...]  the operations of a training step of CONFIG
 *   gpu_check train [key=value ...]        losses and gradients of small models
 *   gpu_check bits [key=value ...]         graphs and offloading, which change no bit
 *   gpu_check nccl                         NCCL's transfers, with one rank
 *   gpu_check self                         checks that end their process
 *
 * Prints every comparison and the largest error of those that passed; exits with 1 if there is a
 * mismatch.  Checks run in a child process.  After one that hangs, crashes, or leaves the device
 * unusable, as an illegal access does until the process ends, another child does the rest.  For
 * debuggers and sanitizers ONE_PROCESS=1 in the environment means: no child, no limit. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/nccl/nccl.h"
#include "machine/machine.h"
#include "system/device_check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIASES    "model.attention_bias=all"
#define HALF      "training.mixed_precision_param=bfloat16"
#define DOCUMENTS "model.attn_mask_type=block_causal"
/* Other algorithms: except on a B200, cuDNN has backward with documents only in this case. */
#define ANY_ORDER "device.deterministic=false"

enum { MAX_SETTINGS = 32, MAX_OF_RUN = 5, CHECK_LIMIT_S = 30 };

/* Replaces the open device, if there is one.  UNSUPPORTED: no GPU. */
static enum status open_device(struct device_check *c, const struct device_config *config)
{
    machine_close(&c->device);
    TRY(machine_open(&c->device, config));
    if (!c->device.queue->device) FAIL(UNSUPPORTED, "no GPU found");
    return STATUS_OK;
}

static enum status check_run(struct device_check *c, const char *const *settings, int count,
                             double tolerance)
{
    struct config config = {0};
    TRY(config_load(&config, NULL, settings, count));
    enum status st = open_device(c, &config.device);
    if (!st) st = device_check_training(c, &config, (int)config.training.steps, tolerance);
    config_release(&config);
    TRY(st);
    return STATUS_OK;
}

/* The settings of a small model, and those of one run, up to a NULL. */
static int small_model(const char *settings[MAX_SETTINGS], const char *const run[MAX_OF_RUN])
{
    static const char *const model[] = {"model.dim=256",
                                        "model.n_layers=2",
                                        "model.n_heads=4",
                                        "model.n_kv_heads=2",
                                        "model.ffn_hidden=512",
                                        "model.vocab_size=1003",
                                        "training.seq_len=256",
                                        "training.local_batch_size=2",
                                        "training.steps=20",
                                        "optimizer.lr=1e-3",
                                        "lr_scheduler.warmup_steps=4",
                                        "training.dataset_path=none"};
    int n = 0;
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) settings[n++] = model[i];
    for (int i = 0; i < MAX_OF_RUN && run[i]; i++) settings[n++] = run[i];
    return n;
}

static enum status check_training(struct device_check *c, const char *const *more, int count)
{
    static const struct {
        const char *what;
        double tolerance;
        const char *settings[MAX_OF_RUN];
    } runs[] = {
        {"float32", 1e-5, {"training.mixed_precision_param=float32", "model.tie_embeddings=true"}},
        {"bfloat16, recomputed", 1e-2, {HALF, "activation_checkpoint.mode=full"}},
        {"bfloat16, sums in any order", 1e-2, {HALF, ANY_ORDER}},
        {"bfloat16, documents", 1e-2, {HALF, DOCUMENTS}},
        {"bfloat16, documents, sums in any order", 1e-2, {HALF, DOCUMENTS, ANY_ORDER}},
        {"bfloat16, documents, sums in any order, heads of 128 elements",
         1e-2,
         {HALF, DOCUMENTS, ANY_ORDER, "model.n_heads=2", "model.n_kv_heads=1"}},
        /* Values halfway between two FP8 values may round to either: the emulator and the CPU's AMX
         * kernels differ by 6e-2. */
        {"FP8", 1e-1, {HALF, "model.converters=[\"float8\"]"}},
        {"bfloat16, a sliding window", 1e-2, {HALF, "model.sliding_window=100"}},
        /* The gradient of the keys' bias nearly cancels; without RoPE it would be 0. */
        {"bfloat16, biases", 5e-2, {HALF, BIASES, "model.mlp_bias=true"}},
        {"bfloat16, QK norm and biases", 5e-2, {HALF, BIASES, "model.qk_norm=true"}},
        {"bfloat16, 8-bit moments", 1e-2, {HALF, "optimizer.state_dtype=int8"}},
    };
    if (count > MAX_SETTINGS - 18) FAIL(USAGE, "at most %d settings", MAX_SETTINGS - 18);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!device_check_begin(c, runs[i].what)) continue;
        const char *settings[MAX_SETTINGS];
        int n = small_model(settings, runs[i].settings);
        for (int k = 0; k < count; k++) settings[n++] = more[k];
        printf("--- %s\n", runs[i].what);
        if (check_run(c, settings, n, runs[i].tolerance)) device_check_fail(c);
    }
    return STATUS_OK;
}

/* Trains with the last setting and with `other` in its place, which must give the same bits. */
static enum status compare_bits(struct device_check *c, const char **settings, int count,
                                const char *other)
{
    struct config x = {0}, y = {0};
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&x, NULL, settings, count));
    settings[count - 1] = other;
    TRY_OUT(config_load(&y, NULL, settings, count));
    TRY_OUT(open_device(c, &x.device));
    TRY_OUT(device_check_same_bits(c, &x, &y, (int)x.training.steps));
out:
    config_release(&y);
    config_release(&x);
    return st;
}

static enum status check_bits(struct device_check *c, const char *const *more, int count)
{
    static const struct {
        const char *plain, *other, *settings[MAX_OF_RUN];
    } pairs[] = {
        {"device.graphs=false", "device.graphs=true", {HALF}},
        {"device.graphs=false", "device.graphs=true", {"training.mixed_precision_param=float32"}},
        {"optimizer.offload=false", "optimizer.offload=true", {HALF}},
        {"optimizer.offload=false",
         "optimizer.offload=true",
         {HALF, "optimizer.state_dtype=bfloat16"}},
        {"optimizer.offload=false", "optimizer.offload=true", {HALF, "optimizer.state_dtype=int8"}},
        {"activation_checkpoint.offload=false",
         "activation_checkpoint.offload=true",
         {HALF, "model.n_layers=5"}},
    };
    if (count > MAX_SETTINGS - 18) FAIL(USAGE, "at most %d settings", MAX_SETTINGS - 18);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!device_check_begin(c, pairs[i].other)) continue;
        const char *settings[MAX_SETTINGS];
        int n = small_model(settings, pairs[i].settings);
        for (int k = 0; k < count; k++) settings[n++] = more[k];
        settings[n++] = pairs[i].plain;
        printf("--- %s and %s, the same bits\n", pairs[i].plain, pairs[i].other);
        if (compare_bits(c, settings, n, pairs[i].other)) device_check_fail(c);
    }
    return STATUS_OK;
}

/* Attention has one algorithm for each value of device.deterministic. */
static enum status check_step(struct device_check *c, const char *path, const char *const *settings,
                              int count)
{
    struct config config = {0};
    TRY(config_load(&config, path, settings, count));
    enum status st = STATUS_OK;
    config.validation.enable = false;
    c->only_attention = false;
    for (int i = 0; i < 2 && !c->is_lost; i++) {
        printf("--- device.deterministic=%s\n", config.device.deterministic ? "true" : "false");
        TRY_OUT(open_device(c, &config.device));
        TRY_OUT(device_check_step(c, &config));
        config.device.deterministic = !config.device.deterministic;
        c->only_attention = true;
    }
out:
    config_release(&config);
    return st;
}

static enum status check_nccl(struct device_check *c)
{
#if LLAMERO_NCCL
    TRY(nccl_self_test(c->device.queue));
    printf("NCCL moves data from this GPU to itself\n");
#else
    (void)c;
    printf("skipped: this program was built without NCCL\n");
#endif
    return STATUS_OK;
}

/* The second check is killed, the third loses the device. */
static void check_self(struct device_check *c)
{
    for (int i = 0; i < 4; i++) {
        if (!device_check_begin(c, "an end")) continue;
        if (i == 1) raise(SIGKILL);
        c->count++;
        if (i == 2) c->failed++, c->is_lost = true;
    }
}

static enum status run_checks(struct device_check *c, int argc, char **argv)
{
    const struct device_config cpu = {.kind = DEVICE_KIND_cpu};
    const struct device_config device = {.kind = DEVICE_KIND_auto, .deterministic = true};
    const char *const *more = (const char *const *)argv;
    enum status st = STATUS_OK;
    if (argc == 2 && !strcmp(argv[1], "self")) {
        check_self(c);
        return STATUS_OK;
    }
    TRY_OUT(machine_open(&c->cpu, &cpu));
    TRY_OUT(open_device(c, &device));
    if (argc == 2 && !strcmp(argv[1], "nccl"))
        TRY_OUT(check_nccl(c));
    else if (argc == 2 && !strcmp(argv[1], "odd"))
        device_check_odd(c);
    else if (argc > 1 && !strcmp(argv[1], "bits"))
        TRY_OUT(check_bits(c, more + 2, argc - 2));
    else if (argc > 1 && !strcmp(argv[1], "train"))
        TRY_OUT(check_training(c, more + 2, argc - 2));
    else if (argc > 2 && !strcmp(argv[1], "step"))
        TRY_OUT(check_step(c, argv[2], more + 3, argc - 3));
    else
        FAIL_OUT(USAGE, "gpu_check odd | step CONFIG [key=value ...] | train [key=value ...] | "
                        "bits [key=value ...] | nccl | self");
out:
    alarm(0);
    machine_close(&c->device);
    machine_close(&c->cpu);
    return st;
}

static bool run_here(struct device_check *c, int argc, char **argv)
{
    enum status st = run_checks(c, argc, argv);
    if (st) log_failure(st);
    return !st;
}

/* Returns whether checks are left; *good: whether the child could do what it has begun. */
static bool run_child(struct device_check *c, int argc, char **argv, bool *good)
{
    int begun = c->begun, code = 0;
    c->is_lost = false, c->begun_here = 0;
    c->cpu = c->device = (struct machine){0}; /* of a child that was killed */
    (void)fflush(stdout);
    pid_t child = fork();
    if (!child) {
        c->limit_s = CHECK_LIMIT_S;
        exit(run_here(c, argc, argv) ? 0 : 1);
    }
    if (child < 0) perror("gpu_check");
    *good = child > 0 && waitpid(child, &code, 0) == child && !code;
    if (WIFSIGNALED(code)) {
        c->count++, c->failed++;
        printf("FAILED %s: its process was ended by signal %d (%s)\n", c->what, WTERMSIG(code),
               strsignal(WTERMSIG(code)));
    }
    return (c->is_lost || WIFSIGNALED(code)) && c->begun > begun;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a killed process loses no line */
    struct device_check *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) {
        perror("gpu_check");
        return 1;
    }
    *c = (struct device_check){.prints = true};
    bool in_child = !getenv("ONE_PROCESS"), good = in_child || run_here(c, argc, argv);
    while (in_child) in_child = run_child(c, argc, argv, &good);
    if (c->count)
        printf("%d comparisons, %d mismatches; the others within %.1e in float32, %.1e in "
               "bfloat16\n",
               c->count, c->failed, c->worst[F32], c->worst[BF16]);
    return good && !c->failed ? 0 : 1;
}
