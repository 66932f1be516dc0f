// SPDX-License-Identifier: Apache-2.0
#include "train/stop.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Saves and steps may take longer than the last ones did. */
#define MARGIN     2
#define MIN_LEAD_S 1

/* SLURM_JOB_END_TIME, in seconds since 1970, or 0. */
static double find_job_end(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    char *end;
    if (!text || !*text) return 0;
    double seconds = strtod(text, &end), left = seconds - clock_wall_s();
    if (*end || !(left > 0 && left < 1e9)) {
        log_line(LOG_WARN,
                 "SLURM_JOB_END_TIME = \"%s\": expected a future time in seconds since 1970; "
                 "ignored",
                 text);
        return 0;
    }
    return seconds;
}

/* The signal comes in the middle of a step, if that has not ended then. */
static void set_alarm(const struct stop *s)
{
    if (s->job_end_s > 0) signals_alarm(s->job_end_s - s->lead_s - clock_wall_s());
}

void stop_init(struct stop *s, const struct comm *world, bool in_steps, double save_s)
{
    *s = (struct stop){.world = world, .in_steps = in_steps, .poll_s = STOP_POLL_S};
    s->every = world->size == 1;
    if (world->rank == 0) s->job_end_s = find_job_end();
    s->lead_s = MARGIN * save_s + MIN_LEAD_S;
    /* An estimate that is too long must not keep the run from its first steps. */
    if (s->job_end_s > 0) s->lead_s = fmin(s->lead_s, (s->job_end_s - clock_wall_s()) / 4);
    set_alarm(s);
}

static enum status open_unit(struct unit_provider *p, int unit, unsigned use,
                             struct unit_buffers *buffers)
{
    struct stop *s = (struct stop *)p;
    s->opened++;
    if (s->every && s->opened % s->every == 0) TRY(stop_check(s));
    return s->provider->open(s->provider, unit, use, buffers);
}

static enum status close_unit(struct unit_provider *p, int unit, unsigned use)
{
    struct stop *s = (struct stop *)p;
    return s->provider->close(s->provider, unit, use);
}

struct unit_provider *stop_wrap_units(struct stop *s, struct unit_provider *provider)
{
    s->units = (struct unit_provider){open_unit, close_unit};
    s->provider = provider;
    return &s->units;
}

void stop_begin(struct stop *s) { s->opened = 0; }

void stop_end_step(struct stop *s, double seconds)
{
    s->step_opened = s->opened, s->step_s = seconds;
}

/* Whether the job may end before another step and a save have ended. */
static bool is_time_up(const struct stop *s)
{
    double left = s->job_end_s - clock_wall_s();
    return s->job_end_s > 0 && left < s->lead_s + MARGIN * s->step_s;
}

enum status stop_agree(struct stop *s, int64_t requests[STOP_REQUESTS])
{
    int64_t values[STOP_REQUESTS + 2] = {signals_pending(), (int64_t)(1e6 * s->step_s)};
    if (!values[0] && is_time_up(s)) values[0] = SIGALRM;
    memcpy(values + 2, requests, STOP_REQUESTS * sizeof *requests);
    TRY(comm_all_reduce_int64(s->world, REDUCE_MAX, values, STOP_REQUESTS + 2));
    memcpy(requests, values + 2, STOP_REQUESTS * sizeof *requests);
    s->signal = (int)values[0];
    if (s->world->size == 1) return STATUS_OK;
    double polls = 1e-6 * (double)values[1] / s->poll_s;
    s->every = polls > 1 && s->in_steps ? (int64_t)fmax(1, (double)s->step_opened / polls) : 0;
    return STATUS_OK;
}

enum status stop_check(struct stop *s)
{
    int64_t signal = signals_pending();
    if (s->world->size > 1) TRY(comm_all_reduce_int64(s->world, REDUCE_MAX, &signal, 1));
    s->signal = (int)signal;
    if (signal) FAIL(REQUEUE, "%s", stop_describe(s));
    return STATUS_OK;
}

/* Open MPI's mpirun, if it started this rank, kills its ranks after a SIGTERM: version 4 after a
 * time that a setting of it changes, version 5 (5.0.7) at once. */
static void warn_of_mpirun(struct stop *s, double save_s)
{
    const char *setting = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    double grace_s = setting ? strtod(setting, NULL) : 1;
    bool is_version_4 = getenv("OMPI_MCA_orte_hnp_uri");
    if (is_version_4 ? save_s < grace_s / MARGIN : !getenv("OMPI_TOOL_NAME")) return;
    s->has_warned = true;
    if (is_version_4)
        log_line(LOG_WARN,
                 "a save takes %.1f s, but mpirun kills its ranks %g s after a SIGTERM: stop the "
                 "run with SIGUSR1, which mpirun passes on, or set "
                 "OMPI_MCA_odls_base_sigkill_timeout=60 before mpirun",
                 save_s, grace_s);
    else
        log_line(LOG_WARN, "after a SIGTERM mpirun of Open MPI 5 kills its ranks before they can "
                           "save: stop the run with SIGUSR1, which mpirun passes on");
}

void stop_note_save(struct stop *s, double seconds)
{
    if (!(seconds > 0) || s->world->rank != 0) return;
    s->lead_s = MARGIN * seconds + MIN_LEAD_S;
    set_alarm(s);
    if (!s->has_warned) warn_of_mpirun(s, seconds);
}

const char *stop_describe(const struct stop *s)
{
    static const struct {
        int signal;
        const char *text;
    } causes[] = {
        {SIGTERM, "stopped by SIGTERM"}, {SIGINT, "stopped by SIGINT"},
        {SIGHUP, "stopped by SIGHUP"},   {SIGUSR1, "stopped by SIGUSR1"},
        {SIGUSR2, "stopped by SIGUSR2"}, {SIGXCPU, "stopped by SIGXCPU"},
        {SIGXFSZ, "stopped by SIGXFSZ"}, {SIGALRM, "stopped ahead of the end of the Slurm job"},
    };
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (causes[i].signal == s->signal) return causes[i].text;
    return "stopped";
}
