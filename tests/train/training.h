/* training.h -- a tiny trainer over the reference kernels, for the tests of this room. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "backends/cpu/cpu.h"
#include "parallel/plan.h"
#include "train/trainer.h"

struct training {
    struct config config;
    struct machine machine;
    struct tokenizer *tokenizer;
    struct source_config source;
    struct data_config data;
    struct loader *loader;
    struct trainer trainer;
};

/* Two blocks of width 16 in f32 over a small corpus; settings end with NULL. */
void training_open(struct training *t, const char *const *settings);
void training_close(struct training *t);
#define TRAINING_OPEN(t, ...) training_open(t, (const char *const[]){__VA_ARGS__, NULL})
