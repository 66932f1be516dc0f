/* median.h -- the median of repeated timings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* Sorts the values; of an even count, returns the mean of the middle two. */
double median(double *values, int count);
