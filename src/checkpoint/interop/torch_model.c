// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_model.h"

#include "formats/torch_writer.h"

#include <stdlib.h>
#include <string.h>

struct torch_tensor torch_model_tensor(const struct torch_model *m, int i)
{
    const struct tensor_place *t = &m->layout->tensors[i];
    char name[96];
    bool vector = params[t->id].axes[1] == 0;
    tensor_place_name(t, false, name);
    return (struct torch_tensor){.name = heap_string(name, strlen(name)),
                                 .dtype = m->dtype,
                                 .num_dims = vector ? 1 : 2,
                                 .shape = {t->rows, t->columns}};
}

/* Our row of theirs; see patches.h. */
static size_t row_here(const struct torch_model *m, enum param_id id, size_t row)
{
    size_t K = (size_t)m->shape->K, within = row % K;
    if (id != PARAM_attn_q && id != PARAM_attn_k) return row;
    return row - within + within % 2 * (K / 2) + within / 2;
}

/* Numbers on their way, converted when there are many. */
struct stream {
    enum safetensors_dtype dtype;
    float *values;
    void *bytes;
    size_t count;
    enum status (*put)(void *context, const void *bytes, size_t len);
    void *context;
};

static enum status flush(struct stream *s)
{
    safetensors_from_f32(s->values, s->count, s->dtype, s->bytes);
    size_t len = s->count * safetensors_dtype_bytes(s->dtype);
    s->count = 0;
    if (len) TRY(s->put(s->context, s->bytes, len));
    return STATUS_OK;
}

static enum status append(struct stream *s, const float *values, size_t count)
{
    while (count) {
        size_t room = EXCHANGE_ELEMENTS - s->count, n = count < room ? count : room;
        memcpy(s->values + s->count, values, n * sizeof *values);
        s->count += n, values += n, count -= n;
        if (s->count == EXCHANGE_ELEMENTS) TRY(flush(s));
    }
    return STATUS_OK;
}

/* `count` numbers that lie one behind the other. */
static enum status pass(const struct torch_model *m, const struct piece *p, size_t begin,
                        size_t count, struct stream *s)
{
    for (size_t done = 0, n; done < count; done += n) {
        const float *values;
        n = count - done < EXCHANGE_ELEMENTS ? count - done : EXCHANGE_ELEMENTS;
        TRY(m->weights.read(m->weights.context, p, begin + done, n, &values));
        TRY(append(s, values, n));
    }
    return STATUS_OK;
}

static enum status run(const struct torch_model *m, const struct piece *p, struct stream *s)
{
    const struct tensor_place *t = &m->layout->tensors[p->tensor];
    bool ordered = row_here(m, t->id, 1) == 1;
    size_t each = ordered ? t->elements : (size_t)t->columns;
    for (size_t at = 0; at < t->elements; at += each) {
        size_t begin = row_here(m, t->id, at / (size_t)t->columns) * (size_t)t->columns;
        TRY(pass(m, p, begin, each, s));
    }
    TRY(flush(s));
    return STATUS_OK;
}

static const struct piece *find_piece(const struct torch_model *m, int tensor)
{
    const struct piece *p = NULL;
    for (size_t k = 0; k < m->pieces->count; k++)
        if (m->pieces->all[k].tensor == tensor) p = &m->pieces->all[k];
    BUG_IF(!p || p->first || p->count != m->layout->tensors[tensor].elements);
    return p;
}

static void open_stream(struct stream *s)
{
    s->values = heap(EXCHANGE_ELEMENTS * sizeof *s->values);
    s->bytes = heap(EXCHANGE_ELEMENTS * sizeof *s->values);
}

static void close_stream(struct stream *s) { free(s->values), free(s->bytes); }

enum status torch_model_write(void *writer, const void *bytes, size_t len)
{
    TRY(torch_writer_put(writer, bytes, len));
    return STATUS_OK;
}

enum status torch_model_stream(const struct torch_model *m, int i,
                               enum status (*put)(void *context, const void *bytes, size_t len),
                               void *context)
{
    struct stream s = {.dtype = m->dtype, .put = put, .context = context};
    open_stream(&s);
    enum status st = run(m, find_piece(m, i), &s);
    close_stream(&s);
    return st;
}

/* Whole rows lie one behind the other. */
static enum status run_block(const struct torch_model *m, const struct torch_block *b,
                             struct stream *s)
{
    const struct piece *p = find_piece(m, b->tensor);
    int64_t columns = m->layout->tensors[b->tensor].columns;
    bool whole = b->columns == columns;
    size_t each = (size_t)(whole ? b->rows * columns : b->columns);
    for (int64_t row = 0; row < (whole ? 1 : b->rows); row++) {
        size_t begin = (size_t)((b->row + row) * columns + b->column);
        TRY(pass(m, p, begin, each, s));
    }
    TRY(flush(s));
    return STATUS_OK;
}

enum status torch_model_stream_block(const struct torch_model *m, const struct torch_block *b,
                                     enum status (*put)(void *context, const void *bytes,
                                                        size_t len),
                                     void *context)
{
    struct stream s = {.dtype = m->dtype, .put = put, .context = context};
    open_stream(&s);
    enum status st = run_block(m, b, &s);
    close_stream(&s);
    return st;
}
