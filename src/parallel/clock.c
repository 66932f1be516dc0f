// SPDX-License-Identifier: Apache-2.0
#include "parallel/clock.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

enum { LINKS, NETWORK };

void clock_release(struct clock *c)
{
    free(c->flights);
    c->flights = NULL;
}

void clock_compute(struct clock *c, enum dtype dtype, double flops, double bytes)
{
    const struct hardware *h = &c->hardware;
    double rate = (dtype == F32 ? h->f32_flops : h->bf16_flops) * h->efficiency;
    double products = flops > 0 ? flops / rate : 0;
    double memory = bytes / (h->memory_rate * CLOCK_MEMORY_SHARE);
    c->now += fmax(products, memory);
    if (c->micros > 0) return;
    *(products > memory ? &c->products : &c->memory) += fmax(products, memory);
}

/* What of it passes each kind of link: between nodes every rank's share of the network carries a
 * part, and all of it goes from rank to rank within each. */
static double transfer_seconds(const struct hardware *h, const struct transfer *t,
                               const struct way *way, double bytes, int *over)
{
    bool single = t->kind == TRANSFER_send || t->kind == TRANSFER_receive;
    bool leaves = way->near < way->size;
    double links = way->near > 1 ? bytes / (h->node_rate * CLOCK_LINK_SHARE) : 0;
    double network = leaves ? bytes / (h->network_rate * CLOCK_LINK_SHARE) : 0;
    double steps = single ? 1 : ceil(log2(way->size)) * (t->kind == TRANSFER_all_reduce ? 2 : 1);
    if (!single) network /= way->near;
    if (single && leaves) links = 0;
    *over = network > links ? NETWORK : LINKS;
    return fmax(links, network) + steps * h->latency_s;
}

static struct flight *find(struct clock *c, const struct transfer *t)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->flights[i].transfer == t) return &c->flights[i];
    return NULL;
}

void clock_start(struct clock *c, const struct transfer *t, const struct way *way, double bytes)
{
    int over;
    if (way->size == 1 || t->kind == TRANSFER_send) return;
    double seconds = transfer_seconds(&c->hardware, t, way, bytes, &over);
    if (way->group == GROUP_pp) { /* the schedule says when it comes */
        c->message = fmax(c->message, seconds);
        return;
    }
    struct flight *f = find(c, t);
    if (!f) {
        if (c->count == c->capacity) {
            c->capacity = 2 * c->capacity + 4;
            c->flights = heap_grow(c->flights, c->capacity, sizeof *c->flights);
        }
        f = &c->flights[c->count++];
    }
    c->idle[over] = fmax(c->now, c->idle[over]) + seconds;
    *f = (struct flight){t, way->group, c->idle[over]};
}

void clock_wait(struct clock *c, const struct transfer *t)
{
    struct flight *f = find(c, t);
    if (!f) return;
    if (f->end > c->now) {
        if (!(c->micros > 0)) c->exposed[f->group] += f->end - c->now;
        c->now = f->end;
    }
    *f = c->flights[--c->count];
}

void clock_update(struct clock *c)
{
    if (!(c->micros > 0)) c->micros = c->now;
}
