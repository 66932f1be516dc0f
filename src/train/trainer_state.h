/* trainer_state.h -- the counters and FP8 scales of a trainer in a checkpoint's state.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "train/trainer.h"

/* Writes members of the open object. */
void trainer_state_save(const struct trainer *t, struct json_writer *w);
/* Call it when t->steps_done is set: rows are counted only with steps.
 * DATA: missing, damaged, or of another model.  CONFIG: `has_moments`, the checkpoint's moments are
 * loaded, too, and are of another optimizer. */
enum status trainer_state_load(struct trainer *t, const struct json *from, bool has_moments);
