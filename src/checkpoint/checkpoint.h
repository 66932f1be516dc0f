/* checkpoint.h -- a run's state on disk: saved atomically, verified when loaded.
 *
 * checkpoint/step-N/ is a Hugging Face folder: config.json, model.safetensors.index.json,
 * model-*.safetensors (f32 master weights, Hugging Face names and layout) and tokenizer files.  It
 * also has optimizer-*.safetensors (NAME.exp_avg and, unless Muon updates the tensor,
 * NAME.exp_avg_sq), ema-*.safetensors (NAME, the weights' moving average) if there is one,
 * state.json, and manifest.json with the size and checksums of every file, which is written last.
 * Order    Write step-N.tmp/ and fsync its files; write and fsync the manifest; fsync the folder;
 *          rename it to step-N; fsync the parent; delete old checkpoints.  A folder without a valid
 *          manifest is not a checkpoint and is never loaded; files that its manifest does not list
 *          are ignored.
 * Ranks    Each rank holds a shard; the files do not depend on the shards, and any ranks can load
 *          them.  Functions that take a group are collective over it, a checkpointer's over the
 *          group it was opened with.  If one rank fails, all fail.  Elements that several ranks
 *          hold must have the same bits on all of them; any rank's copy may be written.
 * Memory   A synchronous save streams from the caller's buffers; an async save first copies them to
 *          the caller's `staging` buffer (staging.h).  Both need a few more megabytes to assemble
 *          files block by block (safetensors_shards.h).  Loading reads only a rank's own shard.  A
 *          load and a synchronous save copy device buffers through a few megabytes of pinned host
 *          memory. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/checkpoint_config.h"
#include "checkpoint/folder.h"
#include "comm/comm.h"
#include "data/data_config.h"
#include "formats/safetensors.h"
#include "model/shard.h"
#include "model/value_check.h"
#include "tensor/dtype.h"
#include "tensor/store.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* The state that a checkpoint holds. */
struct checkpoint_state {
    const struct model_shape *shape;
    const struct layout *layout;          /* of the whole model: names and shapes of its tensors */
    const struct shard *shard;            /* this rank's: elements of its flat buffers */
    const struct comm *world;             /* the ranks that load; a save uses the checkpointer's */
    void *weights, *exp_avg, *exp_avg_sq; /* flat; moments NULL: model only */
    const struct shard *exp_avg_sq_shard; /* NULL: `shard` */
    uint32_t first_moment_only; /* kinds of weights without a second moment (a set, params.h) */
    float *ema;                 /* flat; NULL: none */
    bool loads_ema;     /* checkpoint_load_weights: the moving average instead of the weights */
    uint16_t *low;      /* NULL: f32 weights; else low bits of split weights */
    enum dtype moments; /* dtype in memory; on disk they are f32 */
    const struct store_blocks *moment_blocks; /* INT8: of exp_avg and of exp_avg_sq; else NULL */
    struct queue *queue;                      /* owns the device memory; NULL: host memory */
    enum safetensors_dtype dtype;             /* of the weights on disk; for saving only */
    int64_t step;                             /* completed optimizer steps */
    /* For saving; only rank 0 needs them: */
    struct text train; /* the trainer's part of state.json: a JSON object (data cursor, counters) */
    const struct tokenizer *tokenizer;        /* its file is saved too; NULL: none */
    const struct text *config_toml;           /* effective configuration, saved too; NULL: none */
    const struct objective_config *objective; /* for config.json; NULL: causal */
    int64_t keep_before; /* do not delete the newest checkpoint before this step; 0: may delete */
};

static inline struct store checkpoint_weights(const struct checkpoint_state *s)
{
    return (struct store){
        .x = s->weights, .low = s->low, .dtype = s->low ? BF16 : F32, .queue = s->queue};
}
static inline struct store checkpoint_exp_avg(const struct checkpoint_state *s)
{
    return (struct store){
        .x = s->exp_avg, .dtype = s->moments, .queue = s->queue, .blocks = s->moment_blocks};
}
static inline struct store checkpoint_exp_avg_sq(const struct checkpoint_state *s)
{
    const struct store_blocks *blocks = s->moment_blocks ? s->moment_blocks + 1 : NULL;
    return (struct store){
        .x = s->exp_avg_sq, .dtype = s->moments, .queue = s->queue, .blocks = blocks};
}
static inline const struct shard *checkpoint_shard(const struct checkpoint_state *s,
                                                   enum value_kind kind)
{
    return kind == VALUE_EXP_AVG_SQ && s->exp_avg_sq_shard ? s->exp_avg_sq_shard : s->shard;
}

static inline struct store checkpoint_ema(const struct checkpoint_state *s)
{
    return store_f32(s->ema, s->queue);
}

struct checkpointer;

struct checkpointer_options {
    const char *folder;  /* DUMP_FOLDER/checkpoint.folder */
    const char *copy_to; /* s3:// address of copies (copier.h); NULL or "": none */
    int keep_latest_k, copy_stop_timeout_s;
    int64_t load_step; /* for copier.h */
    bool async, load_only;
    void *staging; /* async: staging_bytes (staging.h), borrowed until close */
    /* The ranks that save.  The checkpointer makes its own group of them, so that transfers of a
     * pending save never mix with other communication.  Async: the save thread starts transfers on
     * that group. */
    const struct comm *world;
};

/* Memory of a save beyond the staging buffer, per rank: blocks of a file, send and receive buffers,
 * and, unless the state (of an async save: its copy) is f32 in host memory, the buffers that
 * convert it.  `on_gpu`: it is in a GPU's memory; `is_split`: its weights are split (store.h). */
size_t checkpoint_save_bytes(int ranks, bool on_gpu, bool is_split, enum dtype moments);

enum status checkpointer_open(struct checkpointer **out, const struct checkpointer_options *o);
/* Waits for a pending save and for its copy, and returns the save's status, the same on all ranks.
 * `failed`: the run failed on this rank, so that the copy gets only the stop timeout. */
enum status checkpointer_close(struct checkpointer *c, bool failed);

/* Saves step-<state->step>.  Async: first waits for the previous save and warns if it failed; then
 * copies the state to the staging buffer and returns, and each rank's save thread writes it.
 * Shape, layout, shard, tokenizer and the ranges of moments in INT8 stay borrowed until the save is
 * done.  IO: nothing is left under the final name, and an older checkpoint of that name is
 * untouched.  DIVERGED: likewise, as the state has values that checkpoint_load would reject; the
 * message has tensor and rank.  If the previous, async save failed so, this one is not started.
 * DEVICE: the state cannot be copied from the device. */
enum status checkpointer_save(struct checkpointer *c, const struct checkpoint_state *state);
/* Waits for the pending save, if any, and returns its status, the same on all ranks. */
enum status checkpointer_wait(struct checkpointer *c);
/* The same, but logs a failure: the run continues, or ends for another reason. */
enum status checkpointer_drain(struct checkpointer *c);

/* Sets aside all checkpoints after `step`, from which the run counts on: they move to a folder
 * abandoned-<step>-<number>, which first gets a copy of the file `keep` (NULL: none), and the
 * copier sets aside their copies in the background.  On rank 0 `branch` (NULL: not needed) becomes
 * its path, empty if there are no such checkpoints.  Wait for a pending save first.  IO. */
enum status checkpointer_abandon(struct checkpointer *c, int64_t step, const char *keep,
                                 struct text *branch);

/* Seconds that the last save took that is known to have ended; 0: none. */
double checkpointer_save_seconds(const struct checkpointer *c);

/* Finds the newest complete checkpoint, ours or DCP, whose step is below `limit` (INT64_MAX: any).
 * *found is its path (heap, the caller frees it), or NULL if none exists.  Damaged ones are
 * skipped, with a warning if `log` or if all are damaged.  Rank 0 searches and broadcasts the
 * result. */
enum status checkpoint_find(const char *folder, int64_t limit, bool log, const struct comm *world,
                            char **found);
/* Finds the checkpoint of exactly that step.  MISSING: it does not exist.  DATA: it is damaged. */
enum status checkpoint_find_step(const char *folder, int64_t step, const struct comm *world,
                                 char **found);

/* Finds the folder of the model that `path` refers to: `path` itself if it is a model; if it is a
 * run or a folder of checkpoints, ours, DCP or Megatron-LM's, the checkpoint of `step`, or if it is
 * negative the newest complete one (Megatron-LM's: the last saved).  *folder is on the heap.
 * MISSING: no model, or not that step.  CONFIG: a step was given, but `path` is a model.  DATA:
 * that step is damaged, or all are. */
enum status checkpoint_locate(const char *path, int64_t step, const struct comm *world,
                              char **folder);

/* Whether the folder is a checkpoint of ours, rather than another program's.  If it is, verifies
 * every byte against its manifest.  DATA: damaged or never finished. */
enum status checkpoint_check_native(const char *folder, bool *native);

/* Adds to a DATA failure of step-N what the user can do: the command that finds all damage, and the
 * checkpoint before it, if any.  Returns `st`, on this rank alone. */
enum status checkpoint_advise(const char *folder, enum status st);

/* What checkpoint_load found besides the tensors. */
struct checkpoint_found {
    int64_t step;
    struct json *state;       /* state.json; the caller frees it; NULL in another program's
                               * folder */
    const struct json *train; /* the trainer's object in it, or NULL */
    bool has_moments, has_ema;
};

/* Which tensors not to load. */
struct load_rules {
    const struct option_list *exclude; /* tensors or parts to leave unchanged; NULL: none */
    bool partial; /* leave tensors unchanged that the folder lacks, and warn which */
    bool resumes; /* a run's own checkpoint: exclude only parts, as its start excluded tensors */
};

/* Fills the buffers of `state` from a checkpoint of ours (the files that it uses are verified while
 * they are read: chunk_reader.h), a Hugging Face Llama folder (safetensors or pytorch_model.bin
 * (pytorch_bin.h); any float dtype; sharded, tied or not), or torch files of any kind
 * (torch_files.h).  With rules (NULL: everything must be loaded) rank 0 logs which tensors are
 * loaded.
 * Tied     An untied model's head is a copy of a tied one's embedding.  A tied model leaves out a
 *          head that equals the embedding, or that is excluded.
 * Values   They are checked while they are read (model/value_check.h).  After a failure the buffers
 *          hold anything.
 * DATA: a tensor has a value that is NaN, infinite, absurdly large or a negative second moment, or
 * a checksum does not match; the message has name and position.
 * CONFIG: the model there lacks a tensor, has other heads, another vocabulary or other shapes, or a
 * head of its own that a tied model would lose; other RoPE or epsilon only cause a warning.
 * UNSUPPORTED: moments were requested, but those there are NxD Training's. */
enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct load_rules *rules, struct checkpoint_found *found);
/* Fails as checkpoint_load would, but of the weights reads only a head that a tied model leaves
 * out, and the embedding, and verifies checksums only if these differ.  `log`: logs which tensors
 * would be loaded.  On this rank alone; of `state` it uses shape and layout. */
enum status checkpoint_check_shapes(const char *folder, const struct checkpoint_state *state,
                                    const struct load_rules *rules, bool log);

/* Reads what a checkpoint has besides tensors, and whether it has moments; of `state` it uses shape
 * and world.  `rules` NULL: the moments will not be loaded.  Of another program's without moments,
 * it has nothing.  On this rank alone.  `log`: rank 0 warns of what is ignored.  Errors: those of
 * checkpoint_load. */
enum status checkpoint_read_state(const char *folder, const struct checkpoint_state *state,
                                  const struct load_rules *rules, bool log,
                                  struct checkpoint_found *found);

/* Loads only the weights, as `dtype`, from the same folders with the same errors.  MISSING: no
 * moving average, if that is requested.  `state` provides the model, the shard and the ranks.
 * Apart from `weights`, memory does not grow with the model. */
enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights);

/* Checks the structure and all values of a checkpoint's weights and their moving average, or of its
 * moments. */
enum status checkpoint_check_values(const char *folder, bool moments);
/* Verifies every byte, which it reads once: sizes, checksums, structure of the safetensors files,
 * values.  Fails with the first error that it finds. */
enum status checkpoint_verify(const char *folder);

/* Reads the model's dimensions from the folder's config.json (old and new keys), or from
 * params.json and the weights next to it.  A model whose head differs from the embedding is not
 * tied, whatever config.json says: a warning is logged, and Transformers does the same. */
enum status checkpoint_read_shape(const char *folder, struct model_shape *shape);
