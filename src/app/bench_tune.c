// SPDX-License-Identifier: Apache-2.0
#include "app/bench_tune.h"

#include "base/log.h"
#include "config/config.h"
#include "machine/machine.h"
#include "train/trainer.h"

#include <math.h>

/* Sizing passes over the device's own operations: each chooses the kernels of its GEMMs. */
static enum status size_stages(const struct machine *m, const struct config *c,
                               const struct model_shape *shape)
{
    struct memory_plan plan;
    struct machine simulated = *m;
    int64_t ranks = mesh_min_ranks(&c->parallelism);
    TRY(mesh_resolve(&simulated.mesh, &c->parallelism, 0, ranks > 0 ? (int)ranks : 1));
    TRY(config_fit(c, shape, &simulated.mesh));
    machine_share_gpu(&simulated, &c->device);
    for (int stage = 0; stage < simulated.mesh.degree[AXIS_pp]; stage++) {
        simulated.mesh.at[AXIS_pp] = stage;
        groups_init_simulated(&simulated.groups, &simulated.mesh);
        TRY(trainer_plan(c, shape, &simulated, &plan));
    }
    return STATUS_OK;
}

static enum status tune_config(const struct bench_tune *t, const char *path)
{
    struct config c = {0};
    struct machine m = {0};
    struct model_shape shape;
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&c, path, t->settings, t->num_settings));
    c.device.tune_gemm = true;
    c.validation.enable = c.checkpoint.enable = false;
    TRY_OUT(config_assign(&c, "device.tune_file", t->file, "--tune"));
    TRY_OUT(model_shape_resolve(&shape, &c.model, 0));
    if (shape.max_context < c.training.seq_len) shape.max_context = (int)c.training.seq_len;
    TRY_OUT(machine_open(&m, &c.device));
    machine_tune(&m, &c.device, INFINITY);
    TRY_OUT(size_stages(&m, &c, &shape));
out:
    machine_close(&m); /* saves the results */
    config_release(&c);
    return st;
}

enum status bench_tune_run(const struct bench_tune *t)
{
    if (!t->num_configs)
        FAIL(USAGE, "bench --tune: expected configurations whose GEMMs to time, such as "
                    "configs/*.toml");
    struct failure first = {0};
    for (int i = 0; i < t->num_configs; i++) {
        log_line(LOG_INFO, "%s", t->configs[i]);
        enum status st = tune_config(t, t->configs[i]);
        if (st && t->num_configs == 1) return st;
        if (st) log_line(LOG_WARN, "%s: not timed: %s", t->configs[i], status_message());
        if (st) status_save(&first, st);
    }
    return status_restore(&first);
}
