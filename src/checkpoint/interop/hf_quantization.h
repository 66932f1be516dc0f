/* hf_quantization.h -- config.json's quantization_config: which quantized weights can be read.
 *
 * Those in FP8 with a scale for each tensor, row or block of 128 x 128 (weight_scale.h): "fp8",
 * "fbgemm_fp8" and the float-quantized format of "compressed-tensors". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

/* Accepts a config.json without the key.  UNSUPPORTED: another method, which the message names;
 * other blocks; compressed-tensors of other types.  DATA: the key is malformed. */
enum status hf_quantization_check(const struct json *root);
