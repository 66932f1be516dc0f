/* arrow_schema.h -- which fields of an Arrow file's schema lead to a column. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/arrow.h"
#include "formats/flatbuffer.h"

/* Takes the levels of the column of that name, and all columns' names, into `a`.  CONFIG: there is
 * no such column.  DATA, UNSUPPORTED: as arrow_open. */
enum status arrow_schema_read(struct arrow *a, struct flat *f, uint64_t table, const char *column);

/* Buffers of an array of a type that a level has.  A view of values has more behind these, as many
 * as the batch says. */
unsigned arrow_schema_buffers(int type);
