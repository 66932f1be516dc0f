/* json_arena.h -- a fast allocator for cJSON in fuzzers: a bump allocator with ASan-poisoned gaps,
 * which resets when no allocation is live. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <cjson/cJSON.h>
#include <sanitizer/asan_interface.h>
#include <stddef.h>
#include <string.h>

enum { JSON_ARENA = 1 << 22, JSON_GAP = 16 };

static _Alignas(16) unsigned char json_arena[JSON_ARENA];
static size_t json_arena_used, json_arena_live; /* bytes; live allocations */

/* Stores the size before the block. */
static void *json_arena_alloc(size_t bytes)
{
    size_t rounded = (bytes + 15) & ~(size_t)15;
    BUG_IF(rounded > JSON_ARENA - json_arena_used - 2 * JSON_GAP);
    unsigned char *at = json_arena + json_arena_used + JSON_GAP;
    ASAN_UNPOISON_MEMORY_REGION(at, JSON_GAP + bytes);
    memcpy(at, &bytes, sizeof bytes);
    ASAN_POISON_MEMORY_REGION(at, JSON_GAP);
    json_arena_used += 2 * JSON_GAP + rounded;
    json_arena_live++;
    return at + JSON_GAP;
}

static void json_arena_free(void *value)
{
    size_t bytes;
    if (!value) return;
    unsigned char *at = (unsigned char *)value - JSON_GAP;
    ASAN_UNPOISON_MEMORY_REGION(at, JSON_GAP);
    memcpy(&bytes, at, sizeof bytes);
    ASAN_POISON_MEMORY_REGION(at, JSON_GAP + bytes);
    if (!--json_arena_live) json_arena_used = 0;
}

/* Call at the start of every run.  An allocation that is still live is a leak. */
static inline void json_arena_begin(void)
{
    static bool is_in_use;
    BUG_IF(json_arena_live);
    if (is_in_use) return;
    is_in_use = true;
    ASAN_POISON_MEMORY_REGION(json_arena, sizeof json_arena);
    cJSON_InitHooks(&(cJSON_Hooks){json_arena_alloc, json_arena_free});
}
