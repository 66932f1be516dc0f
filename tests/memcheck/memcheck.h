/* memcheck.h -- checks every memory access of the emulated kernels, as the memcheck, racecheck and
 * initcheck tools of compute-sanitizer do on a GPU.  A violation is printed, with kernel, block,
 * threads and source lines, and aborts.
 *
 * Races    Two accesses to a byte, one of them a write, by threads that no __syncthreads, nor a
 *          __syncwarp of their warp, orders, or by two blocks of a launch; unless both are atomic.
 *          As in the CUDA manual, shuffles and matrix instructions order nothing.
 * Bounds   To the byte: the launch's dynamic shared memory, and allocations of the emulator, of the
 *          heap and of arenas, between which are red zones.  All other memory of the host is out of
 *          bounds.  In the emulator's relaxed mode kernels may also access the heap and the host's
 *          stack.
 * Contents Uninitialized are shared memory when a block begins, device memory when it is allocated,
 *          memory of an arena when arena_alloc returns it.
 * Limits   Races between launches, with copies and with the host are not found, nor accesses that
 *          run from one __shared__ array into another. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The access that a thread makes. */
struct place {
    const unsigned char *at;
    size_t bytes;
    bool is_write, is_shared;
    const void *caller; /* address of the instruction behind it */
};

/* --- shadow.c: what is known of each byte that kernels may access --- */

/* An access to a byte; time 0: none. */
struct access {
    uint32_t time; /* memory_check_clock's */
    uint16_t site; /* report_site */
    uint16_t thread : 10, is_atomic : 1;
};
/* The last write, and two reads since. */
struct cell {
    struct access write, read[2];
};
/* HOST: of the heap, which kernels may access in the emulator's relaxed mode.  WRITTEN is not kept
 * for shared memory: what a block has not written has an older write. */
enum { ALLOCATED = 1, HOST = 2, WRITTEN = 4, IN_FLIGHT = 8, CHUNK_BYTES = 1 << 16 };
enum { WORD = 4 };
struct chunk {
    uint8_t state[CHUNK_BYTES];
    struct cell words[CHUNK_BYTES / WORD], bytes[CHUNK_BYTES];
    bool is_split[CHUNK_BYTES / WORD]; /* accesses to a part of the word are in `bytes` */
};
/* Of the chunk of memory that holds the byte; NULL: none of it has been allocated. */
struct chunk *shadow_chunk(const void *at);
void shadow_set(const void *at, size_t bytes, uint8_t state);
/* Marks those of the bytes that are allocated as written. */
void shadow_set_written(const void *at, size_t bytes);

/* --- report.c --- */

/* A number for an address in the program. */
uint16_t report_site(const void *caller);
/* "what" continues "thread 3 reads 4 bytes of shared memory". */
void report_access(const struct place *p, const char *what) __attribute__((noreturn));
/* did: what the thread of the earlier access did to the bytes. */
void report_race(const struct place *p, struct access earlier, const char *did)
    __attribute__((noreturn));
/* Blocks of the current launch are reported by when they began. */
void report_block_began(void);
