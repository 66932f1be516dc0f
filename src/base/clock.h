/* clock.h -- the monotonic and the wall clock, in seconds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

double clock_monotonic_s(void); /* for durations */
double clock_wall_s(void);      /* since the Unix epoch */
