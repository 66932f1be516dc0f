/* length_chart.h -- an SVG image of the lengths of documents, a curve per source. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source_stats.h"

/* Writes the file.  DATA: no source has a document with tokens.  IO. */
enum status length_chart_write(const struct source_stats *all, size_t count, const char *path);
