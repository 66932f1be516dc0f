// SPDX-License-Identifier: Apache-2.0
#include "perf/described_gpu.h"

#include "parallel/replicas.h"
#include "perf/hardware_probe.h"

/* What a process takes before it allocates anything: the driver's reserve, which nvidia-smi counts
 * as memory and cudaMemGetInfo does not, and the context with the code of kernels and libraries. */
static const size_t CONTEXT_BYTES = (size_t)1 << 30;
/* Buffers of a communicator.  RCCL connects trees beside the rings when it opens.  A channel
 * connects two ranks, and so needs fewer. */
static const size_t NCCL_BYTES = (size_t)256 << 20, RCCL_BYTES = (size_t)512 << 20;
static const size_t CHANNEL_BYTES = (size_t)32 << 20;
/* Buffers for a pair of ranks that an all-to-all connects. */
static const size_t NEAR_PEER_BYTES = (size_t)64 << 20, FAR_PEER_BYTES = (size_t)16 << 20;

static bool has_documents(const struct simulated_queue *q, enum op_id op)
{
    if (op == OP_attention_forward) return ((const struct attention_fwd *)q->io)->start_BT != NULL;
    return op == OP_attention_backward && ((const struct attention_bwd *)q->io)->start_BT;
}

static void reserve_scratch(struct simulated_queue *queue, const struct op_call *c)
{
    struct described_gpu *g = (struct described_gpu *)queue;
    struct arena *scratch = &queue->base.scratch;
    size_t mark = arena_mark(scratch);
    size_t bytes = gpu_scratch_bytes(c, has_documents(queue, c->op), &g->traits);
    (void)arena_alloc(scratch, bytes, 1);
    arena_reset(scratch, mark);
}

void described_gpu_open(struct described_gpu *g, const struct device_config *c, struct machine *m)
{
    const struct hardware *hardware = hardware_row((enum hardware_row)c->hardware);
    const struct hardware changed = device_config_hardware(c);
    bool native_fp8 = hardware_has_native_fp8(&changed);
    *g = (struct described_gpu){
        .queue = {.base = {.num_threads = 1, .device = &step_simulator_gpu_device},
                  .on_call = reserve_scratch},
        .traits = {hardware->vendor, c->deterministic, (size_t)c->attention_bytes,
                   c->hardware == HARDWARE_b200, native_fp8}};
    g->queue.native_fp8 = native_fp8;
    m->queue = &g->queue.base;
    m->ops = &step_simulator_gpu_ops;
    m->hardware = hardware;
}

void described_gpu_close(struct described_gpu *g) { arena_release(&g->queue.base.scratch); }

void described_gpu_add_context(struct memory_plan *plan)
{
    plan->bytes[MEMORY_context] += CONTEXT_BYTES;
}

/* A shift may occupy nccl_shift_blocks(ranks) multiprocessors, each with buffers to send and to
 * receive.  CHANNEL_BYTES are for four in one direction: half as many channels. */
static size_t ring_channels(int ranks)
{
    size_t channels = 2;
    for (int n = 1; n < ranks && n < 8; n *= 2) channels *= 2;
    return ranks > 1 ? channels : 0;
}

static size_t peer_bytes(const struct mesh *mesh, enum group g, int node_ranks)
{
    int on_node = mesh_group_on_node(mesh, g, node_ranks);
    return (size_t)(on_node - 1) * NEAR_PEER_BYTES +
           (size_t)(mesh_group_size(mesh, g) - on_node) * FAR_PEER_BYTES;
}

void described_gpu_add_communicators(const struct config *c, const struct model_shape *shape,
                                     const struct machine *m, double node_ranks,
                                     struct memory_plan *plan)
{
    static const enum group of_tensors[] = {GROUP_replicate, GROUP_shard, GROUP_tp};
    const struct mesh *mesh = &m->mesh;
    enum hardware_vendor vendor = hardware_probe_vendor(m);
    if (c->device.comm == DEVICE_COMM_staged || vendor == VENDOR_aws) return;
    int communicators = replicas_count_groups(shape, mesh);
    for (size_t i = 0; i < sizeof of_tensors / sizeof *of_tensors; i++)
        communicators += mesh_group_size(mesh, of_tensors[i]) > 1;
    plan->bytes[MEMORY_communication] +=
        (size_t)communicators * (vendor == VENDOR_amd ? RCCL_BYTES : NCCL_BYTES);
    if (c->optimizer.name == OPTIMIZER_Muon) /* all-to-alls over both groups (muon.h) */
        plan->bytes[MEMORY_communication] += peer_bytes(mesh, GROUP_shard, (int)node_ranks) +
                                             peer_bytes(mesh, GROUP_tp, (int)node_ranks);
    /* A pipeline sends and receives inputs of forward and backward. */
    size_t channels = ring_channels(mesh->degree[AXIS_cp]) + (mesh->degree[AXIS_pp] > 1 ? 4 : 0);
    plan->bytes[MEMORY_communication] += channels * CHANNEL_BYTES;
}
