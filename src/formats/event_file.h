/* event_file.h -- TensorBoard event files: records of protocol-buffer Events.
 *
 * A record is u64 length, u32 masked CRC-32C of those eight bytes, the Event, u32 masked CRC-32C of
 * the Event; little-endian.  Field numbers are event.proto's and summary.proto's of tensorboard.
 * Memory   The event_add functions append to a text; once that has grown they allocate nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdint.h>

struct event_scalar {
    const char *tag;
    double value; /* stored as float */
};

/* The record that opens every file: "brain.Event:2". */
void event_add_version(struct text *t, double wall_s);
/* Says that a run starts at `step`: TensorBoard drops what earlier files hold from there on. */
void event_add_start(struct text *t, int64_t step, double wall_s);
/* One record that holds all of them; count > 0. */
void event_add_scalars(struct text *t, int64_t step, double wall_s, const struct event_scalar *s,
                       int count);

/* events.out.tfevents.<seconds>.<host>.<pid>.<number> */
void event_file_name(struct text *t, double wall_s, int number);
