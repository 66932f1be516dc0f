// SPDX-License-Identifier: Apache-2.0
#include "train/traced_step.h"

#include "base/file.h"
#include "base/log.h"
#include "parallel/comm_trace.h"

static enum status write_trace(const struct trainer *t, const struct trace *trace)
{
    const struct config *c = t->config;
    struct text path = {0};
    enum status st = STATUS_OK;
    text_addf(&path, "%s/%s/iteration_%lld", c->job.dump_folder, c->profiling.save_traces_folder,
              (long long)t->steps_done);
    TRY_OUT(file_make_dirs(path.data));
    text_addf(&path, "/rank%d_trace.json", trainer_group(t, GROUP_world)->rank);
    TRY_OUT(trace_write(trace, path.data));
out:
    text_release(&path);
    return st;
}

enum status traced_step_run(struct trainer *t, struct loader *loader, struct step_result *result)
{
    const struct profiling_config *p = &t->config->profiling;
    struct trace trace = {0};
    struct comm_trace transfers;
    if (!p->enable_profiling || (t->steps_done + 1) % p->profile_freq)
        return trainer_step(t, loader, result);
    t->machine.queue->trace = &trace;
    comm_trace_begin(&transfers, &t->machine.groups, &trace);
    enum status st = trainer_step(t, loader, result);
    comm_trace_end(&transfers);
    t->machine.queue->trace = NULL;
    if (!st && write_trace(t, &trace))
        log_line(LOG_WARN, "cannot write the trace: %s", status_message());
    trace_release(&trace);
    return st;
}
