/* arrow_schema.h -- finds a column in the schema of an Arrow file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/arrow_types.h"
#include "formats/flatbuffer.h"

/* Reads the Schema table at `table`.  Stores the levels of the column with this name, and the names
 * of all columns, in `a`.  CONFIG: unknown column.  DATA, UNSUPPORTED: as arrow_open. */
enum status arrow_schema_read(struct arrow *a, struct flatbuffer *f, uint64_t table,
                              const char *column);

/* The name of an enum arrow_type in messages: "integers". */
const char *arrow_schema_type_name(int type);
