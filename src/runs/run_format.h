/* run_format.h -- counts and times, short enough for a table. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

void run_format_count(struct text *out, double count); /* 1234567 as "1.23M" */
void run_format_age(struct text *out, double seconds); /* 7200 as "2h" */
