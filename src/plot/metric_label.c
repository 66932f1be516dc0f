// SPDX-License-Identifier: Apache-2.0
#include "plot/metric_label.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *key, *label;
    double scale;
} labels[] = {
    {"loss", "loss (nats/token)", 1},
    {"max_loss", "largest loss of any rank (nats/token)", 1},
    {"validation_loss", "validation loss (nats/token)", 1},
    {"grad_norm", "gradient norm", 1},
    {"lr", "learning rate", 1},
    {"parameter_norm", "L2 norm of the weights", 1},
    {"tokens_seen", "tokens seen", 1},
    {"tokens_per_second", "tokens/s", 1},
    {"tokens_per_second_per_rank", "tokens/s per rank", 1},
    {"tflops_per_rank", "TFLOP/s per rank", 1},
    {"mfu", "model FLOPs utilization (%)", 100},
    {"step_seconds", "s/step", 1},
    {"data_seconds", "s/step waiting for data", 1},
    {"padding", "padding (% of tokens)", 100},
    {"memory_bytes", "peak memory per rank (GiB)", 1.0 / (1 << 30)},
};

const char *metric_label(const char *key, double *scale)
{
    *scale = 1;
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        if (strcmp(labels[i].key, key)) continue;
        *scale = labels[i].scale;
        return labels[i].label;
    }
    return key;
}
