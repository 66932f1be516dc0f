// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_ranks.h"

#include "base/file.h"
#include "checkpoint/interop/megatron_groups.h"
#include "checkpoint/interop/megatron_shard.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model_optim_rng.pt"
#define OPTIMIZER "distrib_optim.pt"

enum { MAX_RANKS = 4096, MAX_CHUNKS = 256 };

/* The numbers of ranks, and how their folders are named. */
struct rank_grid {
    int tp, pp;
    bool has_pp; /* mp_rank_TT_PPP */
};

/* What to read of the optimizer. */
struct optimizer_part {
    bool is_distributed; /* in distrib_optim.pt */
    bool has_state;      /* else, with the model */
    bool has_copies;
    bool has_fused_norms; /* see megatron_shard.h */
    bool moments;         /* read these, not the float32 copies */
};

struct ranks_reader {
    struct tensor_slices *slices;
    struct rank_grid grid;
    struct megatron_state state;
    struct megatron_sizes sizes;
    struct optimizer_part optimizer;
};

static bool parse_number(const char **at, int *out)
{
    int digits = 0;
    for (*out = 0; isdigit((unsigned char)**at) && digits < 5; digits++)
        *out = 10 * *out + *(*at)++ - '0';
    return digits > 0 && *out < MAX_RANKS;
}

static bool parse_folder(const char *name, int *tp, int *pp, bool *has_pp)
{
    static const char prefix[] = "mp_rank_";
    if (strncmp(name, prefix, sizeof prefix - 1)) return false;
    name += sizeof prefix - 1;
    *pp = 0;
    if (!parse_number(&name, tp)) return false;
    *has_pp = *name == '_';
    return (!*has_pp || (name++, parse_number(&name, pp))) && !*name;
}

/* No ranks if the folder does not exist. */
static enum status count_ranks(const char *path, struct rank_grid *g)
{
    struct file_list l;
    *g = (struct rank_grid){0};
    if (!file_is_dir(path)) return STATUS_OK;
    TRY(file_list_dir(&l, path));
    for (size_t i = 0; i < l.count; i++) {
        int tp, pp;
        bool has_pp;
        if (!parse_folder(l.paths[i], &tp, &pp, &has_pp)) continue;
        if (tp >= g->tp) g->tp = tp + 1;
        if (pp >= g->pp) g->pp = pp + 1;
        g->has_pp |= has_pp;
    }
    file_list_release(&l);
    return STATUS_OK;
}

bool megatron_ranks_detect(const char *path)
{
    struct rank_grid g;
    return !count_ranks(path, &g) && g.tp > 0;
}

static char *rank_file(const char *path, const struct rank_grid *g, int tp, int pp,
                       const char *file)
{
    char name[64];
    if (g->has_pp)
        snprintf(name, sizeof name, "mp_rank_%02d_%03d/%s", tp, pp, file);
    else
        snprintf(name, sizeof name, "mp_rank_%02d/%s", tp, file);
    return file_join(path, name);
}

/* The first rank's file. */
struct first_file {
    struct file_map map;
    struct torch_archive archive;
    char *path;
};

static void close_first(struct first_file *f)
{
    torch_archive_close(&f->archive);
    file_map_close(&f->map);
    free(f->path);
}

/* Close `f` even after a failure. */
static enum status open_first(struct first_file *f, const char *path)
{
    struct rank_grid g;
    *f = (struct first_file){0};
    TRY(count_ranks(path, &g));
    f->path = rank_file(path, &g, 0, 0, FILE_NAME);
    TRY(file_map_open(&f->map, f->path));
    TRY(torch_archive_open_any(&f->archive, f->map.data, f->map.size, f->path));
    return STATUS_OK;
}

enum status megatron_ranks_read_state(const char *path, struct megatron_state *m)
{
    struct first_file f;
    megatron_state_init(m);
    enum status st = open_first(&f, path);
    if (!st) st = megatron_state_read(m, f.archive.pickle.root, f.path);
    st = file_map_check_after(&f.map, st);
    close_first(&f);
    return st;
}

/* Skips "model." or "model3."; *chunk is the number. */
static bool skip_model(const char **name, int *chunk)
{
    static const char prefix[] = "model";
    const char *at = *name + sizeof prefix - 1;
    *chunk = 0;
    if (strncmp(*name, prefix, sizeof prefix - 1)) return false;
    if (*at != '.' && (!parse_number(&at, chunk) || *chunk >= MAX_CHUNKS)) return false;
    if (*at != '.') return false;
    *name = at + 1;
    return true;
}

/* A rank's part of the model. */
struct rank_model {
    struct torch_tensors tensors;
    const struct file_map *map;
    int tp, pp;
    int each; /* layers of a chunk (model0, model1) */
};

static enum status count_layers(const struct ranks_reader *r, struct rank_model *m)
{
    int chunks = 1;
    for (size_t i = 0; i < m->tensors.count; i++) {
        const char *name = m->tensors.all[i].name;
        int chunk;
        if (skip_model(&name, &chunk) && chunk >= chunks) chunks = chunk + 1;
    }
    if (r->sizes.L % ((int64_t)chunks * r->grid.pp))
        FAIL(UNSUPPORTED,
             "%s: %lld layers on %d pipeline stages: stages with different numbers of layers are "
             "not supported",
             r->slices->path, (long long)r->sizes.L, chunks * r->grid.pp);
    m->each = (int)(r->sizes.L / ((int64_t)chunks * r->grid.pp));
    return STATUS_OK;
}

/* Parses the tensor's name; s->tensor.form is NULL unless it is a parameter. */
static enum status parse_param(const struct ranks_reader *r, const struct rank_model *m,
                               const struct torch_tensor *t, struct megatron_shard *s)
{
    const char *name = t->name;
    int chunk;
    *s = (struct megatron_shard){.tp = m->tp, .num_tp = r->grid.tp, .columns = 1};
    if (!skip_model(&name, &chunk)) return STATUS_OK;
    bool known = megatron_tensor_parse(name, &s->tensor) && !s->tensor.is_stacked;
    if (!known && !megatron_tensor_is_ignored(name))
        FAIL(DATA, "%s: tensor %s does not belong to a Llama of megatron-core", r->slices->path,
             t->name);
    if (!known) {
        s->tensor.form = NULL;
        return STATUS_OK;
    }
    if (s->tensor.layer >= m->each)
        FAIL(DATA, "%s: %s: a stage has only %d layers", r->slices->path, t->name, m->each);
    int dims = megatron_tensor_dims(&s->tensor);
    if (t->num_dims != dims)
        FAIL(DATA, "%s: %s has %d dimensions, expected %d", r->slices->path, t->name, t->num_dims,
             dims);
    for (int d = 0; d < dims; d++)
        if (t->shape[d] > INT32_MAX)
            FAIL(DATA, "%s: %s has a dimension of %lld, expected at most %d", r->slices->path,
                 t->name, (long long)t->shape[d], INT32_MAX);
    /* chunk c of all ranks precedes chunk c + 1 */
    s->layer = s->tensor.layer < 0 ? -1 : (chunk * r->grid.pp + m->pp) * m->each + s->tensor.layer;
    s->rows = t->shape[0];
    if (dims > 1) s->columns = t->shape[1];
    /* the last stage's copy of the embedding */
    s->is_copy = r->state.has_args && r->state.shape.tied &&
                 megatron_tensor_first(&s->tensor, 0).id == PARAM_head;
    snprintf(s->name, sizeof s->name, "%s", name);
    return STATUS_OK;
}

static enum status add_tensors(struct ranks_reader *r, const struct rank_model *m)
{
    for (size_t i = 0; i < m->tensors.count; i++) {
        const struct torch_tensor *t = &m->tensors.all[i];
        const struct file_slice piece = {t, m->map, 0, 0};
        struct megatron_shard s;
        TRY(parse_param(r, m, t, &s));
        if (!s.tensor.form) continue;
        r->optimizer.has_fused_norms |= strstr(t->name, ".linear_qkv.layer_norm_weight") != NULL;
        if (!s.is_copy) TRY(megatron_shard_add(r->slices, &r->sizes, &s, &piece));
    }
    return STATUS_OK;
}

/* Adds what the optimizer has, whose parameters are in the order of the model's dict: that of
 * named_parameters. */
static enum status add_groups(struct ranks_reader *r, const struct rank_model *m,
                              const struct megatron_groups *g)
{
    bool moments = r->optimizer.moments;
    enum megatron_source first = moments ? MEGATRON_EXP_AVG : MEGATRON_FP32;
    enum megatron_source last = moments ? MEGATRON_EXP_AVG_SQ : MEGATRON_FP32;
    struct megatron_shards model = {.all = heap(m->tensors.count * sizeof *model.all)};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < m->tensors.count; i++) {
        TRY_OUT(parse_param(r, m, &m->tensors.all[i], &model.all[model.count]));
        model.count += model.all[model.count].tensor.form != NULL;
    }
    for (enum megatron_source source = first; source <= last; source++)
        TRY_OUT(megatron_groups_add(g, &model, source, r->slices, &r->sizes));
out:
    megatron_shards_release(&model);
    return st;
}

/* Opens what a rank's file has: of the optimizer if `from_optimizer`, else the model. */
static enum status open_rank(struct ranks_reader *r, int tp, int pp, bool from_optimizer)
{
    char *path = rank_file(r->slices->path, &r->grid, tp, pp, FILE_NAME);
    struct torch_archive a = {0};
    struct rank_model m = {.tp = tp, .pp = pp};
    struct megatron_groups g = {0};
    enum status st = STATUS_OK;
    TRY_OUT(tensor_slices_map(r->slices, path, &m.map));
    TRY_OUT(torch_archive_open_any(&a, m.map->data, m.map->size, path));
    TRY_OUT(torch_archive_tensors(&a, &m.tensors));
    TRY_OUT(count_layers(r, &m));
    if (from_optimizer) {
        TRY_OUT(megatron_groups_open(&g, &a, m.map));
        TRY_OUT(add_groups(r, &m, &g));
    } else {
        r->optimizer.has_state |= megatron_groups_exist(&a);
        r->optimizer.has_copies |= megatron_groups_have_copies(&a);
        TRY_OUT(add_tensors(r, &m));
    }
out:
    megatron_groups_release(&g);
    torch_tensors_release(&m.tensors);
    torch_archive_close(&a);
    free(path);
    return st;
}

static enum status read_sizes(struct ranks_reader *r, const struct model_shape *shape)
{
    TRY(count_ranks(r->slices->path, &r->grid));
    TRY(megatron_ranks_read_state(r->slices->path, &r->state));
    TRY(megatron_state_sizes(&r->state, shape, r->slices, &r->sizes));
    return STATUS_OK;
}

static enum status open_ranks(struct ranks_reader *r, const struct model_shape *shape)
{
    TRY(read_sizes(r, shape));
    for (int pp = 0; pp < r->grid.pp; pp++)
        for (int tp = 0; tp < r->grid.tp; tp++) TRY(open_rank(r, tp, pp, false));
    TRY(tensor_slices_finish(r->slices));
    return STATUS_OK;
}

/* Sets *part to what its optimizer has. */
static enum status open_model(struct tensor_slices *slices, const char *path,
                              const struct model_shape *shape, struct optimizer_part *part)
{
    struct ranks_reader r = {.slices = slices};
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    enum status st = open_ranks(&r, shape);
    megatron_state_release(&r.state);
    *part = r.optimizer;
    char *file = rank_file(path, &r.grid, 0, 0, OPTIMIZER);
    part->is_distributed = file_exists(file);
    free(file);
    return tensor_slices_opened(slices, st);
}

/* Adds the parameters of a model chunk from a vector of the optimizer, which has them from the last
 * to the first, each at a multiple of 64 in its bucket.  Buckets follow one another without the
 * padding at their ends.  The file does not say where buckets end, so only buckets that end at
 * multiples of 64 are read: otherwise the total differs. */
static enum status add_vector(struct ranks_reader *r, const struct megatron_shards *shards,
                              const struct torch_tensor *t, const struct file_map *map,
                              enum megatron_source source)
{
    int64_t total = t->num_dims == 1 ? t->shape[0] : 0, end = 0;
    for (size_t i = shards->count; i-- > 0;) {
        struct megatron_shard s = shards->all[i];
        struct torch_tensor part = *t;
        const struct file_slice flat = {&part, map, 0, 0};
        int64_t start = megatron_shard_align(end), count = s.rows * s.columns;
        if (start > total || count > total - start)
            FAIL(UNSUPPORTED, "%s has %lld elements, too few for %s", t->name, (long long)total,
                 s.name);
        part.shape[0] = count;
        part.data += (size_t)start * safetensors_dtype_bytes(t->dtype);
        s.tensor.source = source;
        if (!s.is_copy) TRY(megatron_shard_add_flat(r->slices, &r->sizes, &s, &flat));
        end = start + count;
    }
    if (end != total)
        FAIL(UNSUPPORTED, "%s has %lld elements, but the parameters end at %lld", t->name,
             (long long)total, (long long)end);
    return STATUS_OK;
}

/* Adds from "B.().exp_avg", where B numbers the model chunks, and () is a dtype or a tuple
 * of dtypes. */
static enum status add_vectors(struct ranks_reader *r, const struct torch_tensors *all,
                               const struct file_map *map, const struct megatron_chunk *c,
                               enum megatron_source source)
{
    const struct torch_tensor *found = NULL;
    struct megatron_shards shards;
    char name[64];
    snprintf(name, sizeof name, "%d.().%s", c->chunk, megatron_tensor_key(source));
    for (size_t i = 0; i < all->count; i++)
        if (!strcmp(all->all[i].name, name)) found = &all->all[i];
    if (!found) FAIL(UNSUPPORTED, "found no tensor %s", name);
    enum status st = megatron_shards_list(&shards, &r->state, &r->sizes, c);
    if (!st) st = add_vector(r, &shards, found, map, source);
    megatron_shards_release(&shards);
    return st;
}

static enum status open_distributed_rank(struct ranks_reader *r, struct megatron_chunk c)
{
    bool moments = r->optimizer.moments;
    char *path = rank_file(r->slices->path, &r->grid, c.tp, c.pp, OPTIMIZER);
    struct torch_archive a = {0};
    struct torch_tensors tensors = {0};
    const struct file_map *map;
    enum status st = STATUS_OK;
    enum megatron_source first = moments ? MEGATRON_EXP_AVG : MEGATRON_FP32;
    enum megatron_source last = moments ? MEGATRON_EXP_AVG_SQ : MEGATRON_FP32;
    TRY_OUT(tensor_slices_map(r->slices, path, &map));
    TRY_OUT(torch_archive_open_any(&a, map->data, map->size, path));
    TRY_OUT(torch_archive_tensors(&a, &tensors));
    if (tensors.count != (size_t)r->state.chunks * 3)
        FAIL_OUT(UNSUPPORTED, "%s has %zu tensors, expected %d", path, tensors.count,
                 3 * r->state.chunks);
    for (c.chunk = 0; c.chunk < r->state.chunks; c.chunk++)
        for (enum megatron_source source = first; source <= last; source++)
            TRY_PREFIX_OUT(add_vectors(r, &tensors, map, &c, source), "%s", path);
out:
    torch_tensors_release(&tensors);
    torch_archive_close(&a);
    free(path);
    return st;
}

static enum status open_distributed(struct ranks_reader *r)
{
    TRY_PREFIX(megatron_state_require_args(&r->state), "%s", r->slices->path);
    if (r->state.tp != r->grid.tp || r->state.pp != r->grid.pp)
        FAIL(UNSUPPORTED,
             "%s: args.tensor_model_parallel_size = %d and pipeline_model_parallel_size = %d, but "
             "there are folders of %d x %d ranks",
             r->slices->path, r->state.tp, r->state.pp, r->grid.tp, r->grid.pp);
    if (r->state.chunks > MAX_CHUNKS)
        FAIL(UNSUPPORTED, "%s: args.virtual_pipeline_model_parallel_size = %d: expected at most %d",
             r->slices->path, r->state.chunks, MAX_CHUNKS);
    for (int pp = 0; pp < r->grid.pp; pp++)
        for (int tp = 0; tp < r->grid.tp; tp++) {
            const struct megatron_chunk c = {tp, pp, 0, r->optimizer.has_fused_norms};
            TRY(open_distributed_rank(r, c));
        }
    return STATUS_OK;
}

static enum status open_optimizer_ranks(struct ranks_reader *r, const struct model_shape *shape)
{
    TRY(read_sizes(r, shape));
    if (r->optimizer.is_distributed) TRY(open_distributed(r));
    for (int pp = 0; pp < r->grid.pp && !r->optimizer.is_distributed; pp++)
        for (int tp = 0; tp < r->grid.tp; tp++) TRY(open_rank(r, tp, pp, true));
    TRY(tensor_slices_finish(r->slices));
    return STATUS_OK;
}

static enum status open_optimizer(struct tensor_slices *slices, const char *path,
                                  const struct model_shape *shape,
                                  const struct optimizer_part *part)
{
    struct ranks_reader r = {.slices = slices, .optimizer = *part};
    *slices = (struct tensor_slices){.path = heap_strdup(path)};
    enum status st = open_optimizer_ranks(&r, shape);
    megatron_state_release(&r.state);
    return tensor_slices_opened(slices, st);
}

/* Opens the float32 copies, which must be all weights of `model`. */
static enum status open_copies(struct tensor_slices *copies, const struct tensor_slices *model,
                               const struct model_shape *shape, struct optimizer_part part)
{
    part.moments = false;
    TRY(open_optimizer(copies, model->path, shape, &part));
    enum status st = megatron_shard_check_copies(copies, model);
    if (!st && copies->count < model->count)
        st = FAILURE(UNSUPPORTED, "%s: the optimizer has float32 copies of only %zu of %zu weights",
                     model->path, copies->count, model->count);
    if (st) tensor_slices_release(copies);
    return st;
}

enum status megatron_ranks_open(struct tensor_slices *slices, const char *path,
                                const struct model_shape *shape)
{
    struct tensor_slices copies = {0};
    struct optimizer_part part;
    TRY(open_model(slices, path, shape, &part));
    if (!part.is_distributed && !part.has_copies) return STATUS_OK;
    enum status st = open_copies(&copies, slices, shape, part);
    if (st == STATUS_UNSUPPORTED) {
        megatron_shard_warn_of_copies();
        return STATUS_OK;
    }
    tensor_slices_release(slices);
    *slices = copies;
    return st;
}

/* Float32 models need no copies: then only the shapes of moments are checked. */
static enum status check_copies(const struct tensor_slices *model, const struct model_shape *shape,
                                const struct optimizer_part *part)
{
    struct tensor_slices copies;
    if (!part->is_distributed && !part->has_copies) return STATUS_OK;
    TRY(open_copies(&copies, model, shape, *part));
    tensor_slices_release(&copies);
    return STATUS_OK;
}

enum status megatron_ranks_open_moments(struct tensor_slices *slices, const char *path,
                                        const struct model_shape *shape, struct torch_state *state)
{
    struct tensor_slices model = {0};
    struct optimizer_part part;
    struct megatron_state m;
    enum status st = STATUS_OK;
    *slices = (struct tensor_slices){0};
    TRY_OUT(megatron_ranks_read_state(path, &m));
    TRY_OUT(open_model(&model, path, shape, &part));
    if (!part.is_distributed && !part.has_state) {
        state->iteration = m.iteration;
        goto out;
    }
    part.moments = true;
    TRY_OUT(check_copies(&model, shape, &part));
    TRY_OUT(open_optimizer(slices, path, shape, &part));
    megatron_state_count(&m, state);
    if (m.iteration < 0) {
        tensor_slices_release(slices);
        FAIL_OUT(DATA, "%s: found optimizer moments, but no iteration", path);
    }
out:
    tensor_slices_release(&model);
    megatron_state_release(&m);
    return st;
}
