// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "config/data_stages.h"
#include "train/run_checkpoint.h"
#include "train/run_report.h"
#include "train/run_setup.h"
#include "train/run_steps.h"

#include <stdlib.h>

/* Steps that are complete, with their validation.  One that is due is that of the last step, with
 * the settings of that step's stage. */
static int64_t steps_completed(const struct training_run *r)
{
    return r->trainer.steps_done - r->validation_due;
}

static bool is_in_stage(const struct training_run *r)
{
    int64_t done = steps_completed(r);
    return done >= r->begin && (done < r->end || r->end == r->config->training.steps);
}

/* One stage of the data, from the newest checkpoint to the stage's end.  *here: whether that
 * checkpoint was of this stage; otherwise nothing was done. */
static enum status run_stage(struct training_run *r, const struct machine *machine, bool *here)
{
    enum status st = run_setup_open(r, machine);
    *here = !st && (is_in_stage(r) || r->config->checkpoint.create_seed_checkpoint);
    if (*here && r->config->checkpoint.create_seed_checkpoint) {
        st = run_checkpoint_save(r, false);
    } else if (*here) {
        run_report_begin(r->report, r);
        st = run_steps_train(r);
    }
    return run_setup_close(r, st);
}

/* Steps of the newest checkpoint, or of the one to go back to; 0: none. */
static enum status find_steps(const struct config *c, const struct comm *world, int64_t *steps)
{
    struct folder_steps l = {0};
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    enum status st = world->rank == 0 ? folder_steps_read(&l, folder) : STATUS_OK;
    *steps = l.count ? l.steps[l.count - 1] : 0;
    if (l.count && c->checkpoint.load_step >= 0 && c->checkpoint.load_step < *steps)
        *steps = c->checkpoint.load_step;
    folder_steps_release(&l);
    free(folder);
    TRY(comm_agree(world, st));
    return comm_all_reduce_int64(world, REDUCE_MAX, steps, 1);
}

static void log_stage(const struct data_stage *s, size_t index, const struct mesh *mesh)
{
    struct text t = {0};
    data_stages_describe(s, mesh, &t);
    log_line(LOG_INFO, "data stage %zu, steps %lld to %lld: %s", index, (long long)s->begin + 1,
             (long long)s->end, t.data);
    text_release(&t);
}

enum status run_train(const struct config *c, const struct machine *machine)
{
    const struct comm *world_group = &machine->groups.of[GROUP_world];
    bool is_seed = c->checkpoint.create_seed_checkpoint, continues = false, here = true;
    struct run_report report = {0};
    int64_t done = 0;
    size_t stages = data_stages_count(c);
    if (stages > 1) TRY(find_steps(c, world_group, &done));
    for (int misses = 0; misses < 2; misses += !here) {
        struct data_stage stage;
        size_t index = data_stages_find(c, &machine->mesh, done);
        data_stages_open(&stage, c, &machine->mesh, index);
        struct training_run r = {.whole = c,
                                 .config = &stage.config,
                                 .report = &report,
                                 .begin = stage.begin,
                                 .end = stage.end};
        if (stages > 1 && world_group->rank == 0) log_stage(&stage, index, &machine->mesh);
        if (continues) stage.config.checkpoint.load_step = -1;
        enum status st = run_stage(&r, machine, &here);
        data_stages_close(&stage);
        TRY(st);
        done = steps_completed(&r);
        if (here && (is_seed || index + 1 == stages || done >= c->training.steps)) return STATUS_OK;
        continues |= here;
    }
    FAIL(DATA, "%s: other checkpoints appear while the run starts", c->job.dump_folder);
}
