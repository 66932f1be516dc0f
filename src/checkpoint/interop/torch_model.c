// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_model.h"

#include "base/progress.h"
#include "formats/torch_writer.h"

#include <stdlib.h>
#include <string.h>

struct torch_tensor torch_model_tensor(const struct torch_model *m, int i)
{
    const struct tensor_slot *t = &m->layout->tensors[i];
    char name[96];
    bool vector = params[t->id].axes[1] == 0;
    layout_tensor_name(t, false, name);
    return (struct torch_tensor){.name = heap_strdup(name),
                                 .dtype = m->dtype,
                                 .num_dims = vector ? 1 : 2,
                                 .shape = {t->rows, t->columns}};
}

/* Maps a row of the torch file to our row; see tensor_slices.h. */
static size_t our_row(const struct torch_model *m, enum param_id id, size_t row)
{
    size_t K = (size_t)m->shape->K, within = row % K;
    /* Programs rotate Qwen2, Qwen3 and Phi-3 as Hugging Face does. */
    if (m->shape->qk_norm || model_shape_is_phi3(m->shape) ||
        (m->shape->qkv_bias && !m->shape->out_bias))
        return row;
    if (id != PARAM_attn_q && id != PARAM_attn_k && id != PARAM_q_bias && id != PARAM_k_bias)
        return row;
    return row - within + within % 2 * (K / 2) + within / 2;
}

/* Buffers elements, and converts and writes them when the buffer is full. */
struct element_stream {
    enum safetensors_dtype dtype;
    float *values;
    void *bytes;
    size_t count;
    enum status (*write)(void *context, const void *bytes, size_t len);
    void *context;
};

static enum status flush_stream(struct element_stream *s)
{
    safetensors_from_f32(s->values, s->count, s->dtype, s->bytes);
    size_t len = s->count * safetensors_dtype_bytes(s->dtype);
    s->count = 0;
    if (len) TRY(s->write(s->context, s->bytes, len));
    return STATUS_OK;
}

static enum status stream_values(struct element_stream *s, const float *values, size_t count)
{
    while (count) {
        size_t room = TENSOR_SOURCE_ELEMENTS - s->count, n = count < room ? count : room;
        memcpy(s->values + s->count, values, n * sizeof *values);
        s->count += n, values += n, count -= n;
        if (s->count == TENSOR_SOURCE_ELEMENTS) TRY(flush_stream(s));
    }
    return STATUS_OK;
}

/* Streams `count` consecutive elements. */
static enum status stream_range(const struct torch_model *m, const struct shard_run *p,
                                size_t begin, size_t count, struct element_stream *s)
{
    for (size_t done = 0, n; done < count; done += n) {
        const float *values;
        n = count - done < TENSOR_SOURCE_ELEMENTS ? count - done : TENSOR_SOURCE_ELEMENTS;
        TRY(m->weights.read(m->weights.context, p, begin + done, n, &values));
        TRY(stream_values(s, values, n));
        progress_add((double)n * (double)safetensors_dtype_bytes(m->dtype));
    }
    return STATUS_OK;
}

static enum status stream_tensor(const struct torch_model *m, const struct shard_run *p,
                                 struct element_stream *s)
{
    const struct tensor_slot *t = &m->layout->tensors[p->tensor];
    bool ordered = our_row(m, t->id, 1) == 1;
    size_t each = ordered ? t->elements : (size_t)t->columns;
    for (size_t at = 0; at < t->elements; at += each) {
        size_t begin = our_row(m, t->id, at / (size_t)t->columns) * (size_t)t->columns;
        TRY(stream_range(m, p, begin, each, s));
    }
    TRY(flush_stream(s));
    return STATUS_OK;
}

static const struct shard_run *tensor_run(const struct torch_model *m, int tensor)
{
    const struct shard_run *p = NULL;
    for (size_t k = 0; k < m->shard->count; k++)
        if (m->shard->runs[k].tensor == tensor) p = &m->shard->runs[k];
    BUG_IF(!p || p->first || p->count != m->layout->tensors[tensor].elements);
    return p;
}

/* Of `count` elements in all. */
static void open_stream(struct element_stream *s, size_t count)
{
    size_t room = count < TENSOR_SOURCE_ELEMENTS ? count : TENSOR_SOURCE_ELEMENTS;
    s->values = heap(room * sizeof *s->values);
    s->bytes = heap(room * sizeof *s->values);
}

static void close_stream(struct element_stream *s) { free(s->values), free(s->bytes); }

enum status torch_model_write(void *writer, const void *bytes, size_t len)
{
    TRY(torch_writer_put(writer, bytes, len));
    return STATUS_OK;
}

enum status torch_model_stream(const struct torch_model *m, int i,
                               enum status (*write)(void *context, const void *bytes, size_t len),
                               void *context)
{
    struct element_stream s = {.dtype = m->dtype, .write = write, .context = context};
    const struct shard_run *run = tensor_run(m, i);
    open_stream(&s, run->count);
    enum status st = stream_tensor(m, run, &s);
    close_stream(&s);
    return st;
}

/* Whole rows are consecutive. */
static enum status stream_block_rows(const struct torch_model *m, const struct torch_block *b,
                                     struct element_stream *s)
{
    const struct shard_run *p = tensor_run(m, b->tensor);
    int64_t columns = m->layout->tensors[b->tensor].columns;
    bool whole = b->columns == columns;
    size_t each = (size_t)(whole ? b->rows * columns : b->columns);
    for (int64_t row = 0; row < (whole ? 1 : b->rows); row++) {
        size_t begin = (size_t)((b->row + row) * columns + b->column);
        TRY(stream_range(m, p, begin, each, s));
    }
    TRY(flush_stream(s));
    return STATUS_OK;
}

enum status torch_model_stream_block(const struct torch_model *m, const struct torch_block *b,
                                     enum status (*write)(void *context, const void *bytes,
                                                          size_t len),
                                     void *context)
{
    struct element_stream s = {.dtype = m->dtype, .write = write, .context = context};
    open_stream(&s, (size_t)(b->rows * b->columns));
    enum status st = stream_block_rows(m, b, &s);
    close_stream(&s);
    return st;
}
