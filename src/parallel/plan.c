// SPDX-License-Identifier: Apache-2.0
#include "parallel/plan.h"

static enum status cross(const struct plan *p, enum boundary at, enum direction way,
                         struct crossing *x, struct queue *on)
{
    (void)p, (void)at, (void)way, (void)x, (void)on;
    return STATUS_OK;
}

static const struct plan alone = {cross};

const struct plan *plan_alone(void) { return &alone; }
