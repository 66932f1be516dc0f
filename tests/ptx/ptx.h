/* ptx.h -- runs PTX, the code that nvcc makes, on a CPU: each instruction as NVIDIA's manual of the
 * PTX ISA defines it.
 *
 * Nothing is shared with the emulator of src/backends/gpu, which compiles the kernels' source as
 * C++.  So this also runs what only nvcc compiles: inline assembly, intrinsics, launches.
 * Lanes    A warp executes the lanes with the lowest address first, so that lanes which diverged
 *          meet again.  What needs several lanes (shuffles, matrices, barriers) waits for them;
 *          lanes that never come are an error.
 * Memory   Every access is checked for bounds and alignment.  Registers, shared and local memory
 *          start with PTX_LEFTOVER in each byte: a number of -2.6e36, an address out of bounds.
 *          cp.async copies as late as it may, when a thread waits for it.
 * Limits   Races between warps are not found, nor errors of ptxas.  What PTX leaves open has one
 *          result: matrices are multiplied in float32, approximations are the C library's.
 * Threads  One at a time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_LEFTOVER = 0xFB };

struct ptx_parameter {
    size_t offset, bytes;
};

struct ptx_kernel {
    const char *name; /* not terminated */
    size_t name_length;
    const char *text, *end; /* from its parameters to its last brace */
    bool is_parsed;
    struct instruction *code;
    int num_instructions;
    struct constant *constants;
    int num_constants;
    int register_bytes;
    size_t parameter_bytes;
    struct ptx_parameter *parameters;
    int num_parameters;
    size_t static_shared, local_bytes;
    unsigned max_threads;      /* of a block; 0: not declared */
    size_t max_dynamic_shared; /* as cudaFuncSetAttribute set it; 0: not set */
    int64_t launches;
};

struct ptx_module {
    struct ptx_kernel *kernels;
    int num_kernels;
    struct symbol *globals;
};

struct ptx_dim {
    unsigned x, y, z;
};

/* `text` stays in use.  NULL and a message: a kernel without end, or a variable whose value is not
 * a number. */
struct ptx_module *ptx_open(const char *text);
void ptx_close(struct ptx_module *m);
/* NULL: no kernel has this name. */
struct ptx_kernel *ptx_find(struct ptx_module *m, const char *name);
/* Before its first launch.  False and a message: an instruction that is not implemented. */
bool ptx_parse(struct ptx_module *m, struct ptx_kernel *k);
/* False after an error, whose message is on stderr. */
bool ptx_run(struct ptx_kernel *k, struct ptx_dim grid, struct ptx_dim block,
             void *const *arguments, size_t dynamic_shared);
/* How many of its instructions have been executed. */
int ptx_executed(const struct ptx_kernel *k);

/* Memory that kernels may access. */
void ptx_memory_add(const void *begin, size_t bytes);
void ptx_memory_remove(const void *begin);
bool ptx_memory_has(uint64_t address, size_t bytes);
/* Whether kernels may access all of the process's memory. */
void ptx_set_relaxed(bool is_relaxed);
