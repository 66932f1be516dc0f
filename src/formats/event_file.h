/* event_file.h -- writes TensorBoard event files: TFRecords of Event protocol buffers.
 *
 * A TFRecord is u64 length, u32 masked CRC-32C of the length, the Event, u32 masked CRC-32C of the
 * Event, all little-endian.
 * Memory   The functions append to a text, and allocate only when it has to grow.
 * Source   event.proto and summary.proto of TensorBoard;
 *          tensorflow/core/lib/io/record_writer.cc. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdint.h>

struct event_scalar {
    const char *tag;
    double value; /* stored as float */
};

/* Appends the record that must open every file: file_version "brain.Event:2". */
void event_file_add_version(struct text *t, double wall_s);
/* Appends a SessionLog START record: TensorBoard then discards the events of earlier files from
 * this step on. */
void event_file_add_session_start(struct text *t, int64_t step, double wall_s);
/* Appends one record with all of these scalars; count > 0. */
void event_file_add_scalars(struct text *t, int64_t step, double wall_s,
                            const struct event_scalar *s, int count);

/* Appends events.out.tfevents.<seconds>.<host>.<pid>.<number>. */
void event_file_name(struct text *t, double wall_s, int number);
