// SPDX-License-Identifier: Apache-2.0
#include "perf/sim_clock.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

enum { LINKS, NETWORK };

void sim_clock_release(struct sim_clock *c)
{
    free(c->pending), free(c->events);
    c->pending = NULL, c->events = NULL;
}

void sim_clock_compute(struct sim_clock *c, enum dtype dtype, double flops, double bytes)
{
    const struct hardware *h = &c->hardware;
    double rate = (dtype == F32 ? h->f32_flops : h->bf16_flops) * h->efficiency;
    double matmul = flops > 0 ? flops / rate : 0;
    double memory = bytes / (h->memory_bandwidth * SIM_CLOCK_MEMORY_EFFICIENCY);
    c->now += fmax(matmul, memory);
    if (c->microbatches_s > 0) return;
    *(matmul > memory ? &c->matmul_s : &c->memory_s) += fmax(matmul, memory);
}

/* Latencies one after the other: trees for most collectives; one for messages, of which those of an
 * all-to-all are in flight together. */
static double latencies(enum transfer_kind kind, int ranks)
{
    switch (kind) {
    case TRANSFER_all_reduce: return 2 * ceil(log2(ranks));
    case TRANSFER_shift:
    case TRANSFER_all_to_all:
    case TRANSFER_send:
    case TRANSFER_receive: return 1;
    case TRANSFER_all_gather:
    case TRANSFER_reduce_scatter:
    case TRANSFER_broadcast:
    case TRANSFER_COUNT: break;
    }
    return ceil(log2(ranks));
}

/* The alpha-beta cost model: latencies, plus bytes over bandwidth.  Collectives are hierarchical:
 * within a node all data goes over its links, and between nodes each rank carries a part of it over
 * its share of the network.  *over: the slower of the two. */
static double transfer_seconds(const struct hardware *h, const struct transfer *t,
                               const struct sim_group *group, double bytes, int *over)
{
    bool p2p = t->kind == TRANSFER_receive || t->kind == TRANSFER_shift;
    bool leaves_node = group->on_node < group->size;
    double links = group->on_node > 1 ? bytes / (h->node_bandwidth * SIM_CLOCK_LINK_EFFICIENCY) : 0;
    double network = leaves_node ? bytes / (h->network_bandwidth * SIM_CLOCK_LINK_EFFICIENCY) : 0;
    if (t->kind == TRANSFER_all_to_all) { /* a part from each rank of the node, and of others */
        double others = group->size - 1, near = group->on_node - 1;
        links *= near / others, network *= 1 - near / others;
    } else if (!p2p) {
        network /= group->on_node;
    }
    if (p2p && leaves_node) links = 0;
    *over = network > links ? NETWORK : LINKS;
    return fmax(links, network) + latencies(t->kind, group->size) * h->latency_s;
}

static struct sim_transfer *find_pending(struct sim_clock *c, const struct transfer *t)
{
    for (size_t i = 0; i < c->num_pending; i++)
        if (c->pending[i].transfer == t) return &c->pending[i];
    return NULL;
}

void sim_clock_start_transfer(struct sim_clock *c, const struct transfer *t,
                              const struct sim_group *group, double bytes)
{
    int over;
    if (group->size == 1 || t->kind == TRANSFER_send) return;
    double seconds = transfer_seconds(&c->hardware, t, group, bytes, &over);
    if (group->group == GROUP_pp) { /* estimate.h replays the schedule with it */
        c->p2p_s = fmax(c->p2p_s, seconds);
        return;
    }
    struct sim_transfer *p = find_pending(c, t);
    if (!p) {
        if (c->num_pending == c->capacity) {
            c->capacity = 2 * c->capacity + 4;
            c->pending = heap_grow(c->pending, c->capacity, sizeof *c->pending);
        }
        p = &c->pending[c->num_pending++];
    }
    c->links_free_s[over] = fmax(c->now, c->links_free_s[over]) + seconds;
    *p = (struct sim_transfer){t, group->group, c->links_free_s[over]};
}

void sim_clock_wait_transfer(struct sim_clock *c, const struct transfer *t)
{
    struct sim_transfer *p = find_pending(c, t);
    if (!p) return;
    if (p->end_s > c->now) {
        if (!(c->microbatches_s > 0)) c->exposed_s[p->group] += p->end_s - c->now;
        c->now = p->end_s;
    }
    *p = c->pending[--c->num_pending];
}

static double *stream_time(struct sim_clock *c, enum copy_stream stream)
{
    return stream == STREAM_QUEUE ? &c->now : &c->copies_s[stream];
}

/* The host submits a copy long before it runs, so it may begin when its stream is free. */
void sim_clock_copy(struct sim_clock *c, enum copy_stream stream, double bytes)
{
    double rate = c->hardware.host_bandwidth * SIM_CLOCK_LINK_EFFICIENCY;
    if (rate > 0) *stream_time(c, stream) += bytes / rate;
}

static struct sim_event *find_event(struct sim_clock *c, const struct copy_event *e)
{
    for (size_t i = 0; i < c->num_events; i++)
        if (c->events[i].event == e) return &c->events[i];
    return NULL;
}

void sim_clock_record(struct sim_clock *c, enum copy_stream stream, const struct copy_event *e)
{
    struct sim_event *at = find_event(c, e);
    if (!at) {
        c->events = heap_grow(c->events, c->num_events + 1, sizeof *c->events);
        at = &c->events[c->num_events++];
    }
    *at = (struct sim_event){e, *stream_time(c, stream)};
}

void sim_clock_wait_event(struct sim_clock *c, enum copy_stream stream, const struct copy_event *e)
{
    const struct sim_event *at = find_event(c, e);
    double *time = stream_time(c, stream);
    if (!at || at->at_s <= *time) return;
    if (stream == STREAM_QUEUE && !(c->microbatches_s > 0)) c->host_s += at->at_s - *time;
    *time = at->at_s;
}

void sim_clock_end_microbatches(struct sim_clock *c)
{
    if (!(c->microbatches_s > 0)) c->microbatches_s = c->now;
}
