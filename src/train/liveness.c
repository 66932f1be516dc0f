// SPDX-License-Identifier: Apache-2.0
#include "train/liveness.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/median.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A hang is reported within 20 s, or three median steps if these are longer; the margin is for the
 * time until all ranks know. */
static const double max_report_s = 20, max_report_steps = 3, margin = 0.9;
/* Seconds between two looks.  One look adds at most max_poll_s, as in heartbeat.c. */
static const double poll_s = 0.25, max_poll_s = 1;

static double median_step_s(const struct liveness *l)
{
    double sorted[LIVENESS_STEPS];
    size_t n = (size_t)(l->num_steps < LIVENESS_STEPS ? l->num_steps : LIVENESS_STEPS);
    memcpy(sorted, l->steps_s, n * sizeof *sorted);
    return n ? median(sorted, (int)n) : 0;
}

double liveness_limit_s(const struct liveness *l)
{
    if (!l->num_steps) return (double)l->config->init_timeout_seconds;
    if (l->config->train_timeout_seconds) return (double)l->config->train_timeout_seconds;
    double report_s = max_report_steps * median_step_s(l);
    return margin * (report_s > max_report_s ? report_s : max_report_s);
}

static void publish_limits(const struct liveness *l)
{
    double slow_s = (double)l->config->init_timeout_seconds, normal_s = liveness_limit_s(l);
    activity_set_limits(normal_s, slow_s > normal_s ? slow_s : normal_s);
}

static void end_if_hanging(struct liveness *l)
{
    int ending;
    enum status st = failure_detector_check(&l->detector, &ending);
    if (st) activity_exit_after(st);
}

static void *watch(void *context)
{
    struct liveness *l = context;
    double polled_s = clock_monotonic_s();
    pthread_mutex_lock(&l->lock);
    while (!l->is_closing) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(poll_s * 1e9);
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_cond_timedwait(&l->closing, &l->lock, &until);
        double now_s = clock_monotonic_s(), since_s = now_s - polled_s;
        polled_s = now_s;
        failure_detector_poll(&l->detector, since_s < max_poll_s ? since_s : max_poll_s);
        if (!l->is_closing) end_if_hanging(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static enum status start_thread(struct liveness *l)
{
    pthread_condattr_t monotonic;
    failure_detector_init(&l->detector, 0, 1);
    host_name(l->detector.who->host, sizeof l->detector.who->host);
    l->detector.who->pid = getpid();
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->closing, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum status st = thread_start_foreground(&l->thread, watch, l);
    l->is_running = !st;
    if (!st) return STATUS_OK;
    failure_detector_release(&l->detector);
    pthread_cond_destroy(&l->closing);
    pthread_mutex_destroy(&l->lock);
    return st;
}

enum status liveness_open(struct liveness *l, const struct comm_config *c, const struct comm *world)
{
    *l = (struct liveness){.config = c};
    activity_begin();
    publish_limits(l);
    if (world->size == 1) TRY(start_thread(l));
    return STATUS_OK;
}

void liveness_close(struct liveness *l)
{
    activity_end();
    if (!l->is_running) return;
    pthread_mutex_lock(&l->lock);
    l->is_closing = true;
    pthread_cond_signal(&l->closing);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->is_running = false;
    failure_detector_release(&l->detector);
    pthread_cond_destroy(&l->closing);
    pthread_mutex_destroy(&l->lock);
}

void liveness_begin_step(struct liveness *l, int64_t step)
{
    l->begin_s = clock_monotonic_s();
    l->waited_s = activity_waited_s();
    activity_set_step(step);
    activity_enter(ACTIVITY_reading);
}

struct straggler_sample liveness_end_step(struct liveness *l)
{
    double step_s = clock_monotonic_s() - l->begin_s;
    l->steps_s[l->num_steps++ % LIVENESS_STEPS] = step_s;
    publish_limits(l);
    return (struct straggler_sample){.busy_s = step_s - (activity_waited_s() - l->waited_s),
                                     .step_s = step_s};
}
