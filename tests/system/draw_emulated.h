/* draw_emulated.h -- runs of a draw on an emulated GPU: tests/llamero-gpu or llamero-gpu64
 * (LLAMERO_GPU, LLAMERO_GPU64). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "system/draw_compare.h"

/* Trains the draw with settings of a GPU that it draws, too: the run ends well, is close to that on
 * the CPU, and a second one, which may resume, has the same bits. */
enum answer draw_emulated(struct draw *d, struct text *why);
