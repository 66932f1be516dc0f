/* metric_label.h -- how charts name the keys of metrics.jsonl, and in which unit they show them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* The label of the axis, such as "loss (nats/token)", and the factor to its unit; for an unknown
 * key, the key and 1. */
const char *metric_label(const char *key, double *scale);
