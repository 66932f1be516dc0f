// SPDX-License-Identifier: Apache-2.0
#include "app/machine.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/peak.h"
#include "base/thread.h"
#include "comms/self/self.h"

enum status machine_alone(struct machine *m)
{
    struct comm self = comm_self();
    m->mesh = mesh_alone();
    TRY(groups_open(&m->groups, &m->mesh, &self));
    return STATUS_OK;
}

enum status machine_open(struct machine *m, const struct device_config *c)
{
    *m = (struct machine){0};
    TRY(machine_alone(m));
    TRY(cpu_ops_find(c->cpu, &m->ops));
    TRY(cpu_queue_open(&m->on, c->threads ? (int)c->threads : thread_cores(), 0));
    cpu_queue_pin(m->on);
    return STATUS_OK;
}

void machine_close(struct machine *m)
{
    if (m->on) cpu_queue_close(m->on);
    groups_close(&m->groups);
    *m = (struct machine){0};
}

void machine_measure_peak(struct machine *m, enum dtype dtype)
{
    m->peak_flops = cpu_peak_flops(m->on, dtype);
}
