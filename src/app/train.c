// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "base/log.h"
#include "config/config.h"
#include "machine/machine.h"
#include "parallel/cores.h"
#include "train/run.h"

#include <stdio.h>
#include <string.h>

static enum status train(const struct config *c)
{
    struct machine machine = {0};
    struct text hosts = {0};
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&machine));
    TRY_OUT(machine_open_ranks(&machine, &c->device, &c->parallelism));
    TRY_OUT(cores_describe_hosts(&machine.world, &hosts));
    if (machine.world.size > 1) log_line(LOG_INFO, "ranks: %s", hosts.data);
    TRY_OUT(comm_agree(&machine.world, config_check(c, machine.world.size)));
    machine_tune(&machine, &c->device);
    if (!(c->metrics.peak_flops > 0))
        machine_measure_peak(&machine,
                             strcmp(c->training.mixed_precision_param, "float32") ? BF16 : F32);
    TRY_OUT(run_train(c, &machine));
out:
    machine_close_ranks(&machine, st);
    text_release(&hosts);
    return st;
}

enum status command_train(int argc, char **argv)
{
    bool quiet = false;
    const struct flag flags[] = {
        {"quiet", FLAG_SWITCH, &quiet, "only warnings and errors on stderr; log.txt has all"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "train CONFIG [section.key=value ...]\n\n"
        "Trains what CONFIG describes, and resumes by itself from the newest complete\n"
        "checkpoint in job.dump_folder.  SIGTERM, SIGUSR1 and Ctrl-C end the step,\n"
        "write a checkpoint and exit with 75; a second signal ends at once.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    log_set_quiet(quiet);
    struct config c;
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st && c.job.print_config) {
        struct text toml = {0};
        config_write(&c, true, &toml);
        fprintf(stderr, "%s", toml.data);
        text_release(&toml);
    }
    if (!st) st = train(&c);
    config_release(&c);
    return st;
}
