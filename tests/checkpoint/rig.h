/* rig.h -- a small state to save, and folders to damage, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/shape.h"
#include "test.h"

#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

struct saved {
    struct model_shape shape;
    struct layout layout;
    struct shard shard; /* unsharded */
    float *weights, *exp_avg, *exp_avg_sq;
    struct tokenizer *tokenizer;
    struct text config_toml;
};

static inline void saved_fill(struct saved *s, uint64_t seed)
{
    float *parts[] = {s->weights, s->exp_avg, s->exp_avg_sq};
    for (uint64_t p = 0; p < 3; p++)
        for (int i = 0; i < s->layout.num_tensors; i++)
            for (size_t j = 0; j < s->layout.tensors[i].elements; j++) {
                float x = (float)rng_normal(seed, RNG_TEST, p << 32 | (uint64_t)i, j);
                parts[p][s->layout.tensors[i].offset + j] = p == 2 ? fabsf(x) : x;
            }
}

/* Random values in all tensors, zeros between units. */
static inline void saved_open_shape(struct saved *s, const struct model_shape *shape)
{
    *s = (struct saved){.shape = *shape};
    layout_init(&s->layout, &s->shape, 1);
    shard_init(&s->shard, &s->layout, 0, 1);
    size_t n = s->layout.elements;
    s->weights = heap(n * sizeof(float));
    s->exp_avg = heap(n * sizeof(float));
    s->exp_avg_sq = heap(n * sizeof(float));
    CHECK_STATUS(OK, tokenizer_open(&s->tokenizer, "bytes", &(struct tokenizer_config){0}));
    text_adds(&s->config_toml, "[training]\nsteps = 7\n");
    saved_fill(s, 1);
}

static inline void saved_open(struct saved *s, bool tied)
{
    struct model_shape shape = small_shape();
    shape.tied = tied;
    saved_open_shape(s, &shape);
}

static inline void saved_close(struct saved *s)
{
    free(s->weights), free(s->exp_avg), free(s->exp_avg_sq);
    tokenizer_close(s->tokenizer);
    shard_release(&s->shard);
    layout_release(&s->layout);
    text_release(&s->config_toml);
}

/* The whole state, as step `step`; `train` is borrowed. */
static inline struct checkpoint_state saved_state(const struct saved *s, int64_t step)
{
    static char train[] = "{\"tokens_seen\": 99}";
    return (struct checkpoint_state){.shape = &s->shape,
                                     .layout = &s->layout,
                                     .shard = &s->shard,
                                     .world = comm_self(),
                                     .weights = s->weights,
                                     .exp_avg = s->exp_avg,
                                     .exp_avg_sq = s->exp_avg_sq,
                                     .dtype = SAFETENSORS_F32,
                                     .step = step,
                                     .train = {train, sizeof train - 1, 0},
                                     .tokenizer = s->tokenizer,
                                     .config_toml = &s->config_toml};
}

static inline struct checkpointer *checkpointer_of(const char *folder, int keep)
{
    struct checkpointer *c;
    CHECK_STATUS(OK, checkpointer_open(&c, &(struct checkpointer_options){.folder = folder,
                                                                          .world = comm_self(),
                                                                          .keep_latest_k = keep}));
    return c;
}

/* A folder with step-N for each of the steps (0 ends the list), each filled with its step as
 * seed. */
static inline const char *saved_folder(struct saved *s, const int *steps)
{
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *c = checkpointer_of(folder, 0);
    for (; *steps; steps++) {
        saved_fill(s, (uint64_t)*steps);
        struct checkpoint_state state = saved_state(s, *steps);
        CHECK_STATUS(OK, checkpointer_save(c, &state));
    }
    CHECK_STATUS(OK, checkpointer_close(c, false));
    return folder;
}
#define STEPS(...) ((const int[]){__VA_ARGS__, 0})

/* Buffers like those of `s` to load into, filled with -77. */
struct loaded_state {
    float *buffers[3];
    struct checkpoint_state state;
    struct checkpoint_found found;
};

static inline enum status load_into(struct loaded_state *l, const struct saved *s,
                                    const char *folder)
{
    size_t n = s->layout.elements;
    *l = (struct loaded_state){0};
    for (int i = 0; i < 3; i++) {
        l->buffers[i] = heap(n * sizeof(float));
        for (size_t j = 0; j < n; j++) l->buffers[i][j] = -77;
    }
    l->state = (struct checkpoint_state){.shape = &s->shape,
                                         .layout = &s->layout,
                                         .shard = &s->shard,
                                         .world = comm_self(),
                                         .weights = l->buffers[0],
                                         .exp_avg = l->buffers[1],
                                         .exp_avg_sq = l->buffers[2]};
    return checkpoint_load(folder, &l->state, NULL, &l->found);
}

static inline void loaded_release(struct loaded_state *l)
{
    for (int i = 0; i < 3; i++) free(l->buffers[i]);
    json_free(l->found.state);
}

/* Loads the folder into buffers of its own. */
static inline enum status try_load(const struct saved *s, const char *folder)
{
    struct loaded_state l;
    enum status st = load_into(&l, s, folder);
    loaded_release(&l);
    return st;
}

/* Whether all tensors are bit-identical. */
static inline bool same_tensors(const struct layout *l, const float *a, const float *b)
{
    for (int i = 0; i < l->num_tensors; i++) {
        const struct tensor_slot *t = &l->tensors[i];
        if (memcmp(a + t->offset, b + t->offset, t->elements * sizeof *a)) return false;
    }
    return true;
}

/* Checks that the folder holds the values of saved_fill(s, seed). */
static inline void check_holds(struct saved *s, const char *folder, uint64_t seed)
{
    struct loaded_state l;
    CHECK_STATUS(OK, load_into(&l, s, folder));
    saved_fill(s, seed);
    CHECK(same_tensors(&s->layout, l.buffers[0], s->weights));
    CHECK(l.found.has_moments && same_tensors(&s->layout, l.buffers[1], s->exp_avg));
    CHECK(same_tensors(&s->layout, l.buffers[2], s->exp_avg_sq));
    loaded_release(&l);
}

/* Flips the bits of `mask` in one byte of a file; calling it again restores them. */
static inline void flip(const char *path, uint64_t at, int mask)
{
    FILE *f = fopen(path, "r+b");
    CHECK(f);
    CHECK(fseek(f, (long)at, SEEK_SET) == 0);
    int c = fgetc(f);
    CHECK(c != EOF && fseek(f, (long)at, SEEK_SET) == 0);
    CHECK(fputc(c ^ mask, f) != EOF && fclose(f) == 0);
}

static inline bool has_file(const char *folder, const char *name)
{
    return file_exists(test_path(folder, name));
}

/* Lists new checksums in the manifest: as if the checkpoint had been saved as it is now. */
static inline void list_again(const char *step, int64_t number)
{
    struct manifest m = {.folder = step, .step = number};
    struct file_list names;
    CHECK_STATUS(OK, manifest_list(step, &names));
    for (size_t i = 0; i < names.count; i++)
        CHECK_STATUS(OK, manifest_add_existing(&m, names.paths[i]));
    CHECK_STATUS(OK, manifest_finish(&m));
    CHECK_STATUS(OK, manifest_verify(step, NULL));
    manifest_release(&m);
    file_list_release(&names);
}

/* Replaces a value in a file of a checkpoint, and lists it again. */
static inline void replace_value(const char *step, int64_t number, float from, float to)
{
    struct file_list names;
    struct text bytes = {0};
    size_t found = 0;
    CHECK_STATUS(OK, manifest_list(step, &names));
    for (size_t i = 0; i < names.count; i++) {
        const char *path = test_path(step, names.paths[i]);
        CHECK_STATUS(OK, file_read(path, UINT64_MAX, &bytes));
        char *at = memmem(bytes.data, bytes.len, &from, sizeof from);
        if (at && strstr(path, ".safetensors")) {
            memcpy(at, &to, sizeof to);
            CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
            found++;
        }
        text_release(&bytes);
    }
    CHECK(found == 1);
    list_again(step, number);
    file_list_release(&names);
}
