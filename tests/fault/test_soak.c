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
    bool is_documented = code == 0 || code == 70 || code == 74 || code == 75 || is_signaled;
    t->tried += fired + is_signaled;
    if (!is_documented || strstr(err.data, "BUG")) {
        t->lost++;
        print_message("lost: exit code %d\n  FAULT=%s\n  %.600s\n", code, fault, err.data);
    }
    text_release(&err);
}

TEST(train_survives_a_soak_of_faults)
{
    struct scene s, probe;
    struct tally t = {0};
    struct text err = {0};
    char settings[256], row[64];
    const char *text = getenv("LLAMERO_FAULT_SOAK");
    double soak_s = text ? strtod(text, NULL) : 10, every_s = fmax(soak_s / 60, 0.25);
    static const char model[] = "model.dim=128 model.ffn_hidden=512 model.n_layers=4 "
                                "checkpoint.keep_latest_k=3 checkpoint.interval=";
    snprintf(settings, sizeof settings, "training.steps=100 %s%d", model, 20);
    double begin_s = clock_monotonic_s();
    scene_train(&probe, 1, settings);
    double step_s = (clock_monotonic_s() - begin_s) / 100;
    /* Each fault costs what was trained since the last save, at most. */
    int steps = (int)(soak_s * 0.7 / step_s), interval = (int)(every_s / 6 / step_s) + 1;
    snprintf(settings, sizeof settings,
             "training.steps=%d lr_scheduler.total_steps=%d metrics.log_freq=%d %s%d", steps, steps,
             interval, model, interval);
    scene_train_for(&s, 1, settings, (int)(soak_s * 10) + 100);
    begin_s = clock_monotonic_s();
    for (int leg = 0; clock_monotonic_s() - begin_s < soak_s; leg++) run_leg(&s, leg, every_s, &t);
    const char *bad = trial_judge_rerun(&s, &err);
    if (bad) print_message("lost: %s\n", bad), t.lost++;
    t.survived = t.tried - t.lost;
    snprintf(row, sizeof row, "a soak of %.0f s, %d steps, a fault every %.2g s", soak_s, steps,
             every_s);
    tally_report(&t, s.name, row);
    text_release(&err);
}
