// SPDX-License-Identifier: Apache-2.0
#include "machine/cpu.h"

#include "backends/cpu/cpu.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/onednn.h"
#include "base/log.h"
#include "machine/node.h"

enum status cpu_machine_open(struct machine *m, const struct device_config *c, int cores)
{
    TRY(cpu_ops_find(device_cpu_word(c->cpu), &m->ops));
    if (c->threads > cores)
        log_line(LOG_WARN,
                 "device.threads = %lld: more than this rank's %d core%s, which its threads will "
                 "share; training is many times slower so; 0 uses one thread per core",
                 (long long)c->threads, cores, cores == 1 ? "" : "s");
    onednn_limit_isa(device_cpu_word(c->cpu));
    TRY(cpu_queue_open(&m->queue, c->threads ? (int)c->threads : cores, 0));
    cpu_queue_pin(m->queue);
    return STATUS_OK;
}

void cpu_machine_close(struct machine *m)
{
    cpu_queue_close(m->queue);
    m->queue = NULL;
}

void cpu_machine_tune(const struct machine *m, const char *path)
{
    struct text processor = {0};
    node_processor(&processor);
    cpu_queue_tune(m->queue, path, m->ops->backend, processor.len ? processor.data : "?");
    text_release(&processor);
}

void cpu_machine_use_tuning(const struct machine *m, bool use)
{
    cpu_queue_use_tuning(m->queue, use);
}

void cpu_machine_list_isas(struct text *out)
{
    const char *separator = "";
    for (int i = 0; isa_at(i); i++) {
        if (!isa_is_supported(isa_at(i))) continue;
        text_addf(out, "%s%s", separator, isa_at(i)->name);
        separator = ", ";
    }
}

const char *cpu_machine_best_isa(void)
{
    const struct isa *best = isa_best();
    return best ? best->name : NULL;
}

void cpu_machine_onednn_version(struct text *version) { onednn_version(version); }
