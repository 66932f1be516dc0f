/* cudnn_load.h -- opens cuDNN at run time; cudnn_load.c defines those of its functions that this
 * folder calls. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

/* Call before any function of cuDNN.  UNSUPPORTED: cuDNN is not installed, or lacks a function. */
enum status cudnn_load(void);
