// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "comm/launched.h"
#include "system/runs.h"

#include <signal.h>
#include <unistd.h>

static struct text reason;    /* why the trial is lost */
static bool may_miss_metrics; /* the program warned that it could not write some */

static const char *lose(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *lose(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    text_clear(&reason), text_adds(&reason, line);
    return reason.data;
}

static void clear_output(const struct scene *s)
{
    CHECK_STATUS(OK, file_remove_tree(s->output));
    if (s->start) {
        const char *const copy[] = {"cp", "-a", s->start, s->output, NULL};
        CHECK(test_run(copy, NULL, NULL) == 0);
    }
    if (s->makes_folder) CHECK_STATUS(OK, file_make_dirs(s->output));
    unlink(s->report);
}

/* Runs the scene's command; fault NULL: without one.  "signal=NAME,after=SECONDS" may be followed
 * by ";" and a fault. */
static int run_scene(const struct scene *s, const char *fault, struct text *err)
{
    const char *program = getenv("LLAMERO"), *library = getenv("LLAMERO_PRELOAD");
    char preload[600], spec[600], report[600];
    const char *words[SCENE_WORDS + 12] = {"env", "OMP_WAIT_POLICY=passive", "timeout", "100"};
    char name[16] = "", seconds[32] = "", limit[32];
    int n = s->ranks ? 2 : 4; /* launched_command has a time limit of its own */
    snprintf(limit, sizeof limit, "%d", s->timeout_s ? s->timeout_s : 100);
    if (!s->ranks) words[n - 1] = limit;
    if (fault && sscanf(fault, "signal=%15[A-Z0-9],after=%31[0-9.]", name, seconds) == 2) {
        words[n - 1] = "--preserve-status", words[n++] = "-s", words[n++] = name;
        words[n++] = seconds;
        fault = strchr(fault, ';') ? strchr(fault, ';') + 1 : NULL;
    }
    if (fault) {
        if (!s->ranks) words[n++] = "env";
        CHECK(library && *library);
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
        snprintf(spec, sizeof spec, "FAULT=%s", fault);
        snprintf(report, sizeof report, "FAULT_REPORT=%s", s->report);
        words[n++] = preload, words[n++] = spec, words[n++] = report;
    }
    words[n++] = program ? program : "build/llamero";
    for (int i = 0; s->words[i]; i++) words[n++] = s->words[i];
    return s->ranks ? launched_command(s->ranks, words, NULL, err) : test_run(words, NULL, err);
}

static void read_all(const char *path, struct text *t)
{
    CHECK_STATUS(OK, file_read(path, UINT64_MAX, t));
}

/* Everything in a line of metrics.jsonl before this key is the same in every run. */
static size_t comparable(const char *line)
{
    const char *end = strstr(line, ",\"tokens_per_second\"");
    return end ? (size_t)(end - line) : strlen(line);
}

/* Each line must be one of the straight run's, in order; `complete`: all of them. */
static const char *compare_metrics(const char *want, const char *got, bool complete)
{
    struct text a = {0}, b = {0};
    char *next_a, *next_b;
    const char *bad = NULL;
    read_all(want, &a), read_all(got, &b);
    size_t end = b.len;
    while (!complete && end && b.data[end - 1] != '\n') b.data[--end] = 0; /* killed in a write */
    char *y = strtok_r(b.data, "\n", &next_b);
    for (char *x = strtok_r(a.data, "\n", &next_a); x; x = strtok_r(NULL, "\n", &next_a)) {
        size_t n = comparable(x);
        if (y && n == comparable(y) && !memcmp(x, y, n))
            y = strtok_r(NULL, "\n", &next_b);
        else if (complete && !may_miss_metrics)
            bad = lose("%s misses %.60s", got, x);
    }
    if (!bad && y) bad = lose("%s has %.60s", got, y);
    text_release(&a), text_release(&b);
    return bad;
}

static const char *compare_bytes(const char *want, const char *got)
{
    struct text a = {0}, b = {0};
    read_all(want, &a), read_all(got, &b);
    bool same = a.len == b.len && !memcmp(a.data, b.data, a.len);
    const char *bad = same ? NULL : lose("%s differs from the run without faults", got);
    text_release(&a), text_release(&b);
    return bad;
}

/* Not times, not temporary files that file_write leaves when it is killed: readers ignore them, and
 * the next writer of that name removes them; nor checkpoints that were set aside, which a kill may
 * divide among several folders, and the record that names one of these. */
static bool is_compared(const char *name)
{
    return strcmp(name, "log.txt") != 0 && !strstr(name, ".tmp-") &&
           strncmp(name, "abandoned-", 10) != 0 && strcmp(name, "rewind.json") != 0;
}

static bool is_step(const char *name)
{
    return !strncmp(name, "step-", 5) && name[strspn(name + 5, "0123456789") + 5] == 0;
}

static const char *compare_trees(const char *want, const char *got, bool complete);

static const char *compare_entry(const char *want, const char *got, const char *name, bool complete)
{
    if (!file_exists(got) || !file_exists(want)) return NULL;
    if (file_is_dir(want)) {
        /* A step is renamed into place as a whole; other folders grow. */
        return compare_trees(want, got, complete || is_step(name));
    }
    if (!strcmp(name, "metrics.jsonl")) return compare_metrics(want, got, complete);
    return compare_bytes(want, got);
}

/* Compares files under final names.  `complete`: all must exist, and no others. */
static const char *compare_trees(const char *want, const char *got, bool complete)
{
    const char *bad = NULL;
    struct file_list a = {0}, b = {0};
    if (!complete && !file_exists(got)) return NULL;
    if (!file_is_dir(got)) return lose("%s is missing", got);
    CHECK_STATUS(OK, file_list_dir(&a, want));
    CHECK_STATUS(OK, file_list_dir(&b, got));
    for (size_t i = 0; i < a.count && !bad; i++) {
        char *x = file_join(want, a.paths[i]), *y = file_join(got, a.paths[i]);
        if (is_compared(a.paths[i])) bad = compare_entry(x, y, a.paths[i], complete);
        /* Only the newest step is sure to exist: a save may fail while training continues. */
        bool is_needed = !is_step(a.paths[i]) || i + 1 == a.count;
        if (complete && !bad && is_needed && !file_exists(y)) bad = lose("%s is missing", y);
        free(x), free(y);
    }
    for (size_t i = 0; i < b.count && complete && !bad; i++) {
        char *x = file_join(want, b.paths[i]);
        if (is_compared(b.paths[i]) && !file_exists(x) && !is_step(b.paths[i]))
            bad = lose("%s/%s was left behind", got, b.paths[i]);
        free(x);
    }
    file_list_release(&a), file_list_release(&b);
    return bad;
}

void scene_open(struct scene *s)
{
    struct text err = {0};
    s->report = test_path(s->folder, "report");
    s->straight = test_path(s->folder, "straight");
    clear_output(s);
    int code = run_scene(s, NULL, &err);
    if (code < 0) skip(); /* no launcher */
    if (code) fail_msg("%s: exit code %d: %s", s->name, code, err.data);
    CHECK_STATUS(OK, file_rename(s->output, s->straight));
    text_release(&err);
}

const char *trial_judge_rerun(const struct scene *s, struct text *err)
{
    int code = run_scene(s, NULL, err);
    /* A command that was killed while it returned refuses to replace what it wrote. */
    if (code && !strstr(err->data, "already exists"))
        return lose("run again: exit code %d: %.200s", code, err->data);
    return compare_trees(s->straight, s->output, true);
}

const char *trial_judge_output(const struct scene *s)
{
    return compare_trees(s->straight, s->output, true);
}

const char *trial_judge_after_loss(const struct scene *s, struct text *err)
{
    may_miss_metrics = true;
    const char *bad = trial_judge_rerun(s, err);
    may_miss_metrics = false;
    return bad;
}

/* The object of the report's "fired CALL OBJECT"; false: the fault did not happen. */
static bool read_report(const char *path, char *object, size_t size)
{
    struct text t = {0};
    object[0] = 0;
    if (!file_exists(path)) return false;
    read_all(path, &t);
    char *fired = strstr(t.data, "fired "), *space = fired ? strchr(fired + 6, ' ') : NULL;
    if (space) snprintf(object, size, "%.*s", (int)strcspn(space + 1, "\n"), space + 1);
    text_release(&t);
    return fired;
}

int trial_run_once(const struct scene *s, const char *fault, int *fired, struct text *err)
{
    struct text t = {0};
    unlink(s->report);
    int code = run_scene(s, fault, err);
    *fired = 0;
    if (file_exists(s->report)) read_all(s->report, &t);
    for (const char *at = t.len ? t.data : ""; (at = strstr(at, "fired ")); at += 6) ++*fired;
    text_release(&t);
    return code;
}

bool trial_interrupt(const struct scene *s, const char *fault)
{
    char object[512];
    unlink(s->report);
    int code = run_scene(s, fault, NULL);
    if (!strncmp(fault, "signal=", 7)) return code == 128 + SIGKILL;
    return read_report(s->report, object, sizeof object);
}

/* Whether an error message names the file, or what a temporary one was to become. */
static bool names_object(const char *err, const char *object)
{
    char name[256];
    const char *slash = strrchr(object, '/');
    if (!slash || !slash[1]) return true; /* a stream, an allocation, an MPI function */
    if (!strncmp(object, "/proc", 5) || !strncmp(object, "/sys", 4)) return true;
    snprintf(name, sizeof name, "%s", slash + 1);
    char *tmp = strstr(name, ".tmp");
    if (!tmp) tmp = strstr(name, ".llamero-tmp");
    if (!tmp) tmp = strstr(name, ".part"); /* messages name the file that it becomes */
    if (tmp) *tmp = 0;
    return strstr(err, name);
}

static bool starts_ranks(const struct scene *s)
{
    for (int i = 0; s->words[i]; i++)
        if (!strcmp(s->words[i], "--ranks")) return true;
    return false;
}

static const char *judge_code(const struct scene *s, const char *fault, int code)
{
    bool has_ranks = s->ranks || starts_ranks(s);
    bool is_memory = strstr(fault, "malloc") || strstr(fault, "ENOMEM");
    bool is_kill = strstr(fault, "action=kill") || strstr(fault, "=KILL");
    bool is_term = strstr(fault, "action=term") || !strncmp(fault, "signal=", 7);
    /* a signal before the program handles it */
    bool is_default = code == 128 + SIGTERM || code == 128 + SIGINT || code == 128 + SIGUSR1;
    bool is_usual = code == 0 || code == 74 || (is_memory && code == 78) ||
                    (is_term && (code == 75 || is_default)) || (has_ranks && code == 81) ||
                    (strstr(fault, "call=mpi") && code == 82) ||
                    (strstr(fault, "ENOENT") && code == 66) ||
                    (strstr(fault, "flip") && (code == 65 || code == 66 || code == 78));
    /* A launcher reports a rank that it killed, or its own failure. */
    if (is_kill)
        return code == 137 || (has_ranks && code) || (!code && strstr(fault, "after="))
                   ? NULL
                   : lose("exit code %d", code);
    return is_usual ? NULL : lose("exit code %d", code);
}

static void note_message(struct tally *t, const char *err)
{
    const char *at = strstr(err, "error: ");
    if (!at) at = strstr(err, "warning: ");
    if (!t->message[0] && at)
        snprintf(t->message, sizeof t->message, "%.*s", (int)strcspn(at, "\n"), at);
}

bool trial_run(const struct scene *s, const char *fault, int exit_code, struct tally *t)
{
    char object[512] = "";
    struct text err = {0}, again = {0};
    clear_output(s);
    int code = run_scene(s, fault, &err);
    if (strncmp(fault, "signal=", 7) && !read_report(s->report, object, sizeof object)) {
        text_release(&err);
        return false;
    }
    const char *bad = judge_code(s, fault, code);
    if (exit_code != ANY_CODE)
        bad = code == exit_code ? NULL : lose("exit code %d, expected %d", code, exit_code);
    if (!bad && strstr(err.data, "BUG")) bad = lose("it blames a bug of its own");
    if (!bad && code && code != 75 && !strstr(fault, "kill") && !names_object(err.data, object))
        bad = lose("exit code %d, but the message does not name %s", code, object);
    if (!bad && !s->goes_back) bad = compare_trees(s->straight, s->output, false);
    may_miss_metrics = strstr(err.data, "metrics.jsonl");
    if (!bad && compare_trees(s->straight, s->output, true))
        bad = code || strstr(err.data, "warning: ") ? trial_judge_rerun(s, &again) : reason.data;
    may_miss_metrics = false;
    t->tried++;
    if (bad) {
        t->lost++;
        print_message("lost: %s\n  %s: FAULT=%s (%s)\n  ", bad, s->name, fault, object);
        for (int i = 0; s->words[i]; i++) print_message("%s ", s->words[i]);
        print_message("\n  exit code %d: %.*s\n", code, 600, err.data);
    } else {
        t->survived++;
        if (!strstr(fault, "action=kill")) note_message(t, err.data);
    }
    text_release(&err), text_release(&again);
    return true;
}

int trial_points(double share, int all)
{
    const char *text = getenv("LLAMERO_FAULT_POINTS");
    double points = text ? strtod(text, NULL) * share : all;
    return points < 1 ? 1 : points > all ? all : (int)points;
}

/* How many calls match the fault in a run without it: those of the rank that reports most. */
static int count_calls(const struct scene *s, const char *fault)
{
    char never[600];
    struct text err = {0}, t = {0};
    long most = 0;
    snprintf(never, sizeof never, "%s,nth=1000000000", fault);
    clear_output(s);
    int code = run_scene(s, never, &err);
    if (code) fail_msg("%s: exit code %d: %s", s->name, code, err.data);
    read_all(s->report, &t);
    for (const char *at = t.data; (at = strstr(at, "calls ")); at += 6) {
        long count = strtol(at + 6, NULL, 10);
        most = count > most ? count : most;
    }
    text_release(&err), text_release(&t);
    return (int)most;
}

void trial_every(const struct scene *s, const char *fault, double share)
{
    struct tally t = {0};
    int calls = count_calls(s, fault), points = trial_points(share, calls);
    int stride = calls / points > 1 ? calls / points : 1;
    for (int n = 1 + stride / 2;; n += stride) {
        char nth[600];
        snprintf(nth, sizeof nth, "%s,nth=%d", fault, n);
        /* The number of calls may vary a little with what threads do. */
        if (!trial_run(s, nth, ANY_CODE, &t) && n > calls) break;
        if (n > calls * 2) break;
    }
    tally_report(&t, s->name, fault);
}

void tally_add_row(const struct tally *t, const char *scene, const char *fault)
{
    struct text row = {0};
    const char *path = getenv("LLAMERO_FAULT_TABLE");
    text_addf(&row, "%-17s %-46s %6d %8d %5d  %s\n", scene, fault, t->tried, t->survived, t->lost,
              t->message);
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) fputs(row.data, f);
    if (f) fclose(f);
    print_message("%s", row.data);
    text_release(&row);
}

void tally_report(const struct tally *t, const char *scene, const char *fault)
{
    tally_add_row(t, scene, fault);
    CHECK(t->tried > 0 && t->lost == 0);
}

void scene_train(struct scene *s, int ranks, const char *settings)
{
    scene_init_train(s, ranks, settings);
    scene_open(s);
}

void scene_init_train(struct scene *s, int ranks, const char *settings)
{
    *s = (struct scene){.name = ranks < 2    ? "train"
                                : ranks == 2 ? "train, 2 ranks"
                                             : "train, 4 ranks",
                        .folder = test_folder(),
                        .ranks = ranks < 2 ? 0 : ranks};
    const char *corpus = test_path(s->folder, "corpus.txt");
    const char *config = test_path(s->folder, "c.toml");
    struct text dump = {0}, words = {0};
    s->output = test_path(s->folder, "run");
    s->report = test_path(s->folder, "report");
    runs_write_corpus(corpus, 40000);
    runs_write_config(config, corpus);
    text_addf(&dump, "job.dump_folder=%s", s->output);
    text_addf(&words,
              "training.steps=6 lr_scheduler.total_steps=6 checkpoint.interval=2 "
              "device.threads=1 %s",
              settings);
    /* Rank b of a save writes every ranks-th block: the model must have several. */
    if (ranks > 1) text_adds(&words, " model.dim=128 model.ffn_hidden=512 model.n_layers=4");
    int n = 0;
    s->words[n++] = "train", s->words[n++] = config, s->words[n++] = dump.data;
    char *save; /* the words stay until the process ends, as test_path's do */
    for (char *word = strtok_r(words.data, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        CHECK(n < SCENE_WORDS - 1);
        s->words[n++] = word;
    }
}
