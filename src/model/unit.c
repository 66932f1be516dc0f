// SPDX-License-Identifier: Apache-2.0
#include "model/unit.h"

#include "model/float8.h"
#include "tensor/device.h"
#include "tensor/element.h"

static enum status zero(const struct model *m, float *x, size_t elements)
{
    double begin = trace_begin(m->queue->trace);
    TRY(queue_zero(m->queue, x, elements * sizeof *x));
    trace_end(m->queue->trace, "zero gradients", begin);
    return STATUS_OK;
}

/* Zeros what no GEMM overwrites: the gradients of norms, and the padding between tensors and at the
 * unit's end. */
static enum status zero_remainder(const struct model *m, const struct unit *unit, float *gradients)
{
    const struct tensor_slot *t = &m->layout.tensors[unit->first_tensor];
    size_t end = 0;
    for (int i = 0; i < unit->num_tensors; i++, t++) {
        size_t offset = t->offset - unit->offset;
        if (offset > end) TRY(zero(m, element(gradients, end, F32), offset - end));
        end = offset + t->elements;
        if (param_is_vector(t->id)) TRY(zero(m, element(gradients, offset, F32), t->elements));
    }
    TRY(zero(m, element(gradients, end, F32), unit->elements - end));
    return STATUS_OK;
}

enum status unit_open(const struct model *m, enum param_id id, int layer, unsigned use)
{
    int unit = layout_unit(&m->layout, id, layer);
    struct unit_buffers *buffers = &m->unit_buffers[unit];
    if (m->units) {
        TRY(m->units->open(m->units, unit, use, buffers));
        if (buffers->overwrite) TRY(zero_remainder(m, &m->layout.units[unit], buffers->gradients));
        return STATUS_OK;
    }
    size_t offset = m->layout.units[unit].offset;
    buffers->weights = element(m->weights, offset, m->dtype);
    buffers->gradients = element(m->gradients, offset, F32);
    buffers->overwrite = false;
    buffers->float8 = NULL;
    return STATUS_OK;
}

enum status unit_close(const struct model *m, enum param_id id, int layer, unsigned use)
{
    if (m->units) TRY(m->units->close(m->units, layout_unit(&m->layout, id, layer), use));
    return STATUS_OK;
}

/* The buffers of a tensor's unit, and the tensor's offset in them. */
static const struct unit_buffers *buffers_of(const struct model *m, enum param_id id, int layer,
                                             size_t *offset)
{
    int unit = layout_unit(&m->layout, id, layer);
    *offset = layout_find(&m->layout, id, layer)->offset - m->layout.units[unit].offset;
    return &m->unit_buffers[unit];
}

const void *unit_weight(const struct model *m, enum param_id id, int layer)
{
    size_t offset;
    const struct unit_buffers *buffers = buffers_of(m, id, layer, &offset);
    return element(buffers->weights, offset, m->dtype);
}

float *unit_gradient(const struct model *m, enum param_id id, int layer)
{
    size_t offset;
    const struct unit_buffers *buffers = buffers_of(m, id, layer, &offset);
    return element(buffers->gradients, offset, F32);
}

struct float8_weights *unit_float8_weight(const struct model *m, enum param_id id, int layer,
                                          bf16 **y)
{
    size_t offset;
    const struct unit_buffers *buffers = buffers_of(m, id, layer, &offset);
    if (buffers->float8) *y = element(buffers->float8->x, offset, BF16);
    return buffers->float8;
}

bool unit_overwrites_gradients(const struct model *m, enum param_id id, int layer)
{
    return m->unit_buffers[layout_unit(&m->layout, id, layer)].overwrite;
}

enum status unit_zero_gradient(const struct model *m, enum param_id id, int layer)
{
    TRY(zero(m, unit_gradient(m, id, layer), layout_find(&m->layout, id, layer)->elements));
    return STATUS_OK;
}
