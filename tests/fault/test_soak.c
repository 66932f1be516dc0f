/* test_soak.c -- one run that meets a fault every few seconds, for LLAMERO_FAULT_SOAK seconds. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "base/clock.h"

#include <math.h>

static const char *const faults[] = {
    "call=file,on=checkpoint,action=kill",
    "call=write+fsync+close,on=checkpoint,errno=EIO",
    "call=file,action=term",
    "call=write,on=checkpoint,errno=ENOSPC",
    "call=read+write,on=/,action=short",
    "call=open+opendir+readdir+stat,errno=ESTALE",
    "call=rename+mkdir,on=checkpoint,errno=EIO,action=after",
    "call=open+read+mmap,on=corpus,errno=EIO",
    "call=malloc",
    "call=fsync,action=delay,ms=1500",
    "call=rename+unlink,on=checkpoint,action=kill",
};
static const char *const signals[] = {"KILL", "TERM", "USR1", "INT"};
enum { NUM_FAULTS = sizeof faults / sizeof *faults };

/* A fault once in `every_s`, and a signal after four of them, if the run still lives. */
static void run_leg(const struct scene *s, int leg, double every_s, struct tally *t)
{
    char fault[256];
    int fired;
    struct text err = {0};
    const char *signal = signals[leg % 4];
    snprintf(fault, sizeof fault, "signal=%s,after=%.2f;%s,every=%.2f", signal, every_s * 5,
             faults[leg % NUM_FAULTS], every_s);
    int code = trial_run_once(s, fault, &fired, &err);
    bool is_signaled = code == 137 || code == 143 || code == 130 || code == 138 || code == 75;
    bool is_documented = code == 0 || code == 78 || code == 74 || code == 75 || is_signaled;
    t->tried += fired + is_signaled;
    if (!is_documented || strstr(err.data, "BUG")) {
        t->lost++;
        print_message("lost: exit code %d\n  FAULT=%s\n  %.600s\n", code, fault, err.data);
    }
    text_release(&err);
}

/* Seconds of a step. */
static double measure_step(const char *model)
{
    struct scene s;
    char settings[256];
    double begin_s = clock_monotonic_s();
    snprintf(settings, sizeof settings, "training.steps=100 checkpoint.interval=20 %s", model);
    scene_train(&s, 1, settings);
    return (clock_monotonic_s() - begin_s) / 100;
}

/* 0: none yet. */
static int newest_step(const struct scene *s)
{
    struct file_list list;
    int newest = 0;
    if (file_list_dir(&list, test_path(s->output, "checkpoint"))) return 0;
    for (size_t i = 0; i < list.count; i++) {
        int step = 0, end = 0;
        if (sscanf(list.paths[i], "step-%d%n", &step, &end) == 1 && !list.paths[i][end] &&
            step > newest)
            newest = step;
    }
    file_list_release(&list);
    return newest;
}

/* After the soak the run ends without faults, and an uninterrupted run of as many steps follows. */
TEST(train_survives_a_soak_of_faults)
{
    enum { KEPT = 3 }; /* checkpoints; those of the last steps have the configuration of the end */
    static const char model[] = "model.dim=128 model.ffn_hidden=512 model.n_layers=4";
    struct scene s;
    struct tally t = {0};
    struct text err = {0};
    char settings[256], steps[64] = "training.steps=100000000", row[64];
    const char *text = getenv("LLAMERO_FAULT_SOAK");
    double soak_s = text ? strtod(text, NULL) : 6, every_s = fmax(soak_s / 60, 0.25);
    /* A fault costs what was trained since the last save, at most. */
    int interval = (int)(every_s / 6 / measure_step(model)) + 1, words = 0;
    snprintf(settings, sizeof settings,
             "lr_scheduler.total_steps=100000000 metrics.log_freq=%d checkpoint.interval=%d "
             "checkpoint.keep_latest_k=%d %s",
             interval, interval, KEPT, model);
    scene_init_train(&s, 1, settings);
    while (s.words[words]) words++;
    s.words[words] = steps, s.timeout_s = (int)(soak_s * 10) + 100;
    double begin_s = clock_monotonic_s(), took_s = 0;
    for (int leg = 0; took_s < soak_s || (!newest_step(&s) && took_s < 10 * soak_s); leg++) {
        run_leg(&s, leg, every_s, &t);
        took_s = clock_monotonic_s() - begin_s; /* a busy machine may need longer to save once */
    }
    CHECK(newest_step(&s) > 0);
    int end = newest_step(&s) + KEPT * interval;
    snprintf(steps, sizeof steps, "training.steps=%d", end);
    const char *soaked = test_path(s.folder, "soaked");
    CHECK_STATUS(OK, file_rename(s.output, soaked));
    scene_open(&s);
    CHECK_STATUS(OK, file_rename(soaked, s.output));
    const char *bad = trial_judge_rerun(&s, &err);
    if (bad) print_message("lost: %s\n", bad), t.lost++;
    t.survived = t.tried - t.lost;
    snprintf(row, sizeof row, "a soak of %.0f s, %d steps, a fault every %.2g s", soak_s, end,
             every_s);
    tally_report(&t, s.name, row);
    text_release(&err);
}
