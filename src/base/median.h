/* median.h -- the median of numbers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* Sorts the values, at least one; of an even count, returns the mean of the middle two. */
double median(double *values, int count);
