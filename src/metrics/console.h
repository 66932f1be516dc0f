/* console.h -- torchtitan's console lines, for people and for parsers of its logs.
 *
 * Memory   Functions append to a text; once it has grown large enough they do not allocate. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "metrics/derived_metrics.h"

#include <stdbool.h>

/* "7,069": rounded, with a comma between thousands. */
void console_thousands(struct text *t, double value);
/* "12m03s", "3h05m", "2d07h" */
void console_duration(struct text *t, double seconds);

struct console_time {
    char text[32];
};
/* Of a step: "0.0213 s"; below a millisecond "0.0497 ms", below a microsecond "0.005 us", from
 * 1000 s on as console_duration. */
struct console_time console_step_time(double seconds);

/* step: 10  loss:  8.04913  grad_norm:  1.4061  memory:  1.20GiB(5.00%)  tps: 7,069  tflops: 12.51
 * mfu: 31.20%  eta: 12m03s (14:40), on one line.  torchtitan's line, followed by the ETA. */
void console_step(struct text *t, const struct step_metrics *s, const struct derived_metrics *d,
                  const struct run_progress *p, bool color);
/* step 10  loss 8.04913  grad 1.41  tps 7,069  mfu 31.2%  eta 12m03s: for a narrow terminal. */
void console_step_brief(struct text *t, const struct step_metrics *s,
                        const struct derived_metrics *d, const struct run_progress *p, bool color);
/* validate step: 10  loss:  7.9310  memory:  1.20GiB(5.00%)  tps: 7,069 */
void console_validation(struct text *t, int64_t step, double loss, const struct derived_metrics *d,
                        bool color);
