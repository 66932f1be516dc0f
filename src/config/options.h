/* options.h -- struct config: the options of all rooms. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint_config.h"
#include "comm/comm_config.h"
#include "config/run_config.h"
#include "data/data_config.h"
#include "metrics/metrics_config.h"
#include "model/model_shape.h"
#include "optim/optim_config.h"
#include "parallel/parallel_config.h"
#include "tensor/device_config.h"
#include "tokenizer/tokenizer_config.h"

struct config {
    struct job_config job;
    struct profiling_config profiling;
    struct metrics_config metrics;
    struct model_config model;
    struct optimizer_config optimizer;
    struct lr_scheduler_config lr_scheduler;
    struct training_config training;
    struct parallelism_config parallelism;
    struct comm_config comm;
    struct checkpoint_config checkpoint;
    struct activation_checkpoint_config activation_checkpoint;
    struct float8_config float8;
    struct validation_config validation;
    struct debug_config debug;
    struct data_config data;
    struct tokenizer_config tokenizer;
    struct objective_config objective;
    struct guard_config guard;
    struct device_config device;
    struct accept_config config;
    struct config_book *book; /* private to config/ (book.h) */
};
