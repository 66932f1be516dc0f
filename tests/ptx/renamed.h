/* renamed.h -- included in front of tests of the emulated GPU, to run them on the one that executes
 * PTX, whatever warp size they ask for. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define TEST_PTX                           1
#define emulator_set_relaxed               ptx_set_relaxed
#define gpu_emu32_open                     gpu_open
#define gpu_emu64_open                     gpu_open
#define gpu_emu32_close                    gpu_close
#define gpu_emu64_close                    gpu_close
#define gpu_emu32_ops                      gpu_ops
#define gpu_emu64_ops                      gpu_ops
#define gpu_emu32_gemm_tiled               gpu_gemm_tiled
#define gpu_emu64_gemm_tiled               gpu_gemm_tiled
#define gpu_emu32_gemm_factors             gpu_gemm_factors
#define gpu_emu32_varlen_find              gpu_varlen_find
#define gpu_emu32_varlen_to_heads          gpu_varlen_to_heads
#define gpu_emu64_varlen_to_heads          gpu_varlen_to_heads
#define gpu_emu32_varlen_to_tokens         gpu_varlen_to_tokens
#define gpu_emu64_varlen_to_tokens         gpu_varlen_to_tokens
#define gpu_emu32_varlen_write_offsets     gpu_varlen_write_offsets
#define gpu_emu64_varlen_write_offsets     gpu_varlen_write_offsets
#define gpu_emu32_flash_attention_forward  gpu_flash_attention_forward
#define gpu_emu32_flash_attention_backward gpu_flash_attention_backward
#define gpu_emu64_flash_attention_forward  gpu_flash_attention_forward
#define gpu_emu64_flash_attention_backward gpu_flash_attention_backward
#define gpu_emu32_attention_part_forward   gpu_attention_part_forward
#define gpu_emu32_attention_part_backward  gpu_attention_part_backward
