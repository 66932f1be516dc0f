/* ranks.c -- two single-threaded ranks with FSDP versus one rank of two threads, and the gain from
 * overlapping the transfer of weights and gradients with computation.
 *
 *     bench/ranks [ROUNDS [PATIENCE]]
 *
 * The configurations alternate, so that a noisy neighbor affects all of them; the results are
 * medians over the rounds of each round's median step.  Rounds in which other processes took more
 * than 5 % of the cores are dropped if there is a better one; each round waits up to PATIENCE
 * seconds for an idle machine.  "No overlap" runs the same code over a transport that waits for
 * each transfer where it starts.  LLAMERO_MPIRUN names the launcher. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "machine/launch.h"
#include "machine/machine.h"
#include "train/inputs.h"
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STEPS = 8, WARMUP = 2, ROUNDS = 5, MAX_ROUNDS = 50 };
#define QUIET 0.05 /* share of the cores that other processes may use */

static const char *const settings[] = {
    "model.dim=512",         "model.n_layers=8",
    "model.n_heads=8",       "model.n_kv_heads=8",
    "model.ffn_hidden=1408", "model.vocab_size=1024",
    "training.seq_len=512",  "training.global_batch_size=4",
    "training.steps=100",    "activation_checkpoint.mode=none",
    "data.tokenizer=bytes",  "data.streams=8",
};
enum { NUM_SETTINGS = sizeof settings / sizeof *settings, MAX_SETTINGS = NUM_SETTINGS + 8 };

static const struct run_kind {
    const char *name, *label;
    int ranks;
    bool blocking;
    const char *settings[3];
} kinds[] = {
    {"threads", "one rank, two threads", 1, false, {"device.threads=2"}},
    {"ranks", "two ranks, FSDP", 2, false, {"device.threads=1"}},
    {"blocking", "two ranks, FSDP, no overlap", 2, true, {"device.threads=1"}},
    {"gathered",
     "two ranks, FSDP, stay gathered",
     2,
     false,
     {"device.threads=1", "parallelism.fsdp_reshard_after_forward=never"}},
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

/* --- in a rank: a transport whose start() blocks until the transfer is done --- */

static const struct transport *nonblocking;
static struct transport blocking;
static double blocking_s; /* seconds blocked since the step began */

static enum status blocking_split(const struct comm *c, int color, int key, struct comm *out)
{
    TRY(nonblocking->split(c, color, key, out));
    out->transport = &blocking;
    return STATUS_OK;
}

static enum status blocking_start(const struct comm *c, struct transfer *t)
{
    double begin = clock_monotonic_s();
    TRY(nonblocking->start(c, t));
    TRY(nonblocking->wait(t));
    t->in_flight = NULL;
    blocking_s += clock_monotonic_s() - begin;
    return STATUS_OK;
}

static enum status blocking_wait(struct transfer *t)
{
    (void)t;
    return STATUS_OK;
}

static void make_blocking(struct comm *world)
{
    nonblocking = world->transport;
    blocking = *nonblocking;
    blocking.split = blocking_split, blocking.start = blocking_start, blocking.wait = blocking_wait;
    world->transport = &blocking;
}

/* --- in a rank: training steps --- */

struct rank {
    struct config config;
    struct machine machine;
    struct tokenizer *tokenizer;
    struct source_config source;
    struct data_config data;
    struct loader *loader;
    struct trainer trainer;
};

static enum status open_rank(struct rank *r, const struct run_kind *k, const char *corpus)
{
    const char *all[MAX_SETTINGS];
    struct model_shape shape;
    struct trainer *t = &r->trainer;
    struct text path = {0}, rows = {0};
    int n = 0;
    for (; n < NUM_SETTINGS; n++) all[n] = settings[n];
    for (int i = 0; i < 3 && k->settings[i]; i++) all[n++] = k->settings[i];
    text_addf(&path, "training.dataset_path=%s", corpus);
    text_addf(&rows, "training.local_batch_size=%d", 4 / k->ranks);
    all[n++] = path.data, all[n++] = rows.data;
    TRY(config_load(&r->config, NULL, all, n));
    TRY(machine_join(&r->machine));
    if (k->blocking) make_blocking(&r->machine.world);
    TRY(machine_open_ranks(&r->machine, &r->config.device, &r->config.parallelism));
    TRY(tokenizer_open(&r->tokenizer, "bytes", &r->config.tokenizer));
    TRY(model_shape_resolve(&shape, &r->config.model, tokenizer_vocab_size(r->tokenizer)));
    r->data = inputs_data_config(&r->config, &r->source);
    struct loader_options o =
        inputs_loader_options(&r->config, &r->machine.mesh, &r->data, r->tokenizer, shape.V);
    TRY(loader_open(&r->loader, &o));
    TRY(trainer_open(t, &r->config, &shape, &r->machine));
    TRY(trainer_init_weights(t, 1));
    TRY(trainer_sync_weights(t));
    text_release(&path), text_release(&rows);
    return STATUS_OK;
}

/* Seconds in which a step waited for transfers. */
static double waited_s(const struct trace *t)
{
    double sum = blocking_s;
    for (size_t i = 0; i < t->count; i++)
        if (!t->spans[i].track && !strncmp(t->spans[i].name, "wait", 4))
            sum += t->spans[i].end_s - t->spans[i].begin_s;
    return sum;
}

/* Prints tokens per second and the share of a step spent waiting, both of rank 0. */
static enum status measure(const struct run_kind *k, const char *corpus)
{
    struct rank r = {0};
    double seconds[STEPS], waits[STEPS];
    TRY(open_rank(&r, k, corpus));
    for (int step = -WARMUP; step < STEPS; step++) {
        struct trace trace = {0};
        struct step_result s;
        r.machine.queue->trace = &trace, blocking_s = 0;
        double begin = clock_monotonic_s();
        TRY(trainer_step(&r.trainer, r.loader, &s));
        if (step >= 0) seconds[step] = clock_monotonic_s() - begin, waits[step] = waited_s(&trace);
        trace_release(&trace);
    }
    double tokens = 4.0 * r.trainer.batch.T, s = median(seconds, STEPS);
    if (!r.machine.world.rank) printf("%.9g %.9g\n", tokens / s, median(waits, STEPS) / s);
    trainer_close(&r.trainer);
    loader_close(r.loader);
    tokenizer_close(r.tokenizer);
    if (k->blocking) r.machine.world.transport = nonblocking;
    machine_close_ranks(&r.machine, STATUS_OK);
    config_release(&r.config);
    return STATUS_OK;
}

/* --- in the parent: starts and times the ranks --- */

/* Busy CPU seconds of all cores since boot. */
static double busy_s(void)
{
    double ticks[8] = {0}, sum = 0;
    FILE *f = fopen("/proc/stat", "r");
    int got = f ? fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                         &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7])
                : 0;
    if (f) fclose(f);
    for (int i = 0; i < got; i++) sum += i == 3 || i == 4 ? 0 : ticks[i];
    return sum / (double)sysconf(_SC_CLK_TCK);
}

static double children_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void wait_for_quiet(double patience_s)
{
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), end = clock_monotonic_s() + patience_s;
    while (clock_monotonic_s() < end) {
        double busy = busy_s();
        sleep(1);
        if (busy_s() - busy <= QUIET * cores) return;
    }
}

static enum status launch_run(const struct run_kind *k, const char *self, const char *folder,
                              double *rate, double *share)
{
    struct text command = {0};
    const char *launcher = getenv("LLAMERO_MPIRUN");
    text_adds(&command, "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ");
    if (k->ranks > 1) text_addf(&command, "%s -n %d ", launcher ? launcher : "mpirun", k->ranks);
    text_addf(&command, "%s %s %s/corpus.txt", self, k->name, folder);
    FILE *out = popen(command.data, "r");
    int got = out ? fscanf(out, "%lf %lf", rate, share) : 0;
    int code = out ? pclose(out) : -1;
    text_release(&command);
    if (got != 2 || code) FAIL(IO, "%s: the run failed", k->label);
    return STATUS_OK;
}

/* By round. */
struct results {
    double rate[MAX_ROUNDS], wait_share[MAX_ROUNDS], others[MAX_ROUNDS];
};

static enum status run_round(const struct run_kind *k, const char *self, const char *folder,
                             int round, struct results *r)
{
    double begin = clock_monotonic_s(), busy = busy_s(), own = children_s();
    TRY(launch_run(k, self, folder, &r->rate[round], &r->wait_share[round]));
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), wall = clock_monotonic_s() - begin;
    r->others[round] = (busy_s() - busy - (children_s() - own)) / (wall * cores);
    return STATUS_OK;
}

struct summary {
    double rate, wait_share, slowest, fastest; /* rate, wait_share: medians; tokens per second */
    double others; /* CPU share of other processes in the quietest round */
    int counted;
};

/* Over the quiet rounds, or the quietest one. */
static struct summary summarize(const struct results *r, int rounds)
{
    struct summary s = {.others = 1};
    double rates[MAX_ROUNDS], waits[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) s.others = fmin(s.others, r->others[i]);
    for (int i = 0; i < rounds; i++) {
        if (r->others[i] > fmax(s.others, QUIET)) continue;
        rates[s.counted] = r->rate[i], waits[s.counted++] = r->wait_share[i];
    }
    s.rate = median(rates, s.counted), s.wait_share = median(waits, s.counted);
    s.slowest = rates[0], s.fastest = rates[s.counted - 1];
    return s;
}

static void print_summary(const struct results *r, int rounds)
{
    double first = summarize(r, rounds).rate;
    printf("%-30s tokens/s   slowest, fastest   ratio  waited  rounds  other load\n", "");
    for (int k = 0; k < NUM_KINDS; k++) {
        struct summary s = summarize(&r[k], rounds);
        printf("%-30s %8.0f  %8.0f  %8.0f  %6.3f  %5.1f%%  %2d of %2d  from %.1f%%\n",
               kinds[k].label, s.rate, s.slowest, s.fastest, s.rate / first, 100 * s.wait_share,
               s.counted, rounds, 100 * s.others);
    }
}

static bool has_launcher(void)
{
    struct text command = {0};
    const char *launcher = getenv("LLAMERO_MPIRUN");
    text_addf(&command, "command -v %s >/dev/null", launcher ? launcher : "mpirun");
    bool has = LLAMERO_MPI && system(command.data) == 0;
    text_release(&command);
    if (!has) printf("skipped: mpirun not found, or built without MPI\n");
    return has;
}

static enum status compare(const char *self, int rounds, double patience_s)
{
    char folder[] = "/tmp/llamero-bench-XXXXXX";
    static struct results results[NUM_KINDS];
    struct text corpus = {0};
    if (!mkdtemp(folder)) FAIL(IO, "%s: cannot create the folder: %s", folder, strerror(errno));
    char *path = file_join(folder, "corpus.txt");
    for (int i = 0; i < 20000; i++)
        text_adds(&corpus, "the llama walks over a mountain and carries salt to the town.\n");
    enum status st = file_write(path, corpus.data, corpus.len);
    for (int round = 0; !st && round < rounds; round++)
        for (int k = 0; !st && k < NUM_KINDS; k++) {
            wait_for_quiet(patience_s);
            st = run_round(&kinds[k], self, folder, round, &results[k]);
        }
    if (!st) print_summary(results, rounds);
    enum status removed = file_remove_tree(folder);
    text_release(&corpus);
    free(path);
    return st ? st : removed;
}

static enum status run_benchmark(int argc, char **argv)
{
    if (argc == 3)
        for (int k = 0; k < NUM_KINDS; k++)
            if (!strcmp(kinds[k].name, argv[1])) return measure(&kinds[k], argv[2]);
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    if (argc > 3 || rounds < 1 || rounds > MAX_ROUNDS)
        FAIL(USAGE, "usage: ranks [ROUNDS [PATIENCE]]; at most %d rounds", (int)MAX_ROUNDS);
    if (has_launcher()) TRY(compare(argv[0], rounds, argc > 2 ? atof(argv[2]) : 0));
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    enum status st = run_benchmark(argc, argv);
    if (!st) return 0;
    fprintf(stderr, "%s\n%s", status_message(), status_stack());
    launch_abort(status_exit_code(st));
    return status_exit_code(st);
}
