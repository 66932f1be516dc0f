/* step_size.c -- the rows of each optimizer step, which training.batch_ramp changes.  Every buffer
 * is that of the largest step, so no step allocates. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/text.h"
#include "train/trainer.h"

/* Microbatches of a step of that many rows on this rank; all microbatches have equally many. */
static int num_microbatches(const struct trainer *t, int rows)
{
    return rows / (t->batch.B / t->pipeline.schedule.num_microbatches);
}

/* Rows that this rank has room for in a step of `rows` rows. */
static int own_rows(const struct trainer *t, int64_t rows)
{
    return (int)config_reader_rows(t->config, &t->machine.mesh, rows);
}

void trainer_open_pipeline(struct trainer *t, const struct schedule *full)
{
    const struct config *c = t->config;
    const struct batch_ramp r = batch_ramp_of(&c->training, config_step_rows(c, &t->machine.mesh));
    t->ramp = r;
    t->step_rows = r.global;
    t->pipeline = (struct pipeline){.model = &t->model,
                                    .group = trainer_group(t, GROUP_pp),
                                    .stages = t->stages,
                                    .schedule = *full};
    pipeline_open(&t->pipeline);
    t->microbatches = heap((size_t)full->num_microbatches * sizeof *t->microbatches);
    for (int64_t rows = r.start; r.increment && rows < r.global; rows += r.increment)
        pipeline_reserve(&t->pipeline, num_microbatches(t, own_rows(t, rows)));
}

void trainer_begin_step(struct trainer *t)
{
    int64_t all = batch_ramp_rows(&t->ramp, t->rows_done);
    int rows = own_rows(t, all), count = num_microbatches(t, rows);
    if (all == t->step_rows) return;
    log_line(LOG_INFO, "from step %lld on the batch has %lld rows", (long long)t->steps_done + 1,
             (long long)all);
    t->step_rows = all;
    t->batch.B = t->local.B = rows;
    pipeline_set_microbatches(&t->pipeline, count);
}
