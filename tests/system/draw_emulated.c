// SPDX-License-Identifier: Apache-2.0
#include "system/draw_emulated.h"

#include "system/draw_runs.h"
#include "test.h"

#include <inttypes.h>

/* A GPU without FP8 units has other kernels, and scratch where those have none. */
enum { WITHOUT_FP8 = 80, WITH_FP8 = 90 };

#define REFERENCE "emulated_reference"

struct emulated {
    const char *name, *program;
    struct text settings;
    bool in_float32;
};

static void choose(struct draw *d, struct emulated *e)
{
    bool is_wide = draw_below(d, 4) == 0, has_fp8 = !is_wide && draw_below(d, 2);
    char capability[16];
    snprintf(capability, sizeof capability, "%d", has_fp8 ? WITH_FP8 : WITHOUT_FP8);
    setenv("LLAMERO_EMULATED_CAPABILITY", is_wide ? "0" : capability, 1);
    e->name = is_wide ? "warps of 64" : has_fp8 ? "native FP8" : "without FP8 units";
    e->program = getenv(is_wide ? "LLAMERO_GPU64" : "LLAMERO_GPU");
    CHECK(e->program);
    draw_choose_gpu(d, &e->settings);
}

/* On the emulated GPU. */
static int run(struct draw *d, const struct emulated *e, const char *command, const char *dump,
               struct text *err)
{
    struct text also = {0};
    text_addf(&also, "%s%s", e->in_float32 ? DRAW_IN_FLOAT32 : "", e->settings.data);
    d->program = e->program, d->also = also.data;
    int code = draw_run(d, command, d->layout, dump, err);
    d->program = NULL, d->also = "";
    text_release(&also);
    return code;
}

/* On the CPU, in float32. */
static enum answer train_reference(struct draw *d, struct text *why)
{
    struct text err = {0};
    d->also = DRAW_IN_FLOAT32;
    int code = draw_run(d, "train", d->layout, REFERENCE, &err);
    d->also = "";
    enum answer answer = code ? draw_broken(why, code, &err) : HOLDS;
    text_release(&err);
    return answer;
}

/* Steps amplify roundings: in bfloat16 norms of a draw with mock data differed by 0.33 after 5. */
static enum answer close_to_cpu(struct draw *d, const struct emulated *e, struct text *why)
{
    struct draw_limits most = *draw_limits(d);
    if (e->in_float32) return draw_close(d, REFERENCE, "emulated", &draw_in_float32, why);
    most.norm_steps = draw_is_float32(d) ? 0 : 1;
    return draw_close(d, "a", "emulated", &most, why);
}

static enum answer train_again(struct draw *d, const struct emulated *e, struct text *why)
{
    bool resumes = d->number / 2 % 2;
    const char *dump = "emulated_again";
    struct text err = {0};
    if (resumes) draw_copy_first_checkpoint(d, "emulated", dump);
    text_addf(why, "%s: ", resumes ? "resumed" : "repeated");
    int code = run(d, e, "train", dump, &err);
    enum answer answer =
        code ? draw_broken(why, code, &err) : draw_same_metrics(d, "emulated", dump, resumes, why);
    if (!code && draw_same_state(d, "emulated", dump, why) == BROKEN) answer = BROKEN;
    text_release(&err);
    return answer;
}

static enum answer train(struct draw *d, const struct emulated *e, struct text *why)
{
    struct text err = {0};
    int code = run(d, e, "train", "emulated", &err);
    if (code) draw_broken(why, code, &err);
    text_release(&err);
    if (code || close_to_cpu(d, e, why) == BROKEN) return BROKEN;
    return strstr(e->settings.data, "device.deterministic=false") ? HOLDS : train_again(d, e, why);
}

/* Whether `check` accepts the settings.  NOT_APPLICABLE, with a message: it refuses them. */
static enum answer check(struct draw *d, const struct emulated *e, struct text *why)
{
    enum { REFUSED = 78 };
    struct text err = {0};
    enum answer answer = HOLDS;
    int code = run(d, e, "check", "emulated", &err);
    const char *error = strstr(err.data, "error: ");
    if (code && (code != REFUSED || !error))
        answer = draw_broken(why, code, &err);
    else if (code) {
        print_message("draw %" PRIu64 ", %s,%s: %s", d->number, e->name, e->settings.data, error);
        answer = NOT_APPLICABLE;
    }
    text_release(&err);
    return answer;
}

enum answer draw_emulated(struct draw *d, struct text *why)
{
    enum { TRIES = 4 }; /* until `check` accepts */
    struct emulated e = {.in_float32 = d->number % 4 == 1 && !draw_has(d, "float8")};
    enum answer answer = NOT_APPLICABLE;
    for (int i = 0; i < TRIES && answer == NOT_APPLICABLE; i++) {
        text_clear(&e.settings), text_adds(&e.settings, "");
        choose(d, &e);
        answer = check(d, &e, why);
    }
    text_addf(why, "%s,%s%s: ", e.name, e.in_float32 ? DRAW_IN_FLOAT32 : "", e.settings.data);
    if (answer == HOLDS && e.in_float32) answer = train_reference(d, why);
    if (answer == HOLDS) answer = train(d, &e, why);
    unsetenv("LLAMERO_EMULATED_CAPABILITY");
    text_release(&e.settings);
    return answer;
}
