// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/launch_flags.h"
#include "app/preflight.h"
#include "base/log.h"
#include "base/port.h"
#include "base/signals.h"
#include "config/config.h"
#include "config/no_effect.h"
#include "machine/cores.h"
#include "machine/launch.h"
#include "machine/machine.h"
#include "train/inputs.h"
#include "train/rank_check.h"
#include "train/run.h"

#include <stdio.h>

/* Checks on rank 0 everything that can be checked before the run opens it. */
static enum status check_run(const struct config *c, const struct comm *world, bool oversubscribe)
{
    struct preflight p = {0};
    struct preflight_options o = {
        .num_ranks = world->size, .place = PREFLIGHT_RUN, .oversubscribe = oversubscribe};
    enum status st = STATUS_OK;
    TRY(cores_host_ranks(world, &o.host_ranks));
    if (!config_check(c, world->size)) TRY(inputs_fetch(c, world)); /* all ranks have the same c */
    if (!world->rank) st = preflight(&p, c, &o);
    preflight_release(&p);
    bool is_reported = status_is_reported();
    st = comm_agree(world, st);
    if (st && is_reported) status_mark_reported();
    return st;
}

static enum status train(const struct config *c, bool oversubscribe)
{
    struct machine machine = {0};
    struct text hosts = {0};
    enum status st = STATUS_OK;
    signals_catch();
    port_return_large_blocks(); /* what is only checked at the start */
    TRY_OUT(machine_join(&machine));
    TRY_OUT(rank_check_config(c, &machine.world));
    if (!machine.world.rank) no_effect_log(c);
    TRY_OUT(check_run(c, &machine.world, oversubscribe));
    TRY_OUT(machine_open_ranks(&machine, &c->device, &c->parallelism));
    TRY_OUT(cores_describe_hosts(&machine.world, &hosts));
    if (machine.world.size > 1) log_line(LOG_INFO, "ranks: %s", hosts.data);
    machine_tune(&machine, &c->device, 0);
    if (!(c->metrics.peak_flops > 0))
        machine_measure_peak(&machine, training_compute_dtype(&c->training));
    TRY_OUT(run_train(c, &machine));
out:
    machine_close_ranks(&machine, st);
    text_release(&hosts);
    return st;
}

static const struct usage usage = {
    "train",
    {{NULL, {USAGE_ONE(FILE, "CONFIG"), USAGE_FLAGS("[--ranks N | --gpus GPUS]"), USAGE_SETTINGS}}},
    "Trains the model that CONFIG describes.  Resumes automatically from the newest\n"
    "intact checkpoint in job.dump_folder.  On SIGTERM, SIGINT (Ctrl-C), SIGHUP,\n"
    "SIGUSR1, SIGUSR2, SIGXCPU or SIGXFSZ, and ahead of the end of its Slurm job\n"
    "(SLURM_JOB_END_TIME), the run saves a checkpoint and exits with 75.  More\n"
    "signals do not end it sooner, except the third Ctrl-C.",
};

enum status command_train(int argc, char **argv)
{
    bool quiet = false, oversubscribe = false, is_rank = false;
    struct launch_flags launch = LAUNCH_NONE;
    const struct flag flags[] = {
        LAUNCH_FLAGS(&launch),
        {"quiet", FLAG_SWITCH, &quiet,
         "print only warnings and errors on stderr (log.txt has everything)"},
        {"allow-oversubscribe", FLAG_SWITCH, &oversubscribe,
         "start even if the run needs more memory or disk space than it has"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(launch_flags_apply(&launch, &a));
    log_set_quiet(quiet);
    struct config c;
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st && c.job.print_config && !launch_find().rank) {
        struct text toml = {0};
        config_write(&c, true, &toml);
        fprintf(stderr, "%s", toml.data);
        text_release(&toml);
    }
    if (!st) st = launch_flags_start(&launch, c.device.gpus, &is_rank);
    if (!st && is_rank) st = train(&c, oversubscribe);
    config_release(&c);
    return st;
}
