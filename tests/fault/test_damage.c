/* Damaged checkpoints: `checkpoint verify` finds each, and a run falls back or says why not. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "base/rng.h"

enum damage { BIT, TRUNCATED, ZEROED, SWAPPED, OTHER_STEP, DUPLICATE, NUM_DAMAGES };
static const char *const damage_names[] = {"a flipped bit",          "a truncated file",
                                           "a zeroed page",          "two swapped chunks",
                                           "a file of another step", "a file with another's bytes"};
enum { CHUNK = 512, PAGE = 4096 };

static uint64_t draw(uint64_t below, int trial, int what)
{
    return rng_below(below, 3, RNG_TEST, (uint64_t)trial, (uint64_t)what);
}

/* Damages `t`, the bytes of a file; `other` and `neighbor`: those of the same file of another step
 * and of another file of the same step.  False: the bytes are the same. */
static bool damage(enum damage kind, int trial, struct text *t, const struct text *other,
                   const struct text *neighbor)
{
    struct text before = {0};
    text_add(&before, t->data, t->len);
    size_t at = (size_t)draw(t->len, trial, 1), to = (size_t)draw(t->len, trial, 2);
    if (kind == BIT) {
        t->data[at] ^= (char)(1u << draw(8, trial, 3));
    } else if (kind == TRUNCATED) {
        t->len = at;
    } else if (kind == ZEROED) {
        memset(t->data + at / PAGE * PAGE, 0,
               t->len - at / PAGE * PAGE < PAGE ? t->len - at / PAGE * PAGE : PAGE);
    } else if (kind == SWAPPED && t->len > 2 * CHUNK) {
        at = at / CHUNK * CHUNK, to = to / CHUNK * CHUNK;
        if (at + CHUNK <= t->len && to + CHUNK <= t->len) {
            memcpy(t->data + at, before.data + to, CHUNK);
            memcpy(t->data + to, before.data + at, CHUNK);
        }
    } else if (kind >= OTHER_STEP) {
        text_clear(t);
        const struct text *from = kind == OTHER_STEP ? other : neighbor;
        text_add(t, from->data, from->len);
    }
    bool differs = t->len != before.len || memcmp(t->data, before.data, t->len) != 0;
    text_release(&before);
    return differs;
}

static void read_file(const char *folder, const char *name, struct text *t)
{
    char *path = file_join(folder, name);
    CHECK_STATUS(OK, file_read(path, UINT64_MAX, t));
    free(path);
}

static void write_file(const char *folder, const char *name, const struct text *t)
{
    char *path = file_join(folder, name);
    CHECK_STATUS(OK, file_write(path, t->data, t->len));
    free(path);
}

/* One damage of the newest checkpoint of `run`; `resumes`: also trains on. */
static void try_damage(const struct scene *s, enum damage kind, int trial, struct tally *t)
{
    const char *step6 = test_path(s->output, "checkpoint/step-6");
    const char *step4 = test_path(s->output, "checkpoint/step-4");
    struct file_list names;
    struct text bytes = {0}, before = {0}, other = {0}, neighbor = {0}, out = {0}, err = {0};
    CHECK_STATUS(OK, file_list_dir(&names, step6));
    const char *name = names.paths[draw(names.count, trial, 4)];
    const char *next = names.paths[draw(names.count, trial, 5)];
    read_file(step6, name, &bytes), read_file(step6, name, &before);
    read_file(step4, name, &other), read_file(step6, next, &neighbor);
    if (damage(kind, trial, &bytes, &other, &neighbor)) {
        write_file(step6, name, &bytes);
        int code = LLAMERO(&out, &err, "checkpoint", "verify", step6);
        bool is_found = code == 65 || code == 66 || code == 74 || code == 78;
        /* Another step's manifest is intact: then the message names the files that differ. */
        bool may_differ = kind == OTHER_STEP && !strcmp(name, "manifest.json");
        bool is_named = may_differ || strstr(err.data, name) || strstr(out.data, name);
        t->tried++;
        t->survived += is_found && is_named;
        if (!is_found || !is_named) {
            t->lost++;
            print_message("lost: %s in %s, trial %d: exit code %d: %s%s\n", damage_names[kind],
                          name, trial, code, out.data, err.data);
        } else if (!t->message[0]) {
            snprintf(t->message, sizeof t->message, "%.*s", (int)strcspn(err.data, "\n"), err.data);
        }
        write_file(step6, name, &before);
    }
    file_list_release(&names);
    text_release(&bytes), text_release(&before), text_release(&other), text_release(&neighbor);
    text_release(&out), text_release(&err);
}

TEST(verify_finds_every_damage)
{
    struct scene s;
    int lost = 0;
    struct text err = {0};
    scene_train(&s, 1, "");
    CHECK(!trial_judge_rerun(&s, &err));
    for (enum damage kind = BIT; kind < NUM_DAMAGES; kind++) {
        struct tally t = {0};
        int trials = trial_points(kind == BIT ? 6 : 1, kind == BIT ? 1000 : 100);
        for (int i = 0; i < trials; i++) try_damage(&s, kind, i, &t);
        tally_add_row(&t, "checkpoint verify", damage_names[kind]);
        lost += t.lost + !t.tried;
    }
    CHECK(lost == 0);
    text_release(&err);
}

/* A run whose newest checkpoint is damaged falls back to the one before and repeats the steps. */
TEST(train_falls_back_from_a_damaged_checkpoint)
{
    static const char *const files[] = {"model-00001-of-00001.safetensors",
                                        "optimizer-00001-of-00001.safetensors", "state.json",
                                        "manifest.json"};
    struct scene s;
    struct tally t = {0};
    struct text bytes = {0}, err = {0};
    scene_train(&s, 1, "");
    const char *step6 = test_path(s.output, "checkpoint/step-6");
    int trials = trial_points(1, 60);
    for (int i = 0; i < trials; i++) {
        const char *name = files[i % 4];
        const char *bad = trial_judge_rerun(&s, &err);
        if (!bad) {
            read_file(step6, name, &bytes);
            damage(BIT, i, &bytes, NULL, NULL);
            write_file(step6, name, &bytes);
            bad = trial_judge_rerun(&s, &err);
        }
        if (!bad && !strstr(err.data, "step-6")) bad = "no message names the step";
        t.tried++;
        if (bad) {
            t.lost++;
            print_message("lost: a flipped bit in %s, trial %d: %s\n", name, i, bad);
            CHECK_STATUS(OK, file_remove_tree(s.output));
        } else {
            t.survived++;
            snprintf(t.message, sizeof t.message, "%.*s", (int)strcspn(err.data, "\n"), err.data);
        }
    }
    tally_report(&t, "train", "a flipped bit in the newest checkpoint");
    text_release(&bytes), text_release(&err);
}

/* Bits that flip on the way to the disk: the checksums are those of the source buffer.  (Not those
 * of the tokenizer's small files: save.c reads them back.) */
TEST(verify_finds_bits_that_flipped_before_the_write)
{
    struct scene s;
    struct tally t = {0};
    struct text out = {0}, err = {0};
    char fault[96];
    scene_train(&s, 1, "");
    for (int n = 1; n <= trial_points(1, 50); n++) {
        CHECK_STATUS(OK, file_remove_tree(s.output));
        snprintf(fault, sizeof fault, "call=write,on=.safetensors,action=flip,nth=%d", n);
        if (!trial_interrupt(&s, fault)) break;
        t.tried++;
        if (LLAMERO(&out, &err, "checkpoint", "verify", s.output) == 65)
            t.survived++;
        else
            t.lost++, print_message("lost: %s: not detected: %s%s\n", fault, out.data, err.data);
    }
    tally_report(&t, "train, verify", "a bit that flipped before the write");
    text_release(&out), text_release(&err);
}
