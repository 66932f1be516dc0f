// SPDX-License-Identifier: Apache-2.0
#include "app/launch_flags.h"

#include <stdio.h>

enum status launch_flags_apply(struct launch_flags *f, struct arguments *a)
{
    enum { MOST = sizeof a->settings / sizeof *a->settings };
    if (f->ranks != LAUNCH_UNSET && f->gpus[0])
        FAIL(USAGE, "--ranks and --gpus exclude each other: --gpus starts a rank for each GPU");
    if (!f->gpus[0]) return STATUS_OK;
    size_t left = sizeof a->joined - a->num_joined;
    char *at = a->joined + a->num_joined;
    int len = snprintf(at, left, "device.gpus=%s", f->gpus);
    if (a->num_settings == MOST || len < 0 || (size_t)len >= left)
        FAIL(USAGE, "--gpus: too many settings");
    a->num_joined += (size_t)len + 1;
    a->settings[a->num_settings++] = at;
    return STATUS_OK;
}

enum status launch_flags_start(const struct launch_flags *f, const char *gpus, bool *is_rank)
{
    bool has_flags = f->ranks != LAUNCH_UNSET || f->gpus[0];
    struct launch_gpus found;
    *is_rank = true;
    if (!has_flags && (!gpus[0] || launch_find().size > 1)) return STATUS_OK;
    if (f->ranks != LAUNCH_UNSET) {
        TRY(launch_ranks((int)f->ranks, NULL, is_rank));
        return STATUS_OK;
    }
    TRY(launch_find_gpus(f->gpus[0] ? f->gpus : gpus, &found));
    TRY(launch_ranks(found.count, &found, is_rank));
    return STATUS_OK;
}
