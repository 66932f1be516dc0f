// SPDX-License-Identifier: Apache-2.0
#include "app/machine.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/peak.h"
#include "base/thread.h"
#include "comms/self/self.h"
#include "parallel/plan.h"

enum status machine_open(struct machine *m, const struct device_config *c)
{
    *m = (struct machine){.plan = plan_alone(), .comm = comm_self()};
    TRY(cpu_ops_find(c->cpu, &m->ops));
    TRY(cpu_queue_open(&m->on, c->threads ? (int)c->threads : thread_cores(), 0));
    cpu_queue_pin(m->on);
    return STATUS_OK;
}

void machine_close(struct machine *m)
{
    if (m->on) cpu_queue_close(m->on);
    *m = (struct machine){0};
}

void machine_measure_peak(struct machine *m, enum dtype dtype)
{
    m->peak_flops = cpu_peak_flops(m->on, dtype);
}
