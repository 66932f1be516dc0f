/* nccl_check.h (tests) -- every kind of transfer over a communicator of one rank, which needs only
 * one GPU: NCCL is found, opens, moves the data of streams in order, and closes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

/* COMM: an error of NCCL, or another result than the values sent. */
enum status nccl_check(struct queue *queue);
