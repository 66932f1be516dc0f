/* training.h -- a tiny trainer over the reference kernels, for tests. */
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

/* A trainer of this rank, with these settings and initial weights. */
enum status training_open_rank(struct training *t, const struct comm *world,
                               const char *const *settings, int num_settings);
/* Two blocks of width 16 in f32 over a small corpus, on one rank; settings end with NULL. */
void training_open(struct training *t, const char *const *settings);
/* Takes that many steps; returns the last one's loss. */
double training_steps(struct training *t, int steps);
void training_close(struct training *t);
#define TRAINING_OPEN(t, ...) training_open(t, (const char *const[]){__VA_ARGS__, NULL})

/* Settings of a run of one block that saves checkpoints. */
#define TRAINING_OF_CHECKPOINTS                                                                    \
    "model.dim=16", "model.n_layers=1", "model.n_heads=2", "model.n_kv_heads=1",                   \
        "model.ffn_hidden=24", "training.seq_len=16", "training.local_batch_size=2",               \
        "training.mixed_precision_param=float32", "metrics.enable_tensorboard=false",              \
        "checkpoint.enable=true", "checkpoint.keep_latest_k=0"

/* Settings of a model of three blocks that fits many parallel layouts, with eight rows per step. */
#define TRAINING_OF_RANKS                                                                          \
    "model.dim=16", "model.n_layers=3", "model.n_heads=4", "model.n_kv_heads=2",                   \
        "model.ffn_hidden=24", "model.vocab_size=264", "training.local_batch_size=1",              \
        "training.seq_len=16", "training.global_batch_size=8", "data.tokenizer=bytes",             \
        "data.streams=8", "data.prefetch=0", "optimizer.lr=1e-2", "lr_scheduler.warmup_steps=2",   \
        "training.mixed_precision_param=float32"
